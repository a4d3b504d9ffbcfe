//! Loops that a connection between two interfaces would close.
//!
//! A frame is at a *place*: an interface other than a VLAN, with the VLAN tags of the frame. A VLAN is
//! its parent interface with the tag of the VLAN. A connection of two interfaces changes the tags of
//! one into the tags of the other and keeps the tags inside them.

use std::collections::{BTreeSet, HashMap};

use longhaul_sys::link_facts::{LinkFacts, VlanTag};

/// The tags of a frame, the outermost first.
type Tags = Vec<VlanTag>;

/// The index of an interface other than a VLAN, and the outermost tags of its frames.
type Place = (u32, Tags);

/// The highest number of tags of a frame. Connections that add tags could otherwise add more without
/// end. The kernel has at most 8 VLANs on top of each other (`VLAN_MAX_DEPTH` in net/8021q).
const MOST_TAGS: usize = 8;

/// The highest number of places that a search visits.
const MOST_PLACES: usize = 100_000;

/// The connections between the interfaces of a network namespace.
pub(super) struct ConnectionMap<'f> {
    facts: HashMap<u32, &'f LinkFacts>,
    /// By the index of the interface at one end: the tags there, and the place at the other end.
    from: HashMap<u32, Vec<(Tags, Place)>>,
    /// The tags that matter for a connection, without outer ones.
    inner: BTreeSet<Tags>,
}

impl<'f> ConnectionMap<'f> {
    /// Returns the connections by veth pairs and bridges of the kernel, according to the states of
    /// all interfaces, and `others` by index.
    pub(super) fn new(facts: &'f [LinkFacts], others: impl IntoIterator<Item = [u32; 2]>) -> Self {
        let mut connections = ConnectionMap {
            facts: facts.iter().map(|facts| (facts.index, facts)).collect(),
            from: HashMap::new(),
            inner: BTreeSet::from([Tags::new()]),
        };
        for facts in facts {
            let find = |index: &u32| connections.facts.get(index);
            // The ends of a veth pair name each other. A VLAN and its parent do not.
            let is_pair = |peer: &u32| find(peer).is_some_and(|at| at.peer == Some(facts.index));
            let is_bridge = |master: &u32| find(master).is_some_and(|master| master.is_bridge);
            let others = [facts.peer.filter(is_pair), facts.master.filter(is_bridge)];
            for other in others.into_iter().flatten() {
                connections.add([facts.index, other]);
            }
        }
        for other in others {
            connections.add(other);
        }
        connections
    }

    fn add(&mut self, ends: [u32; 2]) {
        let [one, other] = ends.map(|index| self.place(index));
        for (from, to) in [(&one, &other), (&other, &one)] {
            self.from.entry(from.0).or_default().push((from.1.clone(), to.clone()));
            self.note(&from.1);
        }
    }

    fn note(&mut self, tags: &[VlanTag]) {
        self.inner.extend((0..tags.len()).map(|at| tags[at..].to_vec()));
    }

    /// Returns the place of an interface.
    fn place(&self, mut index: u32) -> Place {
        let mut tags = Tags::new();
        while let Some((tag, beneath)) =
            self.facts.get(&index).and_then(|facts| facts.tag.zip(facts.peer))
            && tags.len() < MOST_TAGS
        {
            tags.insert(0, tag);
            index = beneath;
        }
        (index, tags)
    }

