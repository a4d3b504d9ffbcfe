//! Turns the calling thread into a site.

use std::os::fd::OwnedFd;

use longhaul_core::plan::Attachment;
use longhaul_sys::interface::Interface;
use longhaul_sys::namespace::Init;
use rustix::mount::MountFlags;

use super::network::{Foreign, InstalledRoutes};
use super::spec::SiteSpec;
use super::tables::Tables;
use super::{names, network, windows};
use crate::EmuError;
use crate::device::{Device, DeviceMaker};
use crate::guest::session as ssh_session;

/// The parts of a site that exist while its thread lives.
#[derive(Debug)]
pub(super) struct SiteParts {
    /// The queues of the site's ends of its links, in the order of the specification's interfaces.
    pub(super) devices: Vec<Vec<Device>>,
    pub(super) init: Init,
    /// The process to which an existing network belongs, if the plan names one.
    pub(super) process: Option<OwnedFd>,
    pub(super) tables: Tables,
    pub(super) routes: InstalledRoutes,
    pub(super) windows_set: bool,
}

/// Moves the calling thread into new namespaces and sets them up.
///
/// # Errors
/// The step that failed. Everything created before is removed when the thread ends.
pub(super) fn set_up(spec: &SiteSpec) -> Result<SiteParts, EmuError> {
    let step =
        |operation| move |source| EmuError::Site { operation, site: spec.own.name.clone(), source };
    // The site of a host behind an interface has empty namespaces.
    let existing = spec.attachment.as_ref().filter(|attachment| attachment.interface().is_none());
    let foreign = existing.map(|attachment| open(spec, attachment)).transpose()?;
    let network = foreign.as_ref().map(|foreign| &foreign.namespace);
    let maker = DeviceMaker::enter_site(network, spec.medium)?;
    let tables = Tables::open().map_err(step("open the network tables"))?;
    let init = Init::start().map_err(step("start the first process"))?;
    // Best effort, as for /proc: containers may forbid the mount, and few tools read /sys.
    let no_programs = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = rustix::mount::mount("sysfs", "/sys", "sysfs", no_programs, None);
    if foreign.is_none() {
        network::prepare();
    }
    let devices = spec.interfaces.iter().map(|interface| {
        if spec.guest {
            let card = network::guest_card(spec, interface);
            let card = card.map_err(step("create the network card of the virtual machine"))?;
            // The socket of ssh vanishes with the site.
            let session = ssh_session()
                .map_err(|fault| EmuError::Guest { site: spec.own.name.clone(), fault })?;
            rustix::mount::mount("longhaul", &session, "tmpfs", MountFlags::NOSUID, None)
                .map_err(|errno| step("mount the directory of ssh")(errno.into()))?;
            return Ok(vec![Device::Guest(Box::new(card))]);
        }
        if foreign.is_some() && Interface::named(&interface.name).is_ok() {
            let taken = std::io::ErrorKind::AlreadyExists.into();
            return Err(step("create the interface wan0 or its successors")(taken));
        }
        let device = maker.make(&interface.name, interface.mtu, interface.queues)?;
        if foreign.is_some() {
            network::quieten(&interface.name);
        }
        Ok(device)
    });
    let devices = devices.collect::<Result<Vec<_>, _>>()?;
    let routes = network::configure(spec).map_err(step("configure the network"))?;
    if spec.forwards() {
        network::forward().map_err(step("allow forwarding"))?;
    }
    // Programs that resolve their own host name find the address of the site.
    rustix::system::sethostname(spec.own.name.as_bytes())
        .map_err(|errno| step("set the host's name")(errno.into()))?;
    names::install(&spec.hosts).map_err(step("install /etc/hosts"))?;
    let windows_set = match foreign {
        // The settings of an existing network stay.
        Some(_) => true,
        None => {
            network::open_ping();
            windows::install(spec.windows).is_ok()
        }
    };
    let process = foreign.and_then(|foreign| foreign.process);
    Ok(SiteParts { devices, init, process, tables, routes, windows_set })
}

fn open(spec: &SiteSpec, attachment: &Attachment) -> Result<Foreign, EmuError> {
    Foreign::open(attachment).map_err(|source| EmuError::Attach {
        site: spec.own.name.clone(),
        attachment: attachment.to_string(),
        source,
    })
}
