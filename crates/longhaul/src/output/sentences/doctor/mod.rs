//! The sentences of the doctor's findings: a phrase per case of each rule, filled in with the
//! values of the finding.

mod host;
mod network;
mod phrase;
mod tcp;

use longhaul_core::result::{Finding, FindingVerdict};

use phrase::{Case, Phrase, case, fill};

/// Returns the phrases of all rules.
fn phrases() -> impl Iterator<Item = &'static Phrase> {
    tcp::PHRASES.iter().chain(network::PHRASES).chain(host::PHRASES)
}

/// The phrases of facts that could not be read, for every rule.
const UNSEEN: &[Case] = &[
    case("denied", "{unseen}").why("root can read it").run(&["sudo longhaul doctor"]),
    case("denied_net_admin", "{unseen}")
        .why("reading it needs CAP_NET_ADMIN, which root has")
        .run(&["sudo longhaul doctor"]),
    case("denied_sys_admin", "{unseen}")
        .why("reading more than 64 bytes of it needs CAP_SYS_ADMIN")
        .run(&["sudo longhaul doctor"]),
    case("denied_file", "{unseen}")
        .why("the test needs a file, which this user may not create there")
        .run(&["sudo longhaul doctor"]),
    case("absent", "{unseen}").why("this kernel, driver or machine does not report it"),
    case("unreadable", "{unseen}"),
];

