//! Tests against the servers of other programs.

use std::path::Path;

use anyhow::anyhow;
use longhaul_core::result::{TestResult, TestSample};
use longhaul_interop::iperf3::{self, ClientOptions, Credentials, Padding, Progress};
use longhaul_interop::nuttcp;
use longhaul_interop::{PeerTest, Program};

use crate::exit::{self, Coded};

/// The environment variable with the password of a user, as for iperf3.
const PASSWORD: &str = "IPERF3_PASSWORD";

/// Runs `test` and passes each sample to `show`. `credentials` are for an iperf3 server.
pub(super) fn run(
    test: &PeerTest<'_>,
    credentials: Option<Credentials>,
    show: &mut dyn FnMut(&TestSample),
) -> Result<TestResult, Coded> {
    match test.address.program {
        Program::Iperf3 => {
            let mut on_progress = |progress: Progress<'_>| {
                if let Progress::Sample(_, sample) = progress {
                    show(sample);
                }
            };
            let options = ClientOptions { credentials, ..ClientOptions::default() };
            Ok(iperf3::run(test, &options, &mut on_progress)?.test)
        }
        Program::Nuttcp => {
            let mut show = |sample: &TestSample| show(sample);
            Ok(nuttcp::run(test, &nuttcp::ClientOptions::default(), &mut show)?.test)
        }
    }
}

/// Returns the credentials of `user`, with the password from the environment.
///
/// # Errors
/// The password is missing, or the key file cannot be used.
pub(in crate::cli) fn credentials(
    user: &str,
    key: &Path,
    pkcs1: bool,
) -> Result<Credentials, Coded> {
    let password = std::env::var(PASSWORD).map_err(|_| {
        Coded::new(exit::USAGE, anyhow!("--username needs the password in {PASSWORD}"))
    })?;
    let padding = if pkcs1 { Padding::Pkcs1 } else { Padding::Oaep };
    Ok(Credentials::new(user, &password, key, padding)?)
}
