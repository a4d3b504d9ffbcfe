//! `longhaul wan bridge`: an emulated link between two real interfaces.

mod guard;
mod run;
mod saved;
mod settings;

use std::fmt;

use anyhow::Context;
use longhaul_sys::ethtool;
use longhaul_sys::link_facts::{self, LinkFacts, SavedEntry, SavedKind};

pub(super) use guard::{GuardArgs, run as run_guard};
pub(super) use run::{BridgeArgs, run};
pub(super) use saved::restore_left_over;

/// An interface and its settings before the bridge.
#[derive(Debug, Clone)]
struct Facts {
    name: String,
    link: LinkFacts,
    /// The index of the bridge to which the other end of a veth pair belongs.
    peer_master: Option<u32>,
    /// True if the driver merges received segments without keeping their sizes (LRO).
    merges: bool,
    /// Its addresses and routes.
    entries: Vec<SavedEntry>,
}

/// A reason against a bridge between two interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refusal {
    Same {
        name: String,
    },
    NoEthernet {
        name: String,
    },
    Member {
        name: String,
    },
    /// The interface is down; `fix` is true if the command has an option that brings it up.
    Down {
        name: String,
        fix: bool,
    },
    DefaultRoute {
        name: String,
    },
    Loop {
        names: [String; 2],
    },
}

/// A property of an interface that falsifies the link.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Flaw {
    Merges { name: String },
    Addresses { name: String, addresses: usize, routes: usize },
    Mtus { names: [String; 2], mtus: [u32; 2] },
}

impl Facts {
    /// Reads the facts about an interface.
    fn read(name: &str) -> anyhow::Result<Facts> {
        let link = link_facts::link_facts(name).with_context(|| {
            format!("cannot use interface {name}; 'ip link' lists the interfaces")
        })?;
        let entries = link_facts::entries(link.index)
            .with_context(|| format!("cannot read the addresses of {name}"))?;
        // A driver without the setting does not merge.
        let merges = ethtool::offloads(name).is_ok_and(|[_, _, _, lro, ..]| lro != 0);
        let peer = link.peer.and_then(|index| link_facts::link_facts_at(index).ok());
        let is_bridge =
            |index: &u32| link_facts::link_facts_at(*index).is_ok_and(|master| master.is_bridge);
        let peer_master = peer.and_then(|peer| peer.master).filter(is_bridge);
        Ok(Facts { name: name.to_owned(), link, peer_master, merges, entries })
    }

    fn count(&self, is_counted: impl Fn(SavedKind) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_counted(entry.kind())).count()
    }
}

/// Returns the first reason against a bridge. With `fix` an interface may be down, and with `yes`
/// it may carry the default route.
fn refusal([near, far]: &[Facts; 2], fix: bool, yes: bool) -> Option<Refusal> {
    if near.link.index == far.link.index {
        return Some(Refusal::Same { name: near.name.clone() });
    }
    let joined = |a: &Facts, b: &Facts| {
        [a.link.peer, a.peer_master].contains(&Some(b.link.index))
            || a.peer_master.is_some() && a.peer_master == b.peer_master
    };
    if joined(near, far) || joined(far, near) {
        return Some(Refusal::Loop { names: [near.name.clone(), far.name.clone()] });
    }
    [near, far].into_iter().find_map(|facts| unsuitable(facts, fix, yes))
}

/// Returns the reason against the use of an interface.
fn unsuitable(facts: &Facts, fix: bool, yes: bool) -> Option<Refusal> {
    let name = facts.name.clone();
    let has_default = facts.count(|kind| kind == SavedKind::DefaultRoute) > 0;
    match facts {
        facts if !facts.link.is_ethernet => Some(Refusal::NoEthernet { name }),
        facts if facts.link.master.is_some() => Some(Refusal::Member { name }),
        _ if has_default && !yes => Some(Refusal::DefaultRoute { name }),
        facts if !facts.link.is_up && !fix => Some(Refusal::Down { name, fix: true }),
        _ => None,
    }
}

/// Checks an interface to which a site of a topology is attached.
pub(super) fn check_port(name: &str, yes: bool) -> anyhow::Result<()> {
    match port_refusal(&Facts::read(name)?, yes) {
        Some(refusal) => Err(refusal.into()),
        None => Ok(()),
    }
}

fn port_refusal(facts: &Facts, yes: bool) -> Option<Refusal> {
    match unsuitable(facts, false, yes) {
        Some(Refusal::Down { name, .. }) => Some(Refusal::Down { name, fix: false }),
        other => other,
    }
}

