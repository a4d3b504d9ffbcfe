//! The users of a server: reads their file, and checks the credentials of clients.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longhaul_engine::session::{secret_text, trusted_text};
use ring::digest::{SHA256, digest};
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::pkcs8::DecodePrivateKey;
use rsa::traits::PublicKeyParts;
use rsa::{Oaep, Pkcs1v15Encrypt, RsaPrivateKey};

use super::auth::Padding;
use crate::error::{InteropError, Result};

/// The longest private key and the longest file of users.
const KEY_LIMIT: usize = 64 << 10;
const USERS_LIMIT: usize = 4 << 20;
/// The largest key in bytes: decryption takes time with the cube of the length.
const LARGEST_KEY: usize = 1024;
/// A check takes this long, so that a client cannot conclude from the time how far decryption got
/// (RUSTSEC-2023-0071). Decryption with a key of 4096 bits takes about 20 ms.
const CHECK_TIME: Duration = Duration::from_millis(250);

/// The tolerance of iperf3 between the clocks of client and server.
pub const DEFAULT_SKEW: Duration = Duration::from_secs(10);

/// The users of a server, their passwords' digests, and the server's private key.
pub struct Users {
    key: RsaPrivateKey,
    padding: Padding,
    skew: Duration,
    /// SHA-256 of `{user}password` in lower-case hexadecimal, by user.
    digests: HashMap<String, String>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key.
        f.debug_struct("Users").field("count", &self.digests.len()).finish_non_exhaustive()
    }
}

impl Users {
    /// Reads the private key in the PEM file `key`, which only its owner may read, and the file
    /// `users`: a line `USER,DIGEST` per user, where DIGEST is SHA-256 of `{USER}PASSWORD`. Lines that
    /// begin with `#` are comments. A client's clock may differ by `skew`.
    ///
    /// # Errors
    /// A file cannot be read, is too large or has other contents, others can read the key, or other
    /// users can change one of the files.
    pub fn read(key: &Path, users: &Path, padding: Padding, skew: Duration) -> Result<Self> {
        let failed = |path: &Path| {
            let path = PathBuf::from(path);
            move |source| InteropError::UserFile { path, source }
        };
        let private = parse_private(&secret_text(key)?).map_err(failed(key))?;
        let digests = parse_users(&trusted_text(users)?).map_err(failed(users))?;
        Ok(Users { key: private, padding, skew, digests })
    }

    /// Returns the name of the user whose credentials `token` has at the time `now`. Takes
    /// [`CHECK_TIME`]. The reason of a denial is for the log of the server: the client must not
    /// learn it.
    ///
    /// # Errors
    /// There are no credentials, or they are not those of a user.
    pub(super) fn check(
        &self,
        token: Option<&str>,
        now: SystemTime,
    ) -> std::result::Result<String, Denial> {
        let start = Instant::now();
        let user = token.ok_or(Denial::Missing).and_then(|token| self.user(token, now));
        thread::sleep(CHECK_TIME.saturating_sub(start.elapsed()));
        user
    }

    fn user(&self, token: &str, now: SystemTime) -> std::result::Result<String, Denial> {
        let plain = self.decrypt(token).ok_or(Denial::Undecryptable(self.padding))?;
        self.named(&plain, now).ok_or(Denial::Unknown)
    }

    fn decrypt(&self, token: &str) -> Option<String> {
        // OpenSSL breaks base 64 into lines.
        let token: String = token.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let encrypted = STANDARD.decode(token).ok().filter(|e| e.len() <= LARGEST_KEY)?;
        let mut random = rsa::rand_core::OsRng;
        let plain = match self.padding {
            Padding::Oaep => {
                self.key.decrypt_blinded(&mut random, Oaep::new::<sha1::Sha1>(), &encrypted)
            }
            Padding::Pkcs1 => self.key.decrypt_blinded(&mut random, Pkcs1v15Encrypt, &encrypted),
        };
        String::from_utf8(plain.ok()?).ok()
    }

