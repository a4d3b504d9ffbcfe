//! Tests of the checks of a topology.

use std::time::Duration;

use super::*;
use crate::plan::PlannedRoute;
use crate::units::Bytes;

fn plan(sites: &[&str], links: &[(&str, &str)]) -> TopologyPlan {
    let link = |(near, far): &(&str, &str)| TopologyLink {
        name: format!("{near}-{far}"),
        near: (*near).to_owned(),
        far: (*far).to_owned(),
        plan: LinkPlan::symmetric(Duration::from_millis(10)),
    };
    TopologyPlan {
        name: "mine".into(),
        sites: sites.iter().map(|site| (*site).to_owned()).collect(),
        attachments: BTreeMap::new(),
        guests: BTreeMap::new(),
        links: links.iter().map(link).collect(),
        routing: Routing::default(),
    }
}

#[test]
fn sense_is_accepted() {
    let pair = TopologyPlan::pair(LinkPlan::symmetric(Duration::ZERO));
    assert!(pair.validate().is_ok());
    let three = plan(&["GSFC", "star-light", "arc2"], &[("gsfc", "star-light"), ("GSFC", "arc2")]);
    assert!(three.validate().is_ok());
    assert_eq!(TopologyPlan::variable("star-light"), "LONGHAUL_STAR_LIGHT");
}

#[test]
fn nonsense_is_refused_where_it_stands() {
    use TopologyPart::{LinkEnds, LinkName, LinkPlan as Plan, Site, Whole};
    let mut twice = plan(&["a", "b", "c"], &[("a", "b"), ("b", "c")]);
    twice.links[1].name = "A-B".into();
    let mut tiny = plan(&["a", "b"], &[("a", "b")]);
    tiny.links[0].plan.mtu = 10;
    let mut uneven = plan(&["a", "b"], &[("a", "b"), ("B", "a")]);
    (uneven.links[1].name, uneven.links[1].plan.mtu) = ("second".into(), 1500);
    for (plan, part, says) in [
        (plan(&["a"], &[]), Whole, "a topology has 2 to 250 sites, and this one has 1"),
        (plan(&["a", "b"], &[]), Whole, "a topology has 1 to 1000 links"),
        (plan(&["a", "b_c"], &[("a", "b_c")]), Site(1), "'b_c' is not a valid name"),
        (plan(&["a", "-b"], &[]), Site(1), "'-b' is not a valid name"),
        (plan(&["a", "Localhost"], &[]), Site(1), "cannot have the reserved name"),
        (plan(&["a", "b", "A"], &[]), Site(2), "there is another site with the name 'A'"),
        (plan(&["a", "a-ipv6"], &[]), Site(1), "share the environment variable LONGHAUL_A_IPV6"),
        (twice, LinkName(1), "there is another link with the name 'A-B'"),
        (plan(&["a", "b"], &[("a", "c")]), LinkEnds(0), "there is no site 'c'"),
        (plan(&["a", "b"], &[("b", "B")]), LinkEnds(0), "must join two different sites"),
        (uneven, Plan(1), "link 'a-b' joins the same sites with an MTU of 9000"),
        (tiny, Plan(0), "an MTU of 10 is outside"),
    ] {
        let error = plan.validate().unwrap_err();
        assert_eq!(error.part, part, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_site_behind_an_interface_has_one_neighbor() {
    let links = [("vm", "a"), ("vm", "a"), ("a", "b")];
    let mut plan = plan(&["a", "b", "vm"], &links);
    plan.links[1].name = "second".into();
    plan.attachments.insert("vm".into(), Attachment::Tap("tap0".into()));
    assert!(plan.validate().is_ok());
    plan.links[1].far = "b".into();
    let error = plan.validate().unwrap_err();
    assert_eq!(error.part, TopologyPart::Site(2));
    assert!(error.to_string().contains("only one other site"), "{error}");
}

#[test]
fn a_guest_is_at_the_edge_and_has_a_sensible_size() {
    let refusal = |change: fn(&mut TopologyPlan)| {
        let mut plan = plan(&["a", "b", "vm"], &[("vm", "a"), ("a", "b")]);
        plan.guests.insert("vm".into(), GuestPlan::default());
        change(&mut plan);
        let error = plan.validate().err()?;
        assert_eq!(error.part, TopologyPart::Site(2));
        Some(error.to_string())
    };
    assert_eq!(refusal(|_| ()), None);
    for (change, says) in [
        (
            (|plan| plan.links[0].plan.queues = 2) as fn(&mut TopologyPlan),
            "'vm' is a virtual machine, and its link",
        ),
        (
            |plan| {
                plan.attachments.insert("vm".into(), Attachment::Tap("tap0".into()));
            },
            "'vm' cannot be both a virtual machine and attached",
        ),
        (
            |plan| {
                let guest = GuestPlan { memory: Bytes::mib(64), processors: 1 };
                plan.guests.insert("vm".into(), guest);
            },
            "'vm' needs at least 256 MiB",
        ),
        (
            |plan| {
                let guest = GuestPlan { processors: 0, ..GuestPlan::default() };
                plan.guests.insert("vm".into(), guest);
            },
            "'vm' can have 1 to 64 processors, not 0",
        ),
    ] {
        let error = refusal(change).unwrap();
        assert!(error.contains(says), "{error}");
    }
    let two = refusal(|plan| {
        let second = TopologyLink { name: "x".into(), near: "b".into(), ..plan.links[0].clone() };
        plan.links.push(TopologyLink { far: "vm".into(), ..second });
    });
    assert!(two.unwrap().contains("is a virtual machine and can have links to only one other"));
}

#[test]
fn parallel_links_and_routes_are_accepted_if_they_agree() {
    let route = |from: &str, to: &str, via: &[&str]| PlannedRoute {
        from: from.to_owned(),
        to: to.to_owned(),
        via: via.iter().map(|site| (*site).to_owned()).collect(),
    };
    let routed = |routes: &[PlannedRoute]| {
        let links = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("a", "c")];
        let mut plan = plan(&["a", "b", "c", "d"], &links);
        plan.routing.routes = routes.to_vec();
        plan.validate().map_err(|error| (error.part, error.to_string()))
    };
    assert_eq!(routed(&[route("a", "C", &["b"]), route("c", "a", &[])]), Ok(()));
    assert_eq!(routed(&[route("a", "d", &["b", "c"]), route("b", "d", &["c"])]), Ok(()));
    for (routes, says) in [
        (vec![route("a", "x", &[])], "there is no site 'x'"),
        (vec![route("a", "d", &[])], "no link joins 'a' and 'd'"),
        (vec![route("a", "c", &["b", "a"])], "the route visits 'a' twice"),
        (vec![route("a", "a", &[])], "the route visits 'a' twice"),
    ] {
        let (part, text) = routed(&routes).unwrap_err();
        assert!(part == TopologyPart::Route(0) && text.contains(says), "{text}");
    }
    let both = [route("a", "d", &["b", "c"]), route("a", "d", &["c"])];
    let (part, text) = routed(&both).unwrap_err();
    assert_eq!(part, TopologyPart::Route(1));
    assert!(text.contains("leads packets for 'd' from 'a' to 'b'"), "{text}");
}
