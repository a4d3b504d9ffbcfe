//! The certificate of the hub: the operator's, or a self-signed one whose key agents pin.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_fleet::protocol::key_pin;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::HubError;
use crate::private_file;

/// The name of the file with the self-signed certificate and its key.
const FILE: &str = "hub.pem";

/// The certificate of a running hub.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    /// The configuration of connections.
    pub(crate) server: Arc<ServerConfig>,
    /// The pin of the key, see [`key_pin`].
    pub(crate) pin: String,
}

/// Loads the operator's certificate, or the self-signed one in `data`, which is created if it is
/// missing.
///
/// # Errors
/// A file is inaccessible, invalid, or readable by others.
pub(crate) fn load(data: &Path, operators: Option<&(PathBuf, PathBuf)>) -> Result<Tls, HubError> {
    match operators {
        Some((chain, key)) => configure(&read(chain)?, &read_key(key)?, chain),
        None => {
            let path = data.join(FILE);
            if !path.exists() {
                make(&path)?;
            }
            check_private(&path)?;
            let text = read(&path)?;
            configure(&text, &text, &path)
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, HubError> {
    fs::read(path).map_err(HubError::file("read", path))
}

/// Reads the operator's key. It belongs to root or this user, its group may read it, and nobody else
/// can access it.
fn read_key(path: &Path) -> Result<Vec<u8>, HubError> {
    let mut file = fs::File::open(path).map_err(HubError::file("open", path))?;
    let found = file.metadata().map_err(HubError::file("examine", path))?;
    let owner = found.uid();
    let owned = owner == 0 || owner == rustix::process::geteuid().as_raw();
    if !owned || found.mode() & 0o027 != 0 {
        return Err(HubError::Exposed { path: path.to_owned(), mode: found.mode() & 0o7777 });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(HubError::file("read", path))?;
    Ok(bytes)
}

/// Refuses a private file that belongs to another user or that others can access.
pub(crate) fn check_private(path: &Path) -> Result<(), HubError> {
    let found = fs::symlink_metadata(path).map_err(HubError::file("examine", path))?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if !own || found.mode() & 0o077 != 0 {
        return Err(HubError::Exposed { path: path.to_owned(), mode: found.mode() & 0o7777 });
    }
    Ok(())
}

/// Refuses a directory in which another user could put files: SQLite reads a log beside the database.
pub(crate) fn check_directory(path: &Path) -> Result<(), HubError> {
    let found = fs::metadata(path).map_err(HubError::file("examine", path))?;
    let owned = found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw();
    if !owned || found.mode() & 0o022 != 0 {
        return Err(HubError::OpenDirectory { path: path.to_owned(), mode: found.mode() & 0o7777 });
    }
    Ok(())
}

fn configure(chain: &[u8], key: &[u8], path: &Path) -> Result<Tls, HubError> {
    let invalid = || HubError::Certificate { path: path.to_owned() };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|_| invalid())?;
    let first = chain.first().ok_or_else(invalid)?;
    let spki = webpki::EndEntityCert::try_from(first).map_err(|_| invalid())?;
    let pin = key_pin(&spki.subject_public_key_info());
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| invalid())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| invalid())?
        .with_no_client_auth()
        .with_single_cert(chain.clone(), key)
        .map_err(|_| invalid())?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Tls { server: Arc::new(server), pin })
}

/// Makes a certificate for this host's name, valid for ten years; agents check its key only.
fn make(path: &Path) -> Result<(), HubError> {
    let invalid = |_| HubError::Certificate { path: path.to_owned() };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let names = [host, "localhost".to_owned()].into_iter().filter(|name| name.is_ascii());
    let mut params = rcgen::CertificateParams::new(names.collect::<Vec<_>>()).map_err(invalid)?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "longhaul hub");
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let (year, month, day) = (today.year(), today.month(), today.day());
    let month = u8::try_from(month).unwrap_or(1);
    let day = u8::try_from(day).unwrap_or(1).min(28);
    params.not_before = rcgen::date_time_ymd(i32::from(year) - 1, month, day);
    params.not_after = rcgen::date_time_ymd(i32::from(year) + 10, month, day);
    let key = rcgen::KeyPair::generate().map_err(invalid)?;
    let certificate = params.self_signed(&key).map_err(invalid)?;
    let text = format!("{}{}", certificate.pem(), key.serialize_pem());
    // Another hub that uses the same directory may have been first; its certificate is kept.
    private_file::create(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_must_stay_private() {
        let dir = tempfile::tempdir().unwrap();
        let first = load(dir.path(), None).unwrap();
        assert_eq!(load(dir.path(), None).unwrap().pin, first.pin);
        let path = dir.path().join(FILE);
        let operators = (path.clone(), path.clone());
        assert_eq!(load(dir.path(), Some(&operators)).unwrap().pin, first.pin);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(load(dir.path(), None), Err(HubError::Exposed { mode: 0o644, .. })));
        assert!(matches!(load(dir.path(), Some(&operators)), Err(HubError::Exposed { .. })));
        // A group, such as that of Debian's keys, may read the operator's key.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(load(dir.path(), Some(&operators)).unwrap().pin, first.pin);
        assert!(matches!(load(dir.path(), None), Err(HubError::Exposed { mode: 0o640, .. })));
        fs::write(&path, "x").unwrap();
        assert!(matches!(load(dir.path(), Some(&operators)), Err(HubError::Certificate { .. })));
    }

    #[test]
    fn others_must_not_put_files_into_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, good) in [(0o700, true), (0o755, true), (0o775, false), (0o1777, false)] {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_directory(dir.path()).is_ok(), good, "{mode:o}");
        }
    }
}
