//! Words for the errors of tests with other programs.

use longhaul_interop::{Fault, InteropError, PeerName, Step, Wanted};

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
            format!("{peer} speaks another protocol; check the port (-p)")
        }
        InteropError::Refused { peer, reason } => {
            format!("{peer} refused the test: {}", reason.join("; "))
        }
        InteropError::Protocol { peer, during: Step::Greeting, fault: Fault::Line(line) } => {
            let line: String = line.chars().take(80).collect();
            format!("{peer} answers \"{line}\" and speaks another protocol; check the port (-p)")
        }
        InteropError::Unsupported { peer, wanted: Wanted::Version, since: Some(since) } => {
            format!("{peer} is older than {since}, the oldest supported version")
        }
        InteropError::Busy { peer } => {
            format!("{peer} is busy with another client; try again when its test has ended")
        }
        InteropError::Denied { peer } => format!(
            "{peer} refused the user name or the password; check --username, IPERF3_PASSWORD, \
             --rsa-public-key-path and the clocks of both hosts, and add --use-pkcs1-padding for a \
             version before 3.17"
        ),
        InteropError::Reported { peer, during, code, .. } => reported(peer, *during, *code),
        InteropError::Unsupported { peer, wanted, since } => {
            let option = option_of(*wanted);
            match since {
                Some(since) => {
                    format!("{peer} is older than {since}, the first version with {option}")
                }
                None => format!("{} has no {option}; leave it out", peer.program),
            }
        }
        InteropError::KeyFile { path, .. } => {
            format!("cannot use {} as an RSA public key in PEM format", path.display())
        }
        InteropError::UserFile { path, source } => {
            format!("cannot use {} for the users of iperf3 clients: {source}", path.display())
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

fn closed(peer: &PeerName, during: Step) -> String {
    match during {
        Step::Parameters => format!(
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
fn option_of(wanted: Wanted) -> &'static str {
    match wanted {
        Wanted::BothDirections => "--bidir",
        Wanted::Flip => "--flip",
        Wanted::Multipath => "--mptcp",
        Wanted::Latency => "--latency",
        Wanted::Links => "--local and --remote",
        Wanted::ServerCpus => "-A with several CPUs of the server",
        Wanted::Length => "-l of this length",
        Wanted::OmittedTime => "-O of this time (whole seconds, 600 at most)",
        Wanted::LongCounters => "datagram numbers of 64 bits",
        Wanted::Authentication => "--username",
        Wanted::ZeroCopy => "-Z",
        Wanted::Time => "-t of this time (24 hours at most)",
        Wanted::Window => "-w of this size (512 MiB at most)",
        Wanted::Streams => "-P with this option",
        Wanted::SkipReceiveCopy => "--skip-rx-copy",
        Wanted::Congestion => "-C",
        Wanted::Burst => "--burst of this length (1000 writes at most)",
        Wanted::SegmentSize => "-M",
        Wanted::NoDelay => "-N",
        Wanted::Dscp => "--dscp",
        Wanted::Omit => "-O",
        Wanted::Version => "this protocol",
        Wanted::ServerCpu => "a CPU for the server (-xcs)",
        Wanted::LowPort => "data ports below 5000",
        Wanted::Jitter => "jitter (-j)",
        Wanted::Delay => "one-way delay (-o)",
        Wanted::SourcePort => "a source port (-p#:#)",
        Wanted::SlowStart => "slow start (-Ris)",
    }
}
