use std::path::PathBuf;

/// What may be done with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rights {
    /// Read and write.
    #[default]
    Full,
    /// Read alone.
    ReadOnly,
    /// Put in new things, and neither read, list, replace nor delete: a drop box.
    WriteOnly,
}

impl Rights {
    /// Whether files may be read and their names listed.
    pub fn may_read(self) -> bool {
        self != Rights::WriteOnly
    }

    /// Whether new things may be made.
    pub fn may_create(self) -> bool {
        self != Rights::ReadOnly
    }

    /// Whether what is there may be replaced, changed or deleted.
    pub fn may_replace(self) -> bool {
        self == Rights::Full
    }

    /// What both allow; `None` if that is nothing.
    pub fn and(self, other: Rights) -> Option<Rights> {
        match (self, other) {
            (Rights::Full, rights) | (rights, Rights::Full) => Some(rights),
            (one, other) => (one == other).then_some(one),
        }
    }
}

/// What a key is allowed, as the options before it in `authorized_keys` say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// The directory whose files it reaches, instead of the server's.
    pub root: Option<PathBuf>,
    /// What it may do with them, within what the server allows.
    pub rights: Rights,
    /// It may not have this server send to others.
    pub no_third_party: bool,
    /// It may set owners, device nodes and set-id bits, where the server runs as root.
    pub owners: bool,
    /// The comment after the key, for the log.
    pub comment: Option<String>,
}

impl Grant {
    /// What nothing, or the options before a key, say.
    pub(super) fn from_options_or_none(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(Grant::default()) } else { Grant::from_options(text) }
    }

    /// Reads the options that stand before a key: `root=DIR`, `read-only`, `write-only`,
    /// `no-third-party` and `owners`, with commas between them. A value with a comma or a space is written in
    /// double quotes.
    ///
    /// # Errors
    /// The first option that is none, so that a slip never grants more than was meant.
    fn from_options(text: &str) -> Result<Self, String> {
        let mut grant = Grant::default();
        for option in split(text) {
            let option = option.ok_or_else(|| text.to_owned())?;
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option.as_str(), None),
            };
            let allowed = match (name, value) {
                ("root", Some(root)) if root.starts_with('/') && grant.root.is_none() => {
                    grant.root = Some(root.into());
                    continue;
                }
                ("read-only", None) => Rights::ReadOnly,
                ("write-only", None) => Rights::WriteOnly,
                ("no-third-party", None) => {
                    grant.no_third_party = true;
                    continue;
                }
                ("owners", None) => {
                    grant.owners = true;
                    continue;
                }
                _ => return Err(option),
            };
            // Both at once would leave nothing.
            grant.rights = grant.rights.and(allowed).ok_or(option)?;
        }
        Ok(grant)
    }
}

/// The parts between commas, without their quotes; `None` at a quote that does not end.
fn split(text: &str) -> Vec<Option<String>> {
    let mut parts = vec![Some(String::new())];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => parts.push(Some(String::new())),
            c => parts.last_mut().into_iter().flatten().for_each(|part| part.push(c)),
        }
    }
    if quoted {
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
        assert!(grant.no_third_party);
    }

    #[test]
    fn a_slip_grants_nothing() {
        for (text, culprit) in [
            ("readonly", "readonly"),
            ("read-only,write-only", "write-only"),
            ("root=relative", "root=relative"),
            ("root=/a,root=/b", "root=/b"),
            ("root=\"/a", "root=\"/a"),
            ("read-only,", ""),
            ("read-only=yes", "read-only=yes"),
        ] {
            assert_eq!(Grant::from_options(text), Err(culprit.to_owned()), "{text}");
        }
    }
}
