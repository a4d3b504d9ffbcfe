//! Turns the calling thread into a site, step by step.

use longhaul_sys::namespace::{self, Init};
use longhaul_sys::tun::Tun;
use rustix::mount::MountFlags;

use super::tables::Tables;
use super::{SiteSpec, names, network, windows};
use crate::EmuError;
use crate::privilege::{namespaces_error, tun_error};

/// What a site consists of while its thread lives.
#[derive(Debug)]
pub(super) struct Furnished {
    /// The site's ends of its links, in the order of the specification's interfaces.
    pub(super) tuns: Vec<Tun>,
    pub(super) init: Init,
    pub(super) tables: Tables,
    pub(super) windows_set: bool,
}

/// Moves the calling thread into new namespaces and furnishes them.
///
/// # Errors
/// The step that failed; what was made until then goes with the thread.
pub(super) fn furnish(spec: &SiteSpec) -> Result<Furnished, EmuError> {
    let step =
        |operation| move |source| EmuError::Site { operation, site: spec.own.name.clone(), source };
    namespace::enter_site_namespaces().map_err(namespaces_error)?;
    let tables = Tables::open().map_err(step("open the network tables"))?;
    let init = Init::start().map_err(step("start the first process"))?;
    // Best effort, as for /proc: containers may forbid it, and few tools look there.
    let no_programs = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = rustix::mount::mount("sysfs", "/sys", "sysfs", no_programs, None);
    network::prepare();
    let tuns: Vec<Tun> = spec
        .interfaces
        .iter()
        .map(|interface| Tun::create(&interface.name).map_err(tun_error))
        .collect::<Result<_, _>>()?;
    network::configure(spec).map_err(step("configure the network"))?;
    if spec.forwards() {
        network::forward().map_err(step("allow forwarding"))?;
    }
    names::install(&spec.hosts).map_err(step("install /etc/hosts"))?;
    network::open_ping();
    let windows_set = windows::install(spec.windows).is_ok();
    Ok(Furnished { tuns, init, tables, windows_set })
}