/// Returns the properties of the interfaces that falsify the link.
fn flaws(both: &[Facts; 2]) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    for facts in both {
        let name = || facts.name.clone();
        if facts.merges {
            flaws.push(Flaw::Merges { name: name() });
        }
        let addresses = facts.count(|kind| kind == SavedKind::Address);
        let routes = facts.count(|kind| kind != SavedKind::Address);
        if addresses + routes > 0 {
            flaws.push(Flaw::Addresses { name: name(), addresses, routes });
        }
    }
    let mtus = both.each_ref().map(|facts| facts.link.mtu);
    if mtus[0] != mtus[1] {
        flaws.push(Flaw::Mtus { names: both.each_ref().map(|facts| facts.name.clone()), mtus });
    }
    flaws
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Same { name } => {
                write!(f, "a bridge joins two interfaces, not {name} to itself")
            }
            Refusal::Loop { names: [near, far] } => write!(
                f,
                "{near} and {far} are already connected, and a bridge between them would close a loop"
            ),
            Refusal::NoEthernet { name } => write!(f, "{name} is not an Ethernet interface"),
            Refusal::Member { name } => write!(
                f,
                "{name} belongs to a bridge or bond; remove it from there with 'ip link set {name} \
                 nomaster'"
            ),
            Refusal::Down { name, fix } => {
                let option = if *fix { ", or give --fix" } else { "" };
                write!(f, "{name} is down; bring it up with 'ip link set {name} up'{option}")
            }
            Refusal::DefaultRoute { name } => write!(
                f,
                "{name} carries the default route of this host, which the link may cut off; give \
                 --yes-i-know to use it nevertheless"
            ),
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Merges { name } => write!(
                f,
                "{name} merges received segments and loses their sizes (LRO); disable it with \
                 'ethtool -K {name} lro off', or give --fix"
            ),
            Flaw::Addresses { name, addresses, routes } => write!(
                f,
                "this host has addresses or routes on {name} (addresses: {addresses}, routes: {routes}), \
                 so it sends packets of its own over it and answers some of the forwarded ones; give --fix to remove \
                 them while the bridge runs"
            ),
            Flaw::Mtus { names: [near, far], mtus: [near_mtu, far_mtu] } => write!(
                f,
                "the MTUs differ ({near}: {near_mtu}, {far}: {far_mtu}), so longer packets are \
                 lost; set equal MTUs, or give --fix"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str, index: u32) -> Facts {
        let link = LinkFacts {
            index,
            mtu: 1500,
            is_up: true,
            is_ethernet: true,
            address: None,
            is_bridge: false,
            master: None,
            peer: None,
            tag: None,
        };
        Facts { name: name.to_owned(), link, peer_master: None, merges: false, entries: Vec::new() }
    }

    #[test]
    fn interfaces_that_would_loop_or_belong_elsewhere_are_refused() {
        let both = || [facts("eth1", 1), facts("eth2", 2)];
        assert_eq!(refusal(&both(), false, false), None);
        let refused = |change: &dyn Fn(&mut [Facts; 2]), fix| {
            let mut both = both();
            change(&mut both);
            refusal(&both, fix, false).map(|refusal| refusal.to_string())
        };
        let says = |change: &dyn Fn(&mut [Facts; 2]), text: &str| {
            let refusal = refused(change, false).unwrap();
            assert!(refusal.contains(text), "{refusal}");
        };
        says(&|both| both[1] = both[0].clone(), "not eth1 to itself");
        says(&|both| both[0].link.peer = Some(2), "would close a loop");
        says(&|both| both[1].link.peer = Some(1), "would close a loop");
        says(&|both| both[1].peer_master = Some(1), "would close a loop");
        says(&|both| both.iter_mut().for_each(|facts| facts.peer_master = Some(9)), "loop");
        assert_eq!(refused(&|both| both[0].peer_master = Some(9), false), None);
        says(&|both| both[1].link.is_ethernet = false, "eth2 is not an Ethernet interface");
        says(&|both| both[0].link.master = Some(9), "eth1 belongs to a bridge or bond");
        let down = |both: &mut [Facts; 2]| both[0].link.is_up = false;
        says(&down, "'ip link set eth1 up', or give --fix");
        assert_eq!(refused(&down, true), None, "--fix brings it up");
        let mut port = facts("eth1", 1);
        assert_eq!(port_refusal(&port, false), None);
        port.link.is_up = false;
        let says = port_refusal(&port, false).unwrap().to_string();
        assert!(says.ends_with("bring it up with 'ip link set eth1 up'"), "{says}");
    }

    #[test]
    fn properties_that_falsify_the_link_are_named() {
        let mut both = [facts("eth1", 1), facts("eth2", 2)];
        assert_eq!(flaws(&both), []);
        both[0].merges = true;
        both[1].link.mtu = 9000;
        let texts: Vec<String> = flaws(&both).iter().map(Flaw::to_string).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("ethtool -K eth1 lro off"), "{texts:?}");
        assert!(texts[1].contains("(eth1: 1500, eth2: 9000)"), "{texts:?}");
    }
}
