//! The routes of a site, which change when links go down or come up.

use std::io;

use longhaul_sys::interface::Interface;

use super::{Host, RouteSpec};

/// The interfaces of a site and the routes over them.
#[derive(Debug)]
pub(super) struct InstalledRoutes {
    /// The site, with an IPv6 address only if the kernel supports it.
    own: Host,
    interfaces: Vec<Interface>,
    present: Vec<RouteSpec>,
}

impl InstalledRoutes {
    /// Adds `routes` over `interfaces` to the calling thread's namespace.
    ///
    /// # Errors
    /// A route cannot be added.
    pub(super) fn install(
        own: Host,
        interfaces: Vec<Interface>,
        routes: &[RouteSpec],
    ) -> io::Result<Self> {
        let mut installed = InstalledRoutes { own, interfaces, present: Vec::new() };
        for route in routes {
            installed.add(*route)?;
        }
        Ok(installed)
    }

    /// Replaces the routes. A program of the site may have removed an interface or a route, so
    /// errors are ignored.
    pub(super) fn set(&mut self, wanted: Vec<RouteSpec>) {
        let before = std::mem::take(&mut self.present);
        for route in &before {
            if !wanted.iter().any(|other| other.to == route.to)
                && let Some(interface) = self.interfaces.get(route.interface)
            {
                let _ = interface.remove_host_route(route.to);
            }
        }
        for route in wanted {
            if before.contains(&route) {
                self.present.push(route);
            } else {
                let _ = self.add(route);
            }
        }
    }

    fn add(&mut self, route: RouteSpec) -> io::Result<()> {
        let source = self.own.address_like(route.to);
        if let (Some(source), Some(interface)) = (source, self.interfaces.get(route.interface)) {
            interface.set_host_route(route.to, source)?;
            self.present.push(route);
        }
        Ok(())
    }
}
