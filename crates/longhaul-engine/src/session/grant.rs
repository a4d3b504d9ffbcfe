//! The rights of a key, from its options in `authorized_keys`.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::SystemTime;

use longhaul_core::units::{Bytes, Rate};

use super::conditions::{Sources, parse_expiry};
use super::key_rate::LEAST_BPS;

/// The permitted operations on files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rights {
    /// Read and write.
    #[default]
    Full,
    /// Only read.
    ReadOnly,
    /// Only create new files, without reading, listing, replacing or deleting: a drop box.
    WriteOnly,
}

impl Rights {
    /// Returns whether files may be read and listed.
    pub fn may_read(self) -> bool {
        self != Rights::WriteOnly
    }

    /// Returns whether new files may be created.
    pub fn may_create(self) -> bool {
        self != Rights::ReadOnly
    }

    /// Returns whether existing files may be replaced, changed or deleted.
    pub fn may_replace(self) -> bool {
        self == Rights::Full
    }

    /// Returns the operations that both permit; `None` if there are none.
    pub fn and(self, other: Rights) -> Option<Rights> {
        match (self, other) {
            (Rights::Full, rights) | (rights, Rights::Full) => Some(rights),
            (one, other) => (one == other).then_some(one),
        }
    }
}

/// The rights of a key, from its options in `authorized_keys`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// The directory of its files instead of the server's.
    pub root: Option<PathBuf>,
    /// The permitted operations, within those of the server.
    pub rights: Rights,
    /// True if it may not make this server send to others.
    pub no_third_party: bool,
    /// True if it may set owners, device nodes and set-id bits at a server that runs as root.
    pub owners: bool,
    /// The comment after the key, for the log.
    pub comment: Option<String>,
    /// The maximum number of sessions at once, including waiting ones.
    pub max_sessions: Option<NonZeroU32>,
    /// The rate of all its tests and copies together, per direction.
    pub max_rate: Option<Rate>,
    /// The bytes that the files below its `root` may occupy.
    pub quota: Option<Bytes>,
    pub(super) sources: Option<Sources>,
    pub(super) expires: Option<SystemTime>,
}

/// The reason why a listed key is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLapse {
    /// Its line was removed.
    Removed,
    /// Its `expiry-time` is over.
    Expired,
    /// `from` does not list the client's address.
    Address,
}

impl fmt::Display for KeyLapse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyLapse::Removed => "its key was removed from the list of authorized keys",
            KeyLapse::Expired => "its key has expired",
            KeyLapse::Address => "its key may not be used from its address",
        })
    }
}

/// A fault of an option of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionFault {
    /// There is no such option.
    Unknown,
    /// The value of the option is missing or invalid.
    Value,
    /// The option was given before.
    Repeated,
    /// Together with an earlier option, it permits nothing.
    Conflict,
    /// It has no closing quote.
    Unterminated,
    /// The option `quota` needs `root` in the same line.
    NoRoot,
    /// A space is outside of quotes, so that the text before the key is not one list of options.
    Space,
}

/// An invalid option: its text and its fault.
pub(super) type BadOption = (String, OptionFault);

impl Grant {
    /// Returns the reason to refuse a client at `address` now; `None` to admit it.
    pub(super) fn lapse(&self, address: IpAddr, now: SystemTime) -> Option<KeyLapse> {
        if self.expires.is_some_and(|end| now >= end) {
            return Some(KeyLapse::Expired);
        }
        let elsewhere = self.sources.as_ref().is_some_and(|sources| !sources.contains(address));
        elsewhere.then_some(KeyLapse::Address)
    }

    /// Parses the options before a key, which may be empty.
    pub(super) fn from_options_or_none(text: &str) -> Result<Self, BadOption> {
        if text.is_empty() { Ok(Grant::default()) } else { Grant::from_options(text) }
    }

