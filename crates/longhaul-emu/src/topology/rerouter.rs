//! Changes the routes of sites when links go down or come up.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longhaul_core::plan::{LinkPlan, TopologyPlan};

use super::bundle::Bundle;
use super::draft::BothRoutes;
use super::routes::hosts;
use crate::EmuError;
use crate::driver::Carrier;
use crate::link::LinkTime;
use crate::site::{Host, Router, Site};

/// The thread that changes the routes of sites. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Rerouter {
    /// `None` once the thread has been requested to end.
    changes: Option<Sender<Change>>,
    thread: Option<JoinHandle<()>>,
}

/// The present plan and state of a link (by index).
struct Change {
    link: usize,
    plan: LinkPlan,
    down: bool,
}

impl Rerouter {
    /// Starts the thread, or returns `None` if the topology has no second route.
    pub(super) fn start(
        plan: &TopologyPlan,
        bundles: &[Bundle],
        sites: &[Site],
    ) -> Result<Option<Rerouter>, EmuError> {
        if bundles.len() < plan.sites.len() {
            // The bundles form a tree.
            return Ok(None);
        }
        let carriers = plan.links.iter();
        let carriers = carriers.map(|link| Carrier::new(&link.plan, plan.routing.failover));
        let failed = |source: io::Error| EmuError::Driver { operation: "start a thread", source };
        let network = Network {
            hosts: hosts(plan),
            bundles: bundles.to_vec(),
            carriers: carriers.collect(),
            up: vec![true; plan.links.len()],
            routers: sites.iter().map(Site::router).collect(),
            plan: plan.clone(),
        };
        let (changes, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("routes".into())
            .spawn(move || network.run(&inbox))
            .map_err(failed)?;
        Ok(Some(Rerouter { changes: Some(changes), thread: Some(thread) }))
    }

    /// Reports the present plan and state of a link.
    pub(super) fn set(&self, link: usize, plan: LinkPlan, down: bool) {
        if let Some(changes) = &self.changes {
            // The thread ends only after this value.
            let _ = changes.send(Change { link, plan, down });
        }
    }
}

impl Drop for Rerouter {
    fn drop(&mut self) {
        self.changes = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The routes of a topology, as its routers compute them.
struct Network {
    plan: TopologyPlan,
    hosts: Vec<Host>,
    bundles: Vec<Bundle>,
    carriers: Vec<Carrier>,
    /// The links that routers see as up.
    up: Vec<bool>,
    routers: Vec<Router>,
}

impl Network {
    /// Changes routes until the sender of `inbox` is dropped.
    fn run(mut self, inbox: &Receiver<Change>) {
        /// The wait without a known change.
        const LONG: Duration = Duration::from_secs(3600);
        let origin = Instant::now();
        let clock = || LinkTime::default() + origin.elapsed();
        loop {
            let now = clock();
            let next = self.update(now);
            let wait = next.map_or(LONG, |next| next.since(now).max(Duration::from_millis(1)));
            match inbox.recv_timeout(wait) {
                Ok(Change { link, plan, down }) => {
                    self.carriers[link].set_plan(&plan);
                    self.carriers[link].force(clock(), down);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Updates the routes if a link has changed. Returns the time of the next change, if known.
    fn update(&mut self, now: LinkTime) -> Option<LinkTime> {
        let states: Vec<_> = self.carriers.iter().map(|carrier| carrier.state(now)).collect();
        let up: Vec<bool> = states.iter().map(|(down, _)| !down).collect();
        if up != self.up {
            let before = self.routes();
            self.up = up;
            let after = self.routes();
            if before != after {
                self.install(&after);
            }
        }
        states.into_iter().filter_map(|(_, change)| change).min()
    }

    fn routes(&self) -> BothRoutes {
        // The delays are those at the start: a later change of a delay changes no route.
        BothRoutes::new(&self.plan, &self.bundles, |link| self.up[link])
    }

    fn install(&self, routes: &BothRoutes) {
        for (site, router) in self.routers.iter().enumerate() {
            // A site behind an interface has no interfaces to route over, and ignores them.
            router.set_routes(routes.of_site(&self.hosts, &self.bundles, site));
        }
    }
}
