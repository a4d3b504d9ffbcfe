//! Compares a copy on another host with its source: the same script lists each end with the size
//! and the SHA-256 digest of every file.
//!
//! The comparison finds the same differences as [`compare`](super::compare) on one host, except for
//! the position of the first differing byte. Names that are not UTF-8 are read with replacement
//! characters, the same at both ends.

use std::collections::BTreeMap;
use std::path::Path;

use longhaul_core::text::shell_quoted;

/// The contents of a file or directory by relative path; the root has an empty path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Listing {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Directory,
    File {
        bytes: u64,
        /// The digest in hexadecimal; empty until it has been parsed.
        digest: String,
    },
    /// A link or device. Each tool documents its treatment of them.
    Other,
}

/// Returns a sh(1) script, with GNU find and sha256sum, that lists `root`. It prints nothing if
/// `root` does not exist. NUL separates all fields, because names may contain any other byte.
pub(super) fn script(root: &str) -> String {
    let root = shell_quoted(root);
    format!(
        "LC_ALL=C; export LC_ALL\n[ -e {root} ] || exit 0\n\
         find {root} -printf '%y %s %P\\0' && printf '\\0' &&\n\
         find {root} -type f -exec sha256sum -z {{}} +\n"
    )
}

impl Listing {
    /// Parses the output of [`script`] for `root`.
    ///
    /// # Errors
    /// The first invalid line.
    pub(super) fn parse(text: &str, root: &str) -> Result<Self, String> {
        let strange = |what: &str| format!("invalid line in a listing: '{}'", what.trim());
        let mut entries = BTreeMap::new();
        let mut records = text.split('\0');
        for record in records.by_ref().take_while(|record| !record.is_empty()) {
            let mut words = record.splitn(3, ' ');
            let (Some(kind), Some(bytes), Some(name)) = (words.next(), words.next(), words.next())
            else {
                return Err(strange(record));
            };
            let entry = match kind {
                "d" => Entry::Directory,
                "f" => {
                    let bytes = bytes.parse().map_err(|_| strange(record))?;
                    Entry::File { bytes, digest: String::new() }
                }
                _ => Entry::Other,
            };
            entries.insert(name.to_owned(), entry);
        }
        for record in records.filter(|record| !record.is_empty()) {
            // A record is 64 digits, a blank, a blank or asterisk, and the name (sha256sum(1)).
            let (sum, path) = record.split_once(' ').ok_or_else(|| strange(record))?;
            let path = path.get(1..).and_then(|path| path.strip_prefix(root));
            let name = path.map(|path| path.strip_prefix('/').unwrap_or(path));
            match name.and_then(|name| entries.get_mut(name)) {
                Some(Entry::File { digest, .. }) if sum.len() == 64 => *digest = sum.to_owned(),
                _ => return Err(strange(record)),
            }
        }
        let unread =
            |entry: &Entry| matches!(entry, Entry::File { digest, .. } if digest.is_empty());
        match entries.iter().find(|(_, entry)| unread(entry)) {
            Some((name, _)) => Err(format!("a listing lacks the digest of '{name}'")),
            None => Ok(Listing { entries }),
        }
    }

    /// Describes the first difference between a copy and `self`, the listing of `source`; `None` if
    /// they are equal.
    pub(super) fn difference(&self, copy: &Listing, source: &Path) -> Option<String> {
        let missing = self.entries.iter().find_map(|(name, expected)| {
            let path = if name.is_empty() { source.to_owned() } else { source.join(name) };
            let path = path.display();
            match (expected, copy.entries.get(name)) {
                (_, None) => Some(format!("{path} was not copied")),
                (Entry::Directory, Some(Entry::Directory)) | (Entry::Other, Some(_)) => None,
                (Entry::Directory, Some(_)) => {
                    Some(format!("the copy of {path} is not a directory"))
                }
                (
                    Entry::File { bytes, digest },
                    Some(Entry::File { bytes: has, digest: found }),
                ) => {
                    if has == bytes {
                        (digest != found)
                            .then(|| format!("the copy of {path} has different bytes (SHA-256)"))
                    } else {
                        Some(format!("the copy of {path} has {has} bytes instead of {bytes}"))
                    }
                }
                (Entry::File { .. }, Some(_)) => Some(format!("the copy of {path} is not a file")),
            }
        });
        missing.or_else(|| {
            let mut names = copy.entries.keys();
            let stray = names.find(|name| !self.explains(name))?;
            Some(format!("the copy has an extra {stray}"))
        })
    }