    /// Parses the options before a key, separated by commas. A value with a comma or a space is in
    /// double quotes; a quote within it is `\"`.
    ///
    /// # Errors
    /// The first invalid option, so that a mistake never grants more than was intended.
    fn from_options(text: &str) -> Result<Self, BadOption> {
        let mut grant = Grant::default();
        for option in split(text) {
            let option = option.ok_or_else(|| (text.to_owned(), OptionFault::Unterminated))?;
            let taken = match option.split_once('=') {
                Some((name, value)) => grant.set(name, value),
                None => grant.flag(&option),
            };
            taken.map_err(|fault| (option, fault))?;
        }
        if grant.quota.is_some() && grant.root.is_none() {
            return Err(("quota".to_owned(), OptionFault::NoRoot));
        }
        Ok(grant)
    }

    /// Sets an option without a value.
    fn flag(&mut self, name: &str) -> Result<(), OptionFault> {
        match name {
            "read-only" => self.limit(Rights::ReadOnly)?,
            "write-only" => self.limit(Rights::WriteOnly)?,
            "no-third-party" => self.no_third_party = true,
            "owners" => self.owners = true,
            "root" | "from" | "expiry-time" | "max-rate" | "quota" | "max-sessions" => {
                return Err(OptionFault::Value);
            }
            _ => return Err(OptionFault::Unknown),
        }
        Ok(())
    }

    fn limit(&mut self, rights: Rights) -> Result<(), OptionFault> {
        self.rights = self.rights.and(rights).ok_or(OptionFault::Conflict)?;
        Ok(())
    }

    /// Sets an option with a value.
    fn set(&mut self, name: &str, value: &str) -> Result<(), OptionFault> {
        match name {
            "root" => once(&mut self.root, value.starts_with('/').then(|| value.into())),
            "from" => once(&mut self.sources, Sources::parse(value)),
            "expiry-time" => once(&mut self.expires, parse_expiry(value)),
            "max-rate" => once(&mut self.max_rate, parse_rate(value)),
            "quota" => once(&mut self.quota, parse_quota(value)),
            "max-sessions" => once(&mut self.max_sessions, value.parse().ok()),
            _ => Err(OptionFault::Unknown),
        }
    }
}

/// Parses a size above zero.
fn parse_quota(text: &str) -> Option<Bytes> {
    text.parse().ok().filter(|bytes: &Bytes| bytes.get() > 0)
}

/// Parses a rate that is high enough for the time limits of a copy.
fn parse_rate(text: &str) -> Option<Rate> {
    text.parse().ok().filter(|rate: &Rate| rate.bps() >= LEAST_BPS)
}

/// Puts `value` into an empty `place`.
fn once<T>(place: &mut Option<T>, value: Option<T>) -> Result<(), OptionFault> {
    if place.is_some() {
        return Err(OptionFault::Repeated);
    }
    *place = Some(value.ok_or(OptionFault::Value)?);
    Ok(())
}

/// Splits a line into its options and the rest, at the first space outside of quotes.
pub(super) fn split_options(line: &str) -> (&str, &str) {
    let mut quotes = Quotes::default();
    let end = line.find(|c: char| !quotes.pass(c) && c.is_ascii_whitespace());
    let (options, rest) = line.split_at(end.unwrap_or(line.len()));
    (options, rest.trim_start())
}

/// Follows double quotes through a text.
#[derive(Default)]
struct Quotes {
    open: bool,
    escaped: bool,
}

impl Quotes {
    /// Passes `c`; true when it stands within quotes.
    fn pass(&mut self, c: char) -> bool {
        let escaped = std::mem::take(&mut self.escaped);
        match c {
            '"' if !escaped => self.open = !self.open,
            '\\' if self.open => self.escaped = true,
            _ => {}
        }
        self.open
    }
}

