//! The command line, host and start time of this process, for result documents.

use std::time::{Duration, SystemTime};

use longhaul_core::result::Invocation;

/// Returns the invocation of this process, which began `elapsed` ago.
pub(crate) fn invocation(elapsed: Duration) -> Invocation {
    let began = SystemTime::now().checked_sub(elapsed).unwrap_or(SystemTime::UNIX_EPOCH);
    let began = jiff::Timestamp::try_from(began).unwrap_or_default();
    let node = rustix::system::uname();
    Invocation {
        started_at: format!("{began:.3}"),
        host: node.nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_precedes_now() {
        let found = invocation(Duration::from_secs(3600));
        let began: jiff::Timestamp = found.started_at.parse().unwrap();
        let ago = jiff::Timestamp::now().as_second() - began.as_second();
        assert!((3599..3700).contains(&ago), "{ago}");
        assert!(found.started_at.ends_with('Z') && found.started_at.contains('.'));
        assert!(!found.host.is_empty() && !found.command.is_empty());
    }
}
