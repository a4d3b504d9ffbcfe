//! Turns the calling thread into a site, step by step.

use longhaul_sys::namespace::Init;
use rustix::mount::MountFlags;

use super::tables::Tables;
use super::{SiteSpec, names, network, windows};
use crate::EmuError;
use crate::device::{Device, DeviceMaker};

/// What a site consists of while its thread lives.
#[derive(Debug)]
pub(super) struct Furnished {
    /// The site's ends of its links, in the order of the specification's interfaces.
    pub(super) devices: Vec<Device>,
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
    let maker = DeviceMaker::enter_site()?;
    let tables = Tables::open().map_err(step("open the network tables"))?;
    let init = Init::start().map_err(step("start the first process"))?;
    // Best effort, as for /proc: containers may forbid it, and few tools look there.
    let no_programs = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = rustix::mount::mount("sysfs", "/sys", "sysfs", no_programs, None);
    network::prepare();
    let devices = spec
        .interfaces
        .iter()
        .map(|interface| maker.make(&interface.name, interface.mtu))
        .collect::<Result<Vec<_>, _>>()?;
    network::configure(spec).map_err(step("configure the network"))?;
    if spec.forwards() {
        network::forward().map_err(step("allow forwarding"))?;
    }
    // Programs that ask for their own host's name, and resolve it, find the site's.
    rustix::system::sethostname(spec.own.name.as_bytes())
        .map_err(|errno| step("set the host's name")(errno.into()))?;
    names::install(&spec.hosts).map_err(step("install /etc/hosts"))?;
    network::open_ping();
    let windows_set = windows::install(spec.windows).is_ok();
    Ok(Furnished { devices, init, tables, windows_set })
}