    fn named(&self, plain: &str, now: SystemTime) -> Option<String> {
        let (user, rest) = plain.strip_prefix("user: ")?.split_once("\npwd:  ")?;
        let (password, time) = rest.rsplit_once("\nts:   ")?;
        // Anyone with the public key can write any number here.
        let seconds = Duration::from_secs(time.trim_end_matches('\0').parse().ok()?);
        let time = UNIX_EPOCH.checked_add(seconds)?;
        let difference = now.duration_since(time).unwrap_or_else(|earlier| earlier.duration());
        let known = self.digests.get(user)?;
        let found = digest_of(user, password);
        let unequal = known.bytes().zip(found.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        (unequal == 0 && difference <= self.skew).then(|| user.to_owned())
    }
}

/// The reason why the credentials of a client do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denial {
    /// The client sent none.
    #[error("the client sent no user name and password (--username and --rsa-public-key-path)")]
    Missing,
    /// The private key does not decrypt them with this padding.
    #[error("the credentials cannot be decrypted: the client has a different public key{}", padding_hint(*.0))]
    Undecryptable(Padding),
    /// They are of no user, or of a different time.
    #[error("the user name or the password is wrong, or the clocks differ")]
    Unknown,
}

/// Returns the versions of iperf3 whose padding is not `expected`, with the remedy.
fn padding_hint(expected: Padding) -> &'static str {
    match expected {
        Padding::Oaep => {
            ", or is an iperf3 before 3.17, for which this server needs --use-pkcs1-padding"
        }
        Padding::Pkcs1 => {
            ", or is an iperf3 3.17 or later without --use-pkcs1-padding, which this server has"
        }
    }
}

