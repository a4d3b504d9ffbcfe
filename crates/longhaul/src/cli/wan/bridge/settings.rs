//! The settings of the interfaces of a bridge: those that a bridge needs, and the original ones.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use longhaul_sys::ethtool;
use longhaul_sys::interface::Interface;
use longhaul_sys::link_facts::{LinkFacts, SavedEntry, SavedKind, link_facts};
use serde::{Deserialize, Serialize};

use super::{Facts, Flaw, flaws};

/// A setting of an interface with a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Setting {
    Up(bool),
    Ipv6Disabled(bool),
    Mtu(u32),
    /// The driver merges segments (LRO).
    Merging(bool),
    /// The kernel's message about an address.
    Address(Vec<u8>),
    /// The kernel's message about a route.
    Route(Vec<u8>),
}

/// A change of an interface for a bridge.
struct Change {
    original: Original,
    /// The value while the bridge runs; `None` removes an address or route.
    during: Option<Setting>,
}

/// The original value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Original {
    pub(super) interface: String,
    /// The index and the Ethernet address, which distinguish the interface from a later one with
    /// the same name.
    index: u32,
    address: Option<[u8; 6]>,
    setting: Setting,
}

/// The changes that a bridge needs, in their order.
pub(super) struct Changes {
    changes: Vec<Change>,
}

impl Changes {
    /// Returns the changes that bring the interfaces up and remove what falsifies a link between
    /// them.
    pub(super) fn needed(both: &[Facts; 2]) -> Changes {
        let mut changes = Vec::new();
        for facts in both {
            // The routes of an address disappear with it, so the address is removed last.
            changes.extend(facts.entries.iter().rev().map(|entry| {
                let message = entry.message().to_vec();
                let setting = match entry.kind() {
                    SavedKind::Address => Setting::Address(message),
                    SavedKind::Route | SavedKind::DefaultRoute => Setting::Route(message),
                };
                Change { original: Original::new(facts, setting), during: None }
            }));
        }
        let mut change = |facts: &Facts, before, during| {
            let original = Original::new(facts, before);
            changes.push(Change { original, during: Some(during) });
        };
        for facts in both {
            if let Ok(before) = fs::read_to_string(ipv6_switch(&facts.name)) {
                let before = Setting::Ipv6Disabled(before.trim() != "0");
                change(facts, before, Setting::Ipv6Disabled(true));
            }
            if !facts.link.is_up {
                change(facts, Setting::Up(false), Setting::Up(true));
            }
            if facts.merges {
                change(facts, Setting::Merging(true), Setting::Merging(false));
            }
        }
        for flaw in flaws(both) {
            if let Flaw::Mtus { mtus, .. } = flaw {
                let (shorter, larger) = if mtus[0] < mtus[1] { (0, 1) } else { (1, 0) };
                change(&both[shorter], Setting::Mtu(mtus[shorter]), Setting::Mtu(mtus[larger]));
            }
        }
        Changes { changes }
    }

    /// Returns the original values, in the order in which they are restored.
    pub(super) fn originals(&self) -> Vec<Original> {
        self.changes.iter().rev().map(|change| change.original.clone()).collect()
    }

    /// Makes the changes.
    pub(super) fn make(&self) -> anyhow::Result<()> {
        for Change { original, during } in &self.changes {
            let changed = match during {
                Some(during) => during.set(&original.interface),
                None => {
                    // An entry may have disappeared with another one.
                    let _ = original.setting.entry().map(|entry| entry.remove());
                    Ok(())
                }
            };
            changed.with_context(|| format!("cannot change {}", original.name()))?;
        }
        Ok(())
    }
}

impl Original {
    fn new(facts: &Facts, setting: Setting) -> Original {
        let LinkFacts { index, address, .. } = facts.link;
        Original { interface: facts.name.clone(), index, address, setting }
    }

    fn name(&self) -> String {
        let name = &self.interface;
        match self.setting {
            Setting::Up(_) => format!("the state of {name}"),
            Setting::Ipv6Disabled(_) => format!("IPv6 of {name}"),
            Setting::Mtu(_) => format!("the MTU of {name}"),
            Setting::Merging(_) => format!("LRO of {name}"),
            Setting::Address(_) => format!("an address of {name}"),
            Setting::Route(_) => format!("a route of {name}"),
        }
    }

    /// Returns whether the interface still exists.
    pub(super) fn exists(&self) -> bool {
        link_facts(&self.interface)
            .is_ok_and(|now| (now.index, now.address) == (self.index, self.address))
    }

    /// Returns whether a bridge that still runs needs the present value.
    pub(super) fn is_in_use(&self) -> bool {
        longhaul_emu::is_claimed(self.index)
    }
}

/// Restores original values. An error does not keep the others from being restored.
pub(super) fn restore(originals: &[Original]) -> anyhow::Result<()> {
    let mut result = Ok(());
    for original in originals {
        let restored = original.setting.set(&original.interface);
        let restored = restored.with_context(|| format!("cannot restore {}", original.name()));
        result = result.and(restored);
    }
    result
}

impl Setting {
    fn set(&self, interface: &str) -> io::Result<()> {
        match self {
            Setting::Up(true) => Interface::named(interface)?.up(),
            Setting::Up(false) => Interface::named(interface)?.down(),
            Setting::Ipv6Disabled(disabled) => {
                let value = if *disabled { b"1" } else { b"0" };
                fs::File::options().write(true).open(ipv6_switch(interface))?.write_all(value)
            }
            Setting::Mtu(mtu) => Interface::named(interface)?.set_mtu(*mtu),
            Setting::Merging(on) => ethtool::set_merging(interface, *on),
            Setting::Address(_) | Setting::Route(_) => {
                self.entry().map_or(Ok(()), |entry| entry.restore())
            }
        }
    }

    /// Returns the entry if the setting is an address or a route.
    fn entry(&self) -> Option<SavedEntry> {
        match self {
            Setting::Address(message) => Some(SavedEntry::new(SavedKind::Address, message.clone())),
            Setting::Route(message) => Some(SavedEntry::new(SavedKind::Route, message.clone())),
            _ => None,
        }
    }
}

fn ipv6_switch(interface: &str) -> PathBuf {
    PathBuf::from("/proc/sys/net/ipv6/conf").join(interface).join("disable_ipv6")
}