    /// Returns whether a frame that leaves through one of the interfaces can arrive at the other one.
    /// The search ends after [`MOST_PLACES`] places, and then assumes a loop: connections that change
    /// and add tags can reach any sequence of tags.
    pub(super) fn connects(mut self, ends: [u32; 2]) -> bool {
        let [near, far] = ends.map(|index| self.place(index));
        self.note(&near.1);
        self.note(&far.1);
        let begin = |inner: &Tags| (near.0, [near.1.as_slice(), inner].concat());
        let mut open: Vec<Place> = self.inner.iter().map(begin).collect();
        let mut reached: BTreeSet<Place> = open.iter().cloned().collect();
        while let Some((at, tags)) = open.pop() {
            if at == far.0 && tags.starts_with(&far.1) {
                return true;
            }
            for (outer, (to, added)) in self.from.get(&at).into_iter().flatten() {
                let Some(inner) = tags.strip_prefix(outer.as_slice()) else { continue };
                let next = (*to, [added.as_slice(), inner].concat());
                if next.1.len() <= MOST_TAGS && reached.insert(next.clone()) {
                    open.push(next);
                }
                if reached.len() > MOST_PLACES {
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32) -> LinkFacts {
        LinkFacts {
            index,
            mtu: 1500,
            is_up: true,
            is_ethernet: true,
            address: None,
            is_bridge: false,
            master: None,
            peer: None,
            tag: None,
        }
    }

    fn port(index: u32, master: u32) -> LinkFacts {
        LinkFacts { master: Some(master), ..interface(index) }
    }

    fn bridge(index: u32) -> LinkFacts {
        LinkFacts { is_bridge: true, ..interface(index) }
    }

    fn pair(one: u32, other: u32) -> [LinkFacts; 2] {
        [(one, other), (other, one)]
            .map(|(index, peer)| LinkFacts { peer: Some(peer), ..interface(index) })
    }

    fn vlan(index: u32, beneath: u32, id: u16) -> LinkFacts {
        let tag = Some(VlanTag { protocol: 0x8100, id });
        LinkFacts { peer: Some(beneath), tag, ..interface(index) }
    }

    /// Checks which pairs of interfaces are connected, in both directions.
    fn check(facts: &[LinkFacts], others: &[[u32; 2]], connected: &[[u32; 2]], apart: &[[u32; 2]]) {
        let cases = connected.iter().map(|pair| (pair, true));
        for ([one, other], expected) in cases.chain(apart.iter().map(|pair| (pair, false))) {
            for ends in [[*one, *other], [*other, *one]] {
                let connections = ConnectionMap::new(facts, others.iter().copied());
                assert_eq!(connections.connects(ends), expected, "{ends:?}");
            }
        }
    }

    #[test]
    fn veth_pairs_and_bridges_of_the_kernel_connect() {
        let mut all = [pair(1, 2), pair(3, 4)].concat();
        all[1].master = Some(9);
        all[3].master = Some(9);
        // Two members of a device other than a bridge.
        all.extend([bridge(9), port(5, 10), port(8, 10), interface(10)]);
        check(&all, &[], &[[1, 3], [1, 9]], &[[1, 5], [5, 8], [5, 10]]);
        check(&all, &[[5, 1]], &[[5, 3], [1, 5]], &[[5, 8]]);
    }

    #[test]
    fn a_vlan_is_a_part_of_its_parent_interface() {
        // 5.100 and 5.200 on one interface, and 5.100.300 inside.
        let all = [interface(5), vlan(6, 5, 100), vlan(7, 5, 200), vlan(8, 6, 300)];
        check(&all, &[], &[[5, 6], [5, 8], [6, 8]], &[[6, 7], [7, 8]]);
    }

    #[test]
    fn vlans_of_connected_interfaces_are_connected_if_their_tags_are_equal() {
        let all = [&pair(1, 2)[..], &[vlan(3, 1, 100), vlan(4, 2, 100), vlan(5, 2, 200)]].concat();
        check(&all, &[], &[[3, 4], [1, 4], [3, 2], [2, 5]], &[[3, 5], [4, 5]]);
        // The same id in a tag of another kind.
        let mut other = all;
        other[3].tag = Some(VlanTag { protocol: 0x88a8, id: 100 });
        check(&other, &[], &[[1, 4]], &[[3, 4]]);
    }

    #[test]
    fn a_loop_can_consist_of_one_vlan_or_of_changing_tags() {
        // The ports of a bridge are VLANs of the other ends of two pairs.
        let vlans = |far| {
            let ports = [vlan(5, 2, 100), vlan(6, 4, far)]
                .map(|vlan| LinkFacts { master: Some(9), ..vlan });
            [&pair(1, 2)[..], &pair(3, 4), &ports, &[bridge(9)]].concat()
        };
        check(&vlans(100), &[], &[[1, 3]], &[]);
        check(&vlans(200), &[], &[[1, 3]], &[]);
        // Another VLAN of each pair is not connected, and equal ids of different interfaces are not.
        let mut all = vlans(200);
        all.extend([vlan(10, 1, 100), vlan(11, 3, 200), vlan(12, 1, 200), vlan(13, 3, 100)]);
        check(&all, &[], &[[10, 11]], &[[12, 13], [10, 13], [11, 12]]);
    }

    #[test]
    fn connections_that_add_tags_end() {
        // A program connects an interface with a VLAN of itself.
        let all = [interface(1), vlan(2, 1, 7), interface(3)];
        check(&all, &[[1, 2]], &[[1, 2]], &[[1, 3], [2, 3]]);
    }

    #[test]
    fn a_search_that_exceeds_its_limit_assumes_a_loop() {
        // A bridge whose ports are VLANs on the bridge itself adds any sequence of their tags.
        let vlans =
            (0..7).map(|at| LinkFacts { master: Some(9), ..vlan(20 + at, 9, 100 + at as u16) });
        let all: Vec<LinkFacts> =
            [bridge(9), port(1, 9), interface(2)].into_iter().chain(vlans).collect();
        let begun = std::time::Instant::now();
        assert!(ConnectionMap::new(&all, []).connects([1, 2]));
        assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    }

    #[test]
    fn a_chain_of_many_interfaces_is_followed_in_time() {
        let count = 20_000;
        let all: Vec<LinkFacts> = (0..count).flat_map(|at| pair(2 * at + 1, 2 * at + 2)).collect();
        let chain: Vec<[u32; 2]> = (1..count).map(|at| [2 * at, 2 * at + 1]).collect();
        let begun = std::time::Instant::now();
        assert!(ConnectionMap::new(&all, chain).connects([1, 2 * count]));
        // A search of all connections per interface takes minutes.
        assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    }
}