/// Fills in the sentences of a finding. The findings of earlier versions have no case, and keep
/// their sentences.
pub(super) fn complete(finding: &mut Finding) {
    let Some(phrase) = phrases().find(|phrase| phrase.rule == finding.rule) else { return };
    let named = |case: &&Case| case.name == finding.case;
    let Some(case) = phrase.cases.iter().chain(UNSEEN).find(named) else { return };
    phrase.title.clone_into(&mut finding.title);
    finding.present = fill(case.present, finding);
    finding.wanted = fill(case.wanted, finding);
    finding.why = fill(case.why, finding);
    // A subject that is in order needs no remedy.
    let commands = if finding.verdict == FindingVerdict::Ok { &[] } else { case.commands };
    finding.commands = commands.iter().map(|command| fill(command, finding)).collect();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use longhaul_core::doctor::{RULES, Target, UNSEEN_CASES, examine};
    use longhaul_core::result::{Measurement, TargetSource};
    use longhaul_core::units::parse_span;
    use longhaul_sys::doctor::{FactSource, Query, read_facts};

    use super::*;

    macro_rules! recording {
        ($name:literal) => {
            include_str!(concat!("../../../../../longhaul-sys/tests/hosts/", $name, ".host"))
        };
    }

    const SERVER: &str = recording!("server-untuned");
    const NODE: &str = recording!("dtn-100g");
    const LAPTOP: &str = recording!("laptop-wifi");
    const GUEST: &str = recording!("vm-virtio");

    fn target(rate: &str, rtt: &str) -> Target {
        Target {
            rate: rate.parse().unwrap(),
            rate_from: TargetSource::Asked,
            rtt: parse_span(rtt).unwrap(),
            rtt_from: TargetSource::Asked,
            to: None,
            port: 5210,
        }
    }

    fn findings(source: &FactSource, query: &Query, target: &Target) -> Vec<Finding> {
        let measured = ["memory_copy", "disk_write", "loopback_tcp"].map(|name| Measurement {
            name: name.to_owned(),
            title: name.to_owned(),
            throughput_bps: Some("4G".parse().unwrap()),
            seconds: 0.8,
            note: "a note".to_owned(),
        });
        let mut found = examine(&read_facts(source, query), &measured, target);
        found.iter_mut().for_each(complete);
        found
    }

    fn recorded(recording: &str, disk: &str, target: &Target) -> Vec<Finding> {
        let query = Query { disks: vec![disk.to_owned()], ..Query::default() };
        findings(&FactSource::recorded(recording.parse().unwrap()), &query, target)
    }

    #[track_caller]
    fn finding<'a>(findings: &'a [Finding], rule: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.rule == rule).unwrap_or_else(|| panic!("no {rule}"))
    }

    #[test]
    fn every_case_of_every_rule_has_one_phrase() {
        let phrases: Vec<_> = phrases().collect();
        let names = |cases: &[Case]| cases.iter().map(|case| case.name).collect::<Vec<_>>();
        for rule in RULES {
            let of: Vec<_> = phrases.iter().filter(|phrase| phrase.rule == rule.name).collect();
            let [phrase] = of[..] else { panic!("{} phrases of {}", of.len(), rule.name) };
            let (has, wanted) = (names(phrase.cases), rule.cases);
            assert_eq!(has.len(), wanted.len(), "{}: {has:?}", rule.name);
            assert_eq!(BTreeSet::from_iter(has), wanted.iter().copied().collect(), "{}", rule.name);
        }
        assert_eq!(phrases.len(), RULES.len());
        assert_eq!(names(UNSEEN), UNSEEN_CASES);
    }

    #[test]
    fn every_value_of_a_phrase_is_in_its_finding() {
        let mut found = Vec::new();
        for (recording, disk) in
            [(SERVER, "/srv"), (NODE, "/data"), (LAPTOP, "/home/me"), (GUEST, "/srv/data")]
        {
            for (rate, rtt) in [("100G", "100ms"), ("10G", "1ms"), ("1G", "20ms")] {
                found.extend(recorded(recording, disk, &target(rate, rtt)));
            }
        }
        found.extend(recorded("longhaul.host/1\n", "/data", &target("10G", "100ms")));
        let this_host = Query {
            to: Some("127.0.0.1".to_owned()),
            port: 9,
            patience: Duration::from_secs(1),
            interfaces: vec!["lo".to_owned(), "no-such-if".to_owned()],
            disks: vec![env!("CARGO_MANIFEST_DIR").to_owned(), "/no/such/directory".to_owned()],
        };
        found.extend(findings(&FactSource::host(), &this_host, &target("1G", "1ms")));
        for finding in &found {
            let Finding { title, present, wanted, why, commands, .. } = finding;
            assert!(!title.is_empty() && !present.is_empty(), "{finding:?}");
            let text = [&[present.clone(), wanted.clone(), why.clone()], &commands[..]].concat();
            assert!(!text.iter().any(|text| text.contains('?')), "{finding:#?}");
            let judged =
                matches!(finding.verdict, FindingVerdict::Problem | FindingVerdict::Advice);
            assert!(!judged || !wanted.is_empty(), "{finding:#?}");
        }
    }

    #[test]
    fn a_default_server_gets_commands_with_its_own_values() {
        let found = recorded(SERVER, "/srv", &target("100G", "100ms"));
        let bus = finding(&found, "pcie_rate");
        // 256/280 x 128/130 x 8 lanes x 8 GT/s = 57.6 Gb/s.
        assert_eq!(bus.present, "57.6 Gb/s over 8 GT/s x8");
        assert!(bus.why.contains("256/(256+24) x 128/130 x 8 lanes x 8 GT/s = 57.6 Gb/s"));
        let commands = |rule| &finding(&found, rule).commands;
        assert_eq!(
            commands("pcie_read_request")[..],
            ["sudo setpci -s 0000:86:00.0 CAP_EXP+8.w=5000:7000"]
        );
        assert_eq!(commands("offloads")[..], ["sudo ethtool -K enp134s0f0np0 gro on"]);
        assert_eq!(
            finding(&found, "interrupt_node").present,
            "node 1; interrupts also on CPUs 0-7"
        );
        let pin = &commands("interrupt_node")[1];
        assert!(pin.contains("echo 8-15,24-31 | sudo tee /proc/irq/${i##*/}/smp"), "{pin}");
        assert_eq!(
            commands("tcp_rmem")[..],
            ["sudo sysctl -w net.ipv4.tcp_rmem='4096 131072 1250951168'"]
        );
    }

    #[test]
    fn a_tuned_node_needs_no_commands() {
        let found = recorded(NODE, "/data", &target("100G", "100ms"));
        assert_eq!(finding(&found, "pcie_rate").present, "241 Gb/s over 16 GT/s x16");
        assert!(finding(&found, "interrupt_node").present.contains("16-31"));
        assert!(finding(&found, "tcp_rmem").why.contains("over at least 2 connections"));
        assert_eq!(finding(&found, "file_system").present, "xfs at /data, on md0");
        assert!(found.iter().all(|f| f.verdict != FindingVerdict::Ok || f.commands.is_empty()));
    }

    #[test]
    fn an_unseen_fact_names_its_privilege() {
        let found = recorded(LAPTOP, "/home/me", &target("1G", "20ms"));
        // The rate of the bus is judged with an assumed payload.
        assert!(finding(&found, "pcie_rate").why.contains("256 assumed"), "{found:#?}");
        let bus = finding(&found, "pcie_payload");
        assert!(bus.present.contains("permission denied") && bus.why.contains("CAP_SYS_ADMIN"));
        assert_eq!(bus.commands, ["sudo longhaul doctor"]);
    }

    #[test]
    fn measurements_are_compared_with_the_target() {
        let found = recorded(GUEST, "/srv/data", &target("10G", "1ms"));
        assert!(finding(&found, "memory_copy").why.contains("/ 4.00 Gb/s = 2.5 cores"));
        assert!(finding(&found, "loopback_tcp").commands[0].ends_with("-P 3"));
    }

    #[test]
    fn a_finding_of_an_earlier_version_keeps_its_sentences() {
        let text =
            r#"{"rule": "tcp_sack", "area": "tcp", "title": "t", "verdict": "ok", "seen": "s"}"#;
        let mut finding: Finding = serde_json::from_str(text).unwrap();
        complete(&mut finding);
        assert_eq!((finding.title.as_str(), finding.present.as_str()), ("t", "s"));
    }
}
