//! Words for the errors of tests with other programs.

use longhaul_interop::{Fault, InteropError, PeerName, PeerOption, Program, Step};

/// Returns the words for an error whose cause is printed after it.
pub(super) fn peer_words(error: &InteropError) -> String {
    match error {
        InteropError::Connect { address, .. } => format!(
            "cannot connect to {} at {}:{}; check that its server runs there and that the \
             firewall allows the port",
            address.program, address.host, address.port
        ),
        InteropError::Closed { peer, during, .. } => closed(peer, *during),
        InteropError::Silent { peer, during: Step::FirstDatagram, limit } => format!(
            "{peer} did not answer the first datagram within {} s; check that the firewall allows \
             UDP to this port",
            limit.as_secs()
        ),
        InteropError::Protocol { peer, during: Step::Greeting, fault: Fault::Unexpected(_) } => {
            format!("{peer} uses another protocol; check the port (-p)")
        }
        InteropError::Refused { peer, reason } => {
            format!("{peer} refused the test: {}", reason.join("; "))
        }
        InteropError::Protocol { peer, during: Step::Greeting, fault: Fault::Line(line) } => {
            let line: String = line.chars().take(80).collect();
            format!("{peer} answers \"{line}\" and uses another protocol; check the port (-p)")
        }
        InteropError::Busy { peer } => {
            format!("{peer} is busy with another client; try again when its test has ended")
        }
        InteropError::Denied { peer, stated } => denied(peer, *stated),
        InteropError::Reported { peer, during, code, .. } => reported(peer, *during, *code),
        InteropError::Unsupported { peer, wanted, since } => unsupported(peer, *wanted, *since),
        InteropError::KeyFile { path, .. } => {
            format!("cannot use {} as an RSA public key in PEM format", path.display())
        }
        InteropError::UserFile { path, source } => {
            format!(
                "cannot use {} as the list of users of iperf3 clients: {source}",
                path.display()
            )
        }
        // These sentences need no names of options.
        InteropError::Resolve { .. }
        | InteropError::Silent { .. }
        | InteropError::Protocol { .. }
        | InteropError::Terminated { .. }
        | InteropError::Cut { .. }
        | InteropError::Engine(_)
        | InteropError::Host { .. } => error.to_string(),
    }
}

/// Returns the words for a refused user; `stated` if the program reported the refusal.
fn denied(peer: &PeerName, stated: bool) -> String {
    let what = if stated {
        "refused the user name or the password"
    } else {
        "ended the connection when it read the user name and the password"
    };
    format!(
        "{peer} {what}; check --username, IPERF3_PASSWORD, --rsa-public-key-path and the clocks of \
         both hosts, and add --use-pkcs1-padding for a version before 3.17"
    )
}

/// Returns the words for an option that a program lacks; later versions have it from `since` on.
fn unsupported(peer: &PeerName, wanted: PeerOption, since: Option<&str>) -> String {
    match (wanted, since) {
        (PeerOption::Version, Some(since)) => {
            format!("{peer} is older than {since}, the oldest supported version")
        }
        (wanted, Some(since)) => {
            format!("{peer} is older than {since}, the first version with {}", option_of(wanted))
        }
        (wanted, None) => format!("{} has no {}; omit it", peer.program, option_of(wanted)),
    }
}

fn closed(peer: &PeerName, during: Step) -> String {
    match during {
        Step::Parameters if peer.program == Program::Iperf3 => format!(
            "{peer} closed the connection when it read the parameters; if it requires a user, use \
             --username and --rsa-public-key-path"
        ),
        Step::FirstDatagram => format!("{peer} does not receive datagrams at this port"),
        _ => format!("{peer} closed the connection while {during}"),
    }
}

/// Returns the words for an error with a number of iperf3.
fn reported(peer: &PeerName, during: Step, code: i32) -> String {
    let reason = match code {
        0 if during == Step::Parameters => {
            "refused the parameters; if it requires a user, use --username and \
             --rsa-public-key-path"
        }
        6 => "allows fewer streams (-P)",
        7 | 20 => "does not accept this length (-l)",
        27 => "allows a lower rate (-b)",
        37 => "allows only shorter tests (-t)",
        121 => "is busy with another client; try again when its test has ended",
        134 => "does not have this congestion control (-C)",
        144 => "received nothing for too long",
        160 => "ended the test, because it exceeded its time",
        208 => "reported a stream that does not exist",
        _ => return format!("{peer} reported error {code} while {during}"),
    };
    match code {
        0 => format!("{peer} {reason}"),
        code => format!("{peer} {reason} (its error {code})"),
    }
}

/// Returns the name of an option.
fn option_of(wanted: PeerOption) -> &'static str {
    match wanted {
        PeerOption::BothDirections => "--bidir",
        PeerOption::Flip => "--flip",
        PeerOption::Multipath => "--mptcp",
        PeerOption::Latency => "--latency",
        PeerOption::Links => "--local and --remote",
        PeerOption::ServerCpus => "-A with several CPUs of the server",
        PeerOption::Length => "-l of this length",
        PeerOption::OmittedTime => "-O of this time (whole seconds, 600 at most)",
        PeerOption::LongCounters => "datagram numbers of 64 bits",
        PeerOption::Authentication => "--username",
        PeerOption::ZeroCopy => "-Z",
        PeerOption::Time => "-t of this time (24 hours at most)",
        PeerOption::Window => "-w of this size (512 MiB at most)",
        PeerOption::Streams => "-P with this option",
        PeerOption::SkipReceiveCopy => "--skip-rx-copy",
        PeerOption::Congestion => "-C",
        PeerOption::Burst => "--burst of this length (1000 writes at most)",
        PeerOption::SegmentSize => "-M",
        PeerOption::NoDelay => "-N",
        PeerOption::Dscp => "--dscp",
        PeerOption::Omit => "-O",
        PeerOption::Version => "this protocol",
        PeerOption::ServerCpu => "a CPU for the server (-xcs)",
        PeerOption::LowPort => "data ports below 5000",
        PeerOption::Jitter => "jitter (-j)",
        PeerOption::Delay => "one-way delay (-o)",
        PeerOption::SourcePort => "a source port (-p#:#)",
        PeerOption::SlowStart => "slow start (-Ris)",
    }
}
