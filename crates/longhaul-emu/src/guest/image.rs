//! The files from which guests boot.

use std::env;
use std::path::{Path, PathBuf};

use super::fault::GuestFault;

/// The image of guests: a directory that `packaging/guest-image` fills.
#[derive(Debug, Clone)]
pub(super) struct Image {
    directory: PathBuf,
}

impl Image {
    /// The files that every guest needs.
    const FILES: [&str; 6] = ["kernel", "initramfs", "root", "key", "known_hosts", Self::SESSION];

    /// The directory for the socket of ssh, empty except inside of a site.
    const SESSION: &str = "session";

    /// Finds the image of this user.
    ///
    /// # Errors
    /// A file is missing.
    pub(super) fn find() -> Result<Image, GuestFault> {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let directory = set("LONGHAUL_GUEST_IMAGE").map(PathBuf::from).or_else(|| {
            let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
            let cache = cache.or_else(|| Some(Path::new(&set("HOME")?).join(".cache")));
            cache.map(|cache| cache.join("longhaul/guest"))
        });
        Self::in_directory(directory.ok_or(GuestFault::Home)?)
    }

    /// Returns the image in a directory.
    fn in_directory(directory: PathBuf) -> Result<Image, GuestFault> {
        let image = Image { directory };
        for name in Self::FILES {
            let path = image.file(name);
            if !path.exists() {
                return Err(GuestFault::Image { path });
            }
        }
        Ok(image)
    }

    /// Returns the directory for the socket of ssh.
    pub(super) fn session(&self) -> PathBuf {
        self.file(Self::SESSION)
    }

    /// Returns the path of a file of the image.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Returns the directory for the socket of ssh.
///
/// # Errors
/// The image is missing.
pub(crate) fn session() -> Result<PathBuf, GuestFault> {
    Ok(Image::find()?.session())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named_with_the_script_that_makes_it() {
        let nowhere = PathBuf::from("/nonexistent/guest");
        let error = Image::in_directory(nowhere).unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/guest/kernel is missing; create"), "{error}");
        assert!(error.contains("packaging/guest-image"), "{error}");
    }
}
