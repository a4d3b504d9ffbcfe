//! The options of `longhaul serve` that serve the clients of other programs.

use std::net::IpAddr;
use std::sync::Arc;

use longhaul_engine::serve::Guest;
use longhaul_engine::test::TestLimits;

use crate::exit::Coded;

/// The ports for the clients of other programs. Their tests count among those of clients without
/// an authorised key.
#[derive(Debug, clap::Args)]
pub(super) struct GuestArgs {}

impl GuestArgs {
    /// Opens the listeners, before the server changes its user. `bind` is the only address to
    /// listen on, and `limits` are those of a client without an authorised key.
    ///
    /// # Errors
    /// A port cannot be used.
    pub(super) fn bind(
        &self,
        bind: Option<IpAddr>,
        limits: &TestLimits,
    ) -> Result<Vec<Arc<dyn Guest>>, Coded> {
        let _ = (bind, limits);
        Ok(Vec::new())
    }
}