    /// Returns whether the source has this entry, or has a link in its path that a tool may have
    /// followed.
    fn explains(&self, name: &str) -> bool {
        let above = name.match_indices('/').map(|(at, _)| &name[..at]);
        let is_link = |above: &str| self.entries.get(above) == Some(&Entry::Other);
        self.entries.contains_key(name) || above.into_iter().any(is_link)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::super::script::run_script;
    use super::*;

    fn list(root: &Path) -> Listing {
        let root = root.to_str().unwrap();
        let text = run_script(Command::new("sh"), &script(root), &|| false).unwrap();
        Listing::parse(&text, root).unwrap()
    }

    #[test]
    fn every_way_to_differ_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (source, copy) = (dir.path().join("it's a"), dir.path().join("b"));
        // A name may contain any characters.
        let odd = "in/odd \n -name'\\\"$(x)*";
        fs::create_dir_all(source.join("in/empty")).unwrap();
        fs::write(source.join(odd), [7; 3000]).unwrap();
        fs::write(source.join("nothing"), []).unwrap();
        let differs = |expected: &str| {
            let said = list(&source).difference(&list(&copy), &source);
            assert!(said.as_deref().unwrap_or("").contains(expected), "{said:?}");
        };
        differs("it's a was not copied");
        fs::create_dir_all(copy.join("in/empty")).unwrap();
        differs("in/odd");
        fs::write(copy.join(odd), [7; 2999]).unwrap();
        differs("has 2999 bytes instead of 3000");
        fs::write(copy.join(odd), [8; 3000]).unwrap();
        differs("has different bytes (SHA-256)");
        fs::write(copy.join(odd), [7; 3000]).unwrap();
        differs("nothing was not copied");
        fs::create_dir(copy.join("nothing")).unwrap();
        differs("nothing is not a file");
        fs::remove_dir(copy.join("nothing")).unwrap();
        fs::write(copy.join("nothing"), []).unwrap();
        assert_eq!(list(&source).difference(&list(&copy), &source), None);
        fs::remove_dir(copy.join("in/empty")).unwrap();
        fs::write(copy.join("in/empty"), []).unwrap();
        differs("in/empty is not a directory");
        fs::remove_file(copy.join("in/empty")).unwrap();
        fs::create_dir(copy.join("in/empty")).unwrap();
        fs::write(copy.join("in/other"), []).unwrap();
        differs("extra in/other");
    }

    #[test]
    fn a_single_file_is_a_listing_of_one() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::write(&one, b"same").unwrap();
        fs::write(&two, b"same").unwrap();
        assert_eq!(list(&one).difference(&list(&two), &one), None);
        fs::write(&two, b"sane").unwrap();
        let said = list(&one).difference(&list(&two), &one).unwrap();
        assert!(said.contains("/one has different bytes"), "{said}");
    }

    #[test]
    fn a_link_may_be_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (source, copy) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir_all(source.join("real")).unwrap();
        std::os::unix::fs::symlink("real", source.join("link")).unwrap();
        fs::write(source.join("real/file"), b"x").unwrap();
        for name in ["real", "link"] {
            fs::create_dir_all(copy.join(name)).unwrap();
            fs::write(copy.join(name).join("file"), b"x").unwrap();
        }
        assert_eq!(list(&source).difference(&list(&copy), &source), None);
    }

    #[test]
    fn malformed_listings_are_refused() {
        let sum = "0".repeat(64);
        for text in ["d 4096", "f many a\0", "f 1 \0\0", &format!("f 1 \0\0{sum}  /other\0")] {
            assert!(Listing::parse(text, "/data").is_err(), "{text:?}");
        }
        assert_eq!(Listing::parse("", "/data"), Ok(Listing::default()));
    }
}