/// Returns the parts between commas, without their quotes; `None` for a part with an unterminated
/// quote.
fn split(text: &str) -> Vec<Option<String>> {
    let mut parts = vec![Some(String::new())];
    let mut quotes = Quotes::default();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = quotes.escaped;
        let within = quotes.pass(c);
        match c {
            '"' if !escaped => {}
            '\\' if within && chars.peek() == Some(&'"') => {}
            ',' if !within => parts.push(Some(String::new())),
            c => parts.last_mut().into_iter().flatten().for_each(|part| part.push(c)),
        }
    }
    if quotes.open {
        parts.push(None);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_box_takes_and_does_not_give() {
        assert!(Rights::WriteOnly.may_create());
        assert!(!Rights::WriteOnly.may_read() && !Rights::WriteOnly.may_replace());
        assert!(Rights::ReadOnly.may_read() && !Rights::ReadOnly.may_create());
    }

    #[test]
    fn limits_add_up() {
        assert_eq!(Rights::Full.and(Rights::ReadOnly), Some(Rights::ReadOnly));
        assert_eq!(Rights::ReadOnly.and(Rights::ReadOnly), Some(Rights::ReadOnly));
        assert_eq!(Rights::ReadOnly.and(Rights::WriteOnly), None);
    }

    #[test]
    fn options_are_read_as_they_are_written() {
        let grant = Grant::from_options("root=\"/my, data\",read-only,no-third-party").unwrap();
        assert!(!grant.owners && Grant::from_options("owners").unwrap().owners);
        assert_eq!(grant.root, Some("/my, data".into()));
        assert_eq!(grant.rights, Rights::ReadOnly);
        assert!(grant.no_third_party && grant.quota.is_none());
        let limited = Grant::from_options("quota=10MiB,root=/a").unwrap();
        assert_eq!(limited.quota, Some(Bytes::mib(10)));
    }

    #[test]
    fn an_invalid_option_grants_nothing() {
        use OptionFault::{Conflict, NoRoot, Repeated, Unknown, Unterminated, Value};
        for (text, culprit, fault) in [
            ("readonly", "readonly", Unknown),
            ("read-only,write-only", "write-only", Conflict),
            ("root", "root", Value),
            ("root=relative", "root=relative", Value),
            ("root=/a,root=/b", "root=/b", Repeated),
            ("root=\"/a", "root=\"/a", Unterminated),
            ("read-only,", "", Unknown),
            ("read-only=yes", "read-only=yes", Unknown),
            ("max-sessions=0", "max-sessions=0", Value),
            ("max-sessions=1,max-sessions=2", "max-sessions=2", Repeated),
            ("from=\"10.0.0.0/8,all\"", "from=10.0.0.0/8,all", Value),
            ("expiry-time=soon", "expiry-time=soon", Value),
            ("expiry-time=\"2027\"", "expiry-time=2027", Value),
            ("max-rate=fast", "max-rate=fast", Value),
            ("max-rate=9M", "max-rate=9M", Value),
            ("root=/a,quota=much", "quota=much", Value),
            ("root=/a,quota=0", "quota=0", Value),
            ("root=/a,quota=1G,quota=2G", "quota=2G", Repeated),
            ("quota=1G,read-only", "quota", NoRoot),
        ] {
            assert_eq!(Grant::from_options(text), Err((culprit.to_owned(), fault)), "{text}");
        }
    }

    #[test]
    fn a_key_counts_from_its_networks_until_its_time() {
        let grant =
            Grant::from_options("from=\"10.0.0.0/8,!10.9.0.0/16\",expiry-time=\"20300101Z\"")
                .unwrap();
        let at = |text| parse_expiry(text).unwrap();
        let lapse = |address: &str, now| grant.lapse(address.parse().unwrap(), now);
        assert_eq!(lapse("10.1.1.1", at("20291231Z")), None);
        assert_eq!(lapse("10.9.1.1", at("20291231Z")), Some(KeyLapse::Address));
        assert_eq!(lapse("10.1.1.1", at("20300101Z")), Some(KeyLapse::Expired));
    }

    #[test]
    fn options_end_at_the_first_space_outside_of_quotes() {
        for (line, options, rest) in [
            ("root=\"/a b\",owners key c", "root=\"/a b\",owners", "key c"),
            (r#"root="/a \" b" key"#, r#"root="/a \" b""#, "key"),
            ("key", "key", ""),
        ] {
            assert_eq!(split_options(line), (options, rest), "{line}");
        }
        let quoted = Grant::from_options(r#"root="/a \" b\c""#).unwrap();
        assert_eq!(quoted.root, Some(r#"/a " b\c"#.into()));
    }
}
