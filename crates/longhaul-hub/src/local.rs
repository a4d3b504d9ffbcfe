//! The login on the host of a hub: a file in the directory of the hub that only its user can read.
//!
//! A user who can read this file can also read the database and set passwords, so the login gives no new rights. The hub
//! keeps the hash of the token in memory: the token is valid until the hub ends.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use longhaul_fleet::api::{LOCAL_LOGIN_FILE, LocalLogin};

use crate::config::HubError;
use crate::private_file;

/// The name that the hub records for changes made with this login. No user can have it, because it has a space.
pub(crate) const LOCAL_USER: &str = "hub (local)";

/// Replaces the login of an earlier start by `login`.
pub(crate) fn write(data: &Path, login: &LocalLogin) -> Result<(), HubError> {
    let path = data.join(LOCAL_LOGIN_FILE);
    // After a failure, an old login must not look valid.
    let _ = fs::remove_file(&path);
    let text = serde_json::to_vec(login).unwrap_or_default();
    private_file::replace(&path, &text)
}

/// Returns the URL at which this host reaches a hub that listens on `address`.
pub(crate) fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        // The wildcard of IPv6 also accepts IPv4, and a host can lack addresses of IPv6.
        ip if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_user_of_the_hub_can_read_the_login_and_a_later_start_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        let login = |token: &str| LocalLogin {
            hub: "https://127.0.0.1:5280".to_owned(),
            pin: "p".to_owned(),
            token: token.to_owned(),
        };
        write(dir.path(), &login("first")).unwrap();
        write(dir.path(), &login("second")).unwrap();
        let path = dir.path().join(LOCAL_LOGIN_FILE);
        let found: LocalLogin = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert!(found == login("second"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_wildcard_is_reached_over_loopback() {
        for (address, expected) in [
            ("[::]:5280", "https://127.0.0.1:5280"),
            ("0.0.0.0:1", "https://127.0.0.1:1"),
            ("192.0.2.1:5280", "https://192.0.2.1:5280"),
            ("[fd00::1]:5280", "https://[fd00::1]:5280"),
        ] {
            assert_eq!(url(address.parse().unwrap()), expected);
        }
    }
}