/// Returns SHA-256 of `{user}password` in hexadecimal.
fn digest_of(user: &str, password: &str) -> String {
    let digest = digest(&SHA256, format!("{{{user}}}{password}").as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}

fn within(text: &str, limit: usize) -> io::Result<&str> {
    if text.len() > limit { Err(invalid("the file is too large")) } else { Ok(text) }
}

fn parse_private(text: &str) -> io::Result<RsaPrivateKey> {
    let text = within(text, KEY_LIMIT)?;
    let parsed = RsaPrivateKey::from_pkcs8_pem(text).ok();
    let key = parsed.or_else(|| RsaPrivateKey::from_pkcs1_pem(text).ok());
    let key =
        key.ok_or_else(|| invalid("no RSA private key in PEM format without a passphrase"))?;
    if key.size() > LARGEST_KEY { Err(invalid("the key is too long")) } else { Ok(key) }
}

fn parse_users(text: &str) -> io::Result<HashMap<String, String>> {
    let lines = within(text, USERS_LIMIT)?
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let user = |line: &str| {
        let (user, digest) = line.split_once(',')?;
        let (user, digest) = (user.trim(), digest.trim().to_ascii_lowercase());
        let hexadecimal = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        (hexadecimal && !user.is_empty()).then(|| (user.to_owned(), digest))
    };
    lines
        .map(|line| user(line).ok_or_else(|| invalid("a line is not USER,SHA256 in hexadecimal")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rsa::RsaPublicKey;
    use rsa::pkcs8::{DecodePublicKey, EncodePrivateKey, EncodePublicKey, LineEnding};

    use super::*;
    use crate::iperf3::Credentials;

    /// The files of a server with the user mario.
    struct Files {
        directory: PathBuf,
    }

    impl Files {
        fn new(name: &str) -> Self {
            let name = format!("longhaul-users-{}-{name}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            fs::create_dir_all(&directory).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
            let private = RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 1024).unwrap();
            let files = Files { directory };
            let public = private.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
            fs::write(files.path("public.pem"), public).unwrap();
            let pem = private.to_pkcs8_pem(LineEnding::LF).unwrap();
            fs::write(files.path("private.pem"), pem.as_bytes()).unwrap();
            files.protect(0o600);
            let digest = digest_of("mario", "rossi");
            fs::write(files.path("users"), format!("# users\nmario,{digest}\n")).unwrap();
            fs::set_permissions(files.path("users"), fs::Permissions::from_mode(0o644)).unwrap();
            files
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.join(name)
        }

        fn protect(&self, mode: u32) {
            fs::set_permissions(self.path("private.pem"), fs::Permissions::from_mode(mode))
                .unwrap();
        }

        fn users(&self, padding: Padding) -> Result<Users> {
            Users::read(&self.path("private.pem"), &self.path("users"), padding, DEFAULT_SKEW)
        }

        fn token(&self, user: &str, password: &str, padding: Padding) -> String {
            let key = self.path("public.pem");
            Credentials::new(user, password, &key, padding).unwrap().token().unwrap()
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn only_the_password_of_the_user_within_the_tolerance_counts() {
        let files = Files::new("check");
        for padding in [Padding::Oaep, Padding::Pkcs1] {
            let users = files.users(padding).unwrap();
            let now = SystemTime::now();
            let good = files.token("mario", "rossi", padding);
            assert_eq!(users.check(Some(&good), now).as_deref(), Ok("mario"));
            assert_eq!(users.check(None, now), Err(Denial::Missing));
            let late = now + Duration::from_secs(60);
            let unknown = Err(Denial::Unknown);
            assert_eq!(users.user(&good, late), unknown);
            assert_eq!(users.user(&files.token("mario", "wrong", padding), now), unknown);
            assert_eq!(users.user(&files.token("luigi", "rossi", padding), now), unknown);
            let undecryptable = Denial::Undecryptable(padding);
            for invalid in ["", "no base 64!", "AAAA"] {
                assert_eq!(users.user(invalid, now), Err(undecryptable));
            }
            // A client of another version.
            let other = if padding == Padding::Oaep { Padding::Pkcs1 } else { Padding::Oaep };
            let found = users.user(&files.token("mario", "rossi", other), now);
            assert_eq!(found, Err(undecryptable));
            assert!(undecryptable.to_string().contains("--use-pkcs1-padding"));
        }
    }

    #[test]
    fn a_time_beyond_every_clock_is_refused() {
        let files = Files::new("time");
        let users = files.users(Padding::Pkcs1).unwrap();
        let key = fs::read_to_string(files.path("public.pem")).unwrap();
        let key = RsaPublicKey::from_public_key_pem(&key).unwrap();
        for time in [u64::MAX, i64::MAX as u64 + 1, 0] {
            let plain = format!("user: mario\npwd:  rossi\nts:   {time}");
            let mut random = rsa::rand_core::OsRng;
            let encrypted = key.encrypt(&mut random, Pkcs1v15Encrypt, plain.as_bytes()).unwrap();
            let found = users.user(&STANDARD.encode(encrypted), SystemTime::now());
            assert_eq!(found, Err(Denial::Unknown), "{time}");
        }
    }

    #[test]
    fn a_list_of_users_that_others_can_change_is_refused() {
        let files = Files::new("writable");
        for (name, mode) in [("users", 0o666), ("users", 0o620), ("", 0o777)] {
            let path = files.path(name);
            let before = fs::metadata(&path).unwrap().permissions();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(files.users(Padding::Oaep).is_err(), "{name} {mode:o}");
            fs::set_permissions(&path, before).unwrap();
        }
        files.users(Padding::Oaep).unwrap();
    }

    #[test]
    fn files_with_other_contents_or_readers_are_refused() {
        let files = Files::new("files");
        files.protect(0o644);
        assert!(files.users(Padding::Oaep).unwrap_err().to_string().contains("private.pem"));
        files.protect(0o600);
        for text in ["mario", "mario,12", ",".repeat(70).as_str()] {
            fs::write(files.path("users"), text).unwrap();
            assert!(files.users(Padding::Oaep).is_err(), "{text}");
        }
    }
}
