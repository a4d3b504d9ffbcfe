//! Words for the errors of the libraries: what failed, on what, and what to do. Names of options are
//! added here, because the libraries do not know the command line.

use std::error::Error;

use longhaul_core::plan::{LinkPlanError, PlanError, TestOption};
use longhaul_lab::LabError;
use longhaul_watch::WatchError;

use super::agent_failure::agent_words;
use super::engine_failure::engine_words;
use super::peer_failure::peer_words;

/// Returns the sentence for an error and its causes, separated by colons.
pub(crate) fn failure_text(error: &(dyn Error + 'static)) -> String {
    let mut text = words(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&words(error));
        cause = error.source();
    }
    text
}

fn words(error: &(dyn Error + 'static)) -> String {
    let peer = error.downcast_ref().map(peer_words);
    let engine = || error.downcast_ref().map(engine_words);
    let plan = || error.downcast_ref().and_then(plan_words);
    let link = || error.downcast_ref().and_then(link_words);
    let lab = || error.downcast_ref().and_then(lab_words);
    let watch = || error.downcast_ref().and_then(watch_words);
    let agent = || error.downcast_ref().map(agent_words);
    peer.or_else(engine)
        .or_else(agent)
        .or_else(plan)
        .or_else(link)
        .or_else(lab)
        .or_else(watch)
        .unwrap_or_else(|| error.to_string())
}

/// Returns the words for options of a test that exclude or need each other.
fn plan_words(error: &PlanError) -> Option<String> {
    match error {
        PlanError::Conflict { one: TestOption::SegmentSize, other: TestOption::Udp } => Some(
            "a segment size (-M) cannot be used with UDP, whose datagrams have -l bytes".into(),
        ),
        PlanError::Conflict { one, other } => {
            Some(format!("{} cannot be used with {}", with_flag(*one), with_flag(*other)))
        }
        PlanError::Needs { one, other } => {
            Some(format!("{} needs {}", with_flag(*one), with_flag(*other)))
        }
        PlanError::OutOfRange { .. } => None,
    }
}

/// Returns the name of an option with its flag.
fn with_flag(option: TestOption) -> String {
    let flag = match option {
        TestOption::Congestion => "-C",
        TestOption::SegmentSize => "-M",
        TestOption::NoDelay => "-N",
        TestOption::ZeroCopy => "-Z",
        TestOption::SkipReceiveCopy => "--skip-rx-copy",
        TestOption::Burst => "--burst",
        TestOption::Rate => "-b",
        TestOption::Pacing => "--pacing",
        TestOption::Links => "--local, --remote",
        TestOption::ServerOpens => "--flip",
        TestOption::Udp
        | TestOption::Mptcp
        | TestOption::KernelPacing
        | TestOption::Ipv4
        | TestOption::Ipv6 => return option.to_string(),
    };
    format!("{option} ({flag})")
}

/// Returns the words for an error of a link whose options come from the command line. An error of a
/// file names its keys instead.
fn link_words(error: &LinkPlanError) -> Option<String> {
    match error {
        LinkPlanError::Contradiction { one, other } => {
            Some(format!("--{one} and --{other} contradict each other: give only one of them"))
        }
        LinkPlanError::Needs { option, needs } => {
            Some(format!("--{option} needs --{needs}: give both or none"))
        }
        LinkPlanError::NoUnit { option, value } => {
            Some(format!("--{option} {value} has no unit: did you mean {value}ms?"))
        }
        LinkPlanError::Value { .. }
        | LinkPlanError::Fixed { .. }
        | LinkPlanError::Trace { .. }
        | LinkPlanError::NotLoaded { .. } => Some(format!("--{error}")),
        // These sentences name no option.
        LinkPlanError::Delay { .. }
        | LinkPlanError::Rate { .. }
        | LinkPlanError::Mtu { .. }
        | LinkPlanError::Unknown { .. } => None,
    }
}

/// Returns the words for an error of a monitor that an option or a command avoids.
fn watch_words(error: &WatchError) -> Option<String> {
    let hint = match error {
        WatchError::NoInterface(_) => "'ip -brief link' lists the interfaces",
        WatchError::RecordInUse(_) => "stop that process, or record into another directory",
        WatchError::NoRecord(_) => "start one with 'longhaul watch --record DIR'",
        WatchError::NotARecord(_) => "choose another directory",
        WatchError::RecordVersion { .. } => "use a later version of longhaul, or another directory",
        WatchError::ForeignRecord { .. } => {
            "run this command as that user, or use another directory"
        }
        WatchError::Listen { .. } => "choose another port or address with --metrics",
        WatchError::Kernel { .. } | WatchError::File { .. } | WatchError::Record { .. } => {
            return None;
        }
    };
    Some(format!("{error}; {hint}"))
}

/// Returns the words for an error of a matrix that an option avoids.
fn lab_words(error: &LabError) -> Option<String> {
    let hint = match error {
        LabError::NotEmpty { .. } => {
            "resume it with --resume or choose another directory with --out"
        }
        LabError::OtherPlan { .. } => {
            "use the same plan and options (or none, for those of the archive), or choose another \
             directory with --out"
        }
        _ => return None,
    };
    Some(format!("{error}; {hint}"))
}

#[cfg(test)]
mod tests {
    use std::io;

    use longhaul_engine::EngineError;

    use super::*;

    #[test]
    fn causes_follow_the_error() {
        let source = io::Error::other("reset");
        let error = EngineError::Handshake { peer: "far".to_owned(), source };
        let context = anyhow::Error::from(error).context("cannot copy");
        assert_eq!(
            failure_text(context.as_ref()),
            "cannot copy: TLS handshake with far failed; check that it is 'longhaul serve': reset"
        );
    }

    #[test]
    fn options_of_libraries_get_their_flags() {
        let (one, other) = (TestOption::ZeroCopy, TestOption::Udp);
        let text = failure_text(&PlanError::Conflict { one, other });
        assert_eq!(text, "zero-copy send (-Z) cannot be used with UDP");
        let (one, other) = (TestOption::Burst, TestOption::Rate);
        assert_eq!(
            failure_text(&PlanError::Needs { one, other }),
            "a burst (--burst) needs a rate (-b)"
        );
        let text = failure_text(&LinkPlanError::Needs { option: "queue", needs: "rate" });
        assert_eq!(text, "--queue needs --rate: give both or none");
        let text = failure_text(&LabError::NotEmpty { path: "out".into() });
        assert!(text.starts_with("out is not empty; resume it with --resume"), "{text}");
    }
}
