//! The limit of open file descriptors of this process (`RLIMIT_NOFILE` in `getrlimit(2)`).

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns the soft limit; `u64::MAX` means unlimited.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit to the hard limit, which needs no privilege, and returns it. Programs that
/// use `select(2)` expect the soft limit of 1024, so a process that starts such programs should not
/// call this.
///
/// # Errors
/// The kernel refuses; the limit is unchanged.
pub fn raise_limit() -> io::Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(limit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise_limit().unwrap(), hard.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
    }
}
