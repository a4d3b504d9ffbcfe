//! The reasons why a guest does not run.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// The reason why a guest does not run.
#[derive(Debug, thiserror::Error)]
pub enum GuestFault {
    /// A program of this host is missing.
    #[error("{program} is not installed; run: sudo apt install {package}")]
    Program {
        /// The name of the program.
        program: String,
        /// The Debian package.
        package: &'static str,
    },
    /// The emulator knows no virtual machine for the processors of this host.
    #[error("virtual machines need a host with x86-64 processors, and this one has {architecture}")]
    Architecture {
        /// The architecture of this host.
        architecture: &'static str,
    },
    /// A file of the image is missing.
    #[error(
        "{} is missing; create the image of guests with packaging/guest-image, or set \
         LONGHAUL_GUEST_IMAGE to its directory",
        .path.display()
    )]
    Image {
        /// The file.
        path: PathBuf,
    },
    /// No directory for the image is known.
    #[error("neither HOME nor LONGHAUL_GUEST_IMAGE is set; set one to find the image of guests")]
    Home,
    /// The process of a guest cannot be watched.
    #[error("cannot watch the process of QEMU")]
    Watch(#[source] io::Error),
    /// QEMU ended.
    #[error("QEMU ended; the console's last lines: {console}")]
    Ended {
        /// The last lines of the console.
        console: String,
    },
    /// ssh cannot start commands in the guest.
    #[error(
        "ssh cannot connect to the guest ({status}); create its image again with \
         packaging/guest-image; the console's last lines: {console}"
    )]
    Connection {
        /// The exit status of ssh.
        status: ExitStatus,
        /// The last lines of the console.
        console: String,
    },
    /// The guest did not start in time.
    #[error(
        "the guest was not ready after {limit} s; repeat on a less busy host, and see the \
         console's last lines: {console}"
    )]
    Slow {
        /// The time limit in seconds.
        limit: u64,
        /// The last lines of the console.
        console: String,
    },
}
