//! The conditions under which a key is valid: the options `from` and `expiry-time` in the syntax of
//! sshd.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::SystemTime;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// A set of addresses: those from which a key is valid, or that an agent tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources(Vec<Pattern>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pattern {
    negated: bool,
    network: IpAddr,
    prefix: u32,
}

impl Sources {
    /// Parses addresses and networks (`ADDRESS/BITS`) separated by commas, each optionally after
    /// `!`. `None` for anything else, such as a network with bits after its prefix.
    pub fn parse(list: &str) -> Option<Self> {
        list.split(',').map(Pattern::parse).collect::<Option<Vec<_>>>().map(Sources)
    }

    /// Returns whether `address` is in a network without `!` and in none with `!`.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let found = |negated| {
            self.0.iter().any(|pattern| pattern.negated == negated && pattern.contains(address))
        };
        found(false) && !found(true)
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        let (negated, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let (network, bits) = match text.split_once('/') {
            Some((network, bits)) => (network, Some(bits)),
            None => (text, None),
        };
        let network: IpAddr = network.parse().ok()?;
        let whole = if network.is_ipv4() { 32 } else { 128 };
        let prefix = match bits {
            None => whole,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
        };
        let pattern = Pattern { negated, network, prefix };
        let tidy = prefix <= whole && number(network) & !pattern.mask() == 0;
        tidy.then_some(pattern)
    }

    fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.network.is_ipv4()
            && number(address) & self.mask() == number(self.network)
    }

    /// Returns the prefix as a mask of the upper bits.
    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0)
    }
}

/// Returns an address as a number whose upper bits come first.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Parses `YYYYMMDD[HHMM[SS]]`, in local time or with a final `Z` in UTC.
pub(super) fn parse_expiry(text: &str) -> Option<SystemTime> {
    let (digits, zone) = match text.strip_suffix(['Z', 'z']) {
        Some(digits) => (digits, TimeZone::UTC),
        None => (text, TimeZone::system()),
    };
    let digital = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !digital || !matches!(digits.len(), 8 | 12 | 14) {
        return None;
    }
    let time = DateTime::new(
        part(digits, 0, 4)?,
        part(digits, 4, 6)?,
        part(digits, 6, 8)?,
        part(digits, 8, 10)?,
        part(digits, 10, 12)?,
        part(digits, 12, 14)?,
        0,
    );
    Some(time.ok()?.to_zoned(zone).ok()?.timestamp().into())
}

/// Returns the number at this position; zero if the text is shorter.
fn part<T: FromStr + Default>(digits: &str, from: usize, to: usize) -> Option<T> {
    digits.get(from..to).map_or(Some(T::default()), |part| part.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn takes(list: &str, address: &str) -> bool {
        Sources::parse(list).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn networks_of_both_families_are_compared_by_their_prefix() {
        assert!(takes("192.0.2.0/24", "192.0.2.255") && !takes("192.0.2.0/24", "192.0.3.0"));
        assert!(takes("192.0.2.0/24", "::ffff:192.0.2.7"), "an IPv6 socket shows IPv4 so");
        assert!(takes("2001:db8::/32,10.1.2.3", "10.1.2.3"));
        assert!(
            takes("2001:db8::/32", "2001:db8:ffff::1") && !takes("2001:db8::/32", "2001:db9::")
        );
        assert!(takes("0.0.0.0/0", "203.0.113.9") && !takes("0.0.0.0/0", "::1"));
        assert!(takes("::/0", "::1") && !takes("10.1.2.3", "10.1.2.4"));
    }

    #[test]
    fn a_negated_network_is_excluded_at_any_position() {
        for list in ["10.0.0.0/8,!10.1.0.0/16", "!10.1.0.0/16,10.0.0.0/8"] {
            assert!(takes(list, "10.2.0.1") && !takes(list, "10.1.0.1"), "{list}");
        }
        assert!(!takes("!10.1.0.0/16", "10.2.0.1"), "as in sshd, one has to match");
    }

    #[test]
    fn an_invalid_network_is_rejected() {
        let slips = [
            "",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "::1/129",
            "*.example.org",
            "10.0.0.0/+8",
            "10.0.0.1, ::1",
        ];
        for slip in slips {
            assert_eq!(Sources::parse(slip), None, "{slip}");
        }
    }

    #[test]
    fn a_time_is_read_as_sshd_reads_it() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(parse_expiry("19700102Z"), at(86400));
        assert_eq!(parse_expiry("197001010130Z"), at(5400));
        assert_eq!(parse_expiry("19700101013001z"), at(5401));
        assert_eq!(parse_expiry("20270101"), {
            let local = DateTime::constant(2027, 1, 1, 0, 0, 0, 0);
            Some(local.to_zoned(TimeZone::system()).unwrap().timestamp().into())
        });
        for slip in ["", "2027", "20271301", "202701011", "20270101240000", "+0270101", "tomorrow"]
        {
            assert_eq!(parse_expiry(slip), None, "{slip}");
        }
    }
}
