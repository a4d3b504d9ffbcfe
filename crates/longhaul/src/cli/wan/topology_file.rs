//! Parses topology files (TOML), and reports errors with line and column.
//!
//! docs/guide/wan.md describes the format. The keys of a link are the names of the link options, as
//! on the command line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use longhaul_core::plan::link::derive_seed;
use longhaul_core::plan::{
    Attachment, FlowHash, GuestPlan, LinkOptions, PlannedRoute, Routing, TopologyLink,
    TopologyPart, TopologyPlan,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file_values::{
    Fault, FileError, Reason, boolean, names, scalar, span, string, table, tables, two_names,
    unknown, unknown_link_key, whole_number, wrong_type,
};
use super::shipped;
use crate::cli::link::{open_trace, read_text};

/// A valid topology file.
#[derive(Debug)]
pub(super) struct TopologyFile {
    pub(super) plan: TopologyPlan,
    pub(super) description: Option<String>,
}

impl TopologyFile {
    /// Loads the file at `wanted`, or the shipped topology of that name. `name` overrides the name
    /// of the file as the name of the topology.
    pub(super) fn load(wanted: &Path, name: Option<&str>) -> Result<TopologyFile, FileError> {
        if let Some(shipped) = wanted.to_str().and_then(shipped::find)
            && !wanted.exists()
        {
            let name = name.unwrap_or(shipped.name);
            return Self::parse(shipped.name, Path::new("."), shipped.text, name);
        }
        let text = read_text(wanted)
            .map_err(|source| FileError::Read { path: wanted.to_owned(), source })?;
        let stem = wanted.file_stem().unwrap_or_default().to_string_lossy();
        let directory = wanted.parent().unwrap_or(Path::new("."));
        Self::parse(&wanted.display().to_string(), directory, &text, name.unwrap_or(&stem))
    }

    /// Parses the text of the file `file`. Relative paths in it start at `directory`.
    pub(super) fn parse(
        file: &str,
        directory: &Path,
        text: &str,
        name: &str,
    ) -> Result<TopologyFile, FileError> {
        read(text, directory, name).map_err(|(span, reason)| {
            let before = &text[..text.floor_char_boundary(span.start)];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            FileError::At { file: file.to_owned(), line, column, reason }
        })
    }
}

/// The positions of the parts of a plan in the text.
#[derive(Debug, Default)]
struct Places {
    sites: Vec<Range<usize>>,
    links: Vec<LinkPlaces>,
    routes: Vec<Range<usize>>,
    failover: Range<usize>,
}

#[derive(Debug, Clone)]
struct LinkPlaces {
    span: Range<usize>,
    name: Range<usize>,
    ends: Range<usize>,
}

impl Places {
    /// Returns the position of a part of the plan.
    fn of(&self, part: TopologyPart) -> Range<usize> {
        match part {
            TopologyPart::Site(index) => self.sites[index].clone(),
            TopologyPart::LinkName(index) => self.links[index].name.clone(),
            TopologyPart::LinkEnds(index) => self.links[index].ends.clone(),
            TopologyPart::LinkPlan(index) => self.links[index].span.clone(),
            TopologyPart::Route(index) => self.routes[index].clone(),
            TopologyPart::Failover => self.failover.clone(),
            TopologyPart::Name | TopologyPart::Whole => 0..0,
        }
    }
}

/// The keys of a site.
const SITE_KEYS: &str = "name, attach, vm, vm-memory and vm-processors";

/// The keys of a file.
const KEYS: &str = "description, seed, site, link, route, hash, failover and shortest";

fn read(text: &str, directory: &Path, name: &str) -> Result<TopologyFile, Fault> {
    let root = DeTable::parse(text).map_err(|error| {
        let message = error.message().trim().replace('\n', "; ");
        (error.span().unwrap_or_default(), Reason::Syntax(message))
    })?;
    let mut places = Places::default();
    let mut description = None;
    let mut seed = None;
    let mut plan = TopologyPlan {
        name: name.to_owned(),
        sites: Vec::new(),
        attachments: BTreeMap::new(),
        guests: BTreeMap::new(),
        links: Vec::new(),
        routing: Routing::default(),
    };
    for (key, value) in root.get_ref() {
        match &**key.get_ref() {
            "description" => description = Some(string("description", value)?.to_owned()),
            "seed" => seed = Some(whole_number("seed", value)?),
            "site" => {
                for site in tables("site", value)? {
                    let FileSite { name, span, attachment, guest } = read_site(site)?;
                    plan.attachments.extend(attachment.map(|to| (name.clone(), to)));
                    plan.guests.extend(guest.map(|guest| (name.clone(), guest)));
                    plan.sites.push(name);
                    places.sites.push(span);
                }
            }
            "link" => {
                for link in tables("link", value)? {
                    read_link(link, directory, &mut plan, &mut places)?;
                }
            }
            "route" => {
                for route in tables("route", value)? {
                    plan.routing.routes.push(read_route(route)?);
                    places.routes.push(route.span());
                }
            }
            "hash" => {
                let wrong = |wanted| wrong_type("hash", value, wanted);
                plan.routing.hash = string("hash", value)?.parse::<FlowHash>().map_err(wrong)?;
            }
            "failover" => {
                plan.routing.failover = span("failover", value)?;
                places.failover = value.span();
            }
            "shortest" => plan.routing.shortest = boolean("shortest", value)?,
            other => return Err(unknown(key.span(), other, KEYS)),
        }
    }
    // Each link has its own seed; links with the same seed would lose the same packets.
    for (link, root) in plan.links.iter_mut().zip(seed.into_iter().cycle()) {
        link.plan.seed.get_or_insert_with(|| derive_seed(root, &[&link.name]));
    }
    plan.validate().map_err(|error| (places.of(error.part), Reason::Topology(error.fault)))?;
    Ok(TopologyFile { plan, description })
}

/// A site of a file.
struct FileSite {
    name: String,
    /// The position of the name.
    span: Range<usize>,
    attachment: Option<Attachment>,
    guest: Option<GuestPlan>,
}

fn read_site(site: &Spanned<DeValue<'_>>) -> Result<FileSite, Fault> {
    let (mut name, mut attachment, mut is_guest) = (None, None, false);
    let (mut size, mut sized) = (GuestPlan::default(), None);
    for (key, value) in table("site", site)? {
        match &**key.get_ref() {
            "name" => name = Some((string("name", value)?.to_owned(), value.span())),
            "attach" => {
                let wrong = |wanted| wrong_type("attach", value, wanted);
                attachment = Some(string("attach", value)?.parse().map_err(wrong)?);
            }
            "vm" => is_guest = boolean("vm", value)?,
            "vm-memory" => {
                let wrong =
                    |_| wrong_type("vm-memory", value, "a size as a text, such as \"1GiB\"");
                size.memory = string("vm-memory", value)?.parse().map_err(wrong)?;
                sized = Some(key.span());
            }
            "vm-processors" => {
                let count = whole_number("vm-processors", value)?;
                // The plan refuses a number that is too large.
                size.processors = u32::try_from(count).unwrap_or(u32::MAX);
                sized = Some(key.span());
            }
            other => return Err(unknown(key.span(), other, SITE_KEYS)),
        }
    }
    if let Some(span) = sized.filter(|_| !is_guest) {
        return Err((span, Reason::Missing { key: "vm = true" }));
    }
    let (name, span) = name.ok_or((site.span(), Reason::Missing { key: "name" }))?;
    Ok(FileSite { name, span, attachment, guest: is_guest.then_some(size) })
}

/// Reads a link, or several with `count`, into the plan.
fn read_link(
    link: &Spanned<DeValue<'_>>,
    directory: &Path,
    plan: &mut TopologyPlan,
    places: &mut Places,
) -> Result<(), Fault> {
    let mut name = None;
    let mut between = None;
    let mut count = None;
    let mut options = LinkOptions::default();
    let table = table("link", link)?;
    for (key, value) in table {
        match &**key.get_ref() {
            "name" => name = Some((string("name", value)?.to_owned(), value.span())),
            "between" => between = Some((two_names(value)?, value.span())),
            "count" => count = Some(read_count(value)?),
            option if !LinkOptions::knows(option) => {
                return Err(unknown_link_key(key.span(), option));
            }
            option => options
                .set(option, scalar(option, value)?)
                .map_err(|error| (key.span(), Reason::Link(error)))?,
        }
    }
    let ([near, far], ends) = between.ok_or((link.span(), Reason::Missing { key: "between" }))?;
    let read = |file: &str| open_trace(&directory.join(file).to_string_lossy());
    let link_plan = options.plan(&read).map_err(|error| {
        let at_option = error.option().and_then(|option| table.get(option)).map(Spanned::span);
        (at_option.unwrap_or_else(|| link.span()), Reason::Link(error))
    })?;
    let taken = |name: &String| plan.links.iter().any(|other| other.name == *name);
    let (name, name_span) = match (name, count) {
        (Some((name, span)), _) => (name, span),
        (None, Some(_)) => (format!("{near}-{far}"), ends.clone()),
        // A parallel link without a name gets a number.
        (None, None) => {
            let plain = [format!("{near}-{far}")].into_iter();
            let numbered = (2..).map(|number| format!("{near}-{far}-{number}"));
            let free = plain.chain(numbered).find(|name| !taken(name));
            (free.unwrap_or_default(), ends.clone())
        }
    };
    for number in 1..=count.unwrap_or(1) {
        let name = if count.is_some() { format!("{name}-{number}") } else { name.clone() };
        let (near, far, plan_of_link) = (near.clone(), far.clone(), link_plan.clone());
        plan.links.push(TopologyLink { name, near, far, plan: plan_of_link });
        let (span, name, ends) = (link.span(), name_span.clone(), ends.clone());
        places.links.push(LinkPlaces { span, name, ends });
    }
    Ok(())
}

fn read_count(value: &Spanned<DeValue<'_>>) -> Result<u64, Fault> {
    let count = whole_number("count", value)?;
    if (1..=TopologyPlan::MAX_LINKS as u64).contains(&count) {
        return Ok(count);
    }
    Err(wrong_type("count", value, "a number of links from 1 to 1000"))
}

fn read_route(route: &Spanned<DeValue<'_>>) -> Result<PlannedRoute, Fault> {
    let (mut from, mut to, mut via) = (None, None, Vec::new());
    for (key, value) in table("route", route)? {
        match &**key.get_ref() {
            "from" => from = Some(string("from", value)?.to_owned()),
            "to" => to = Some(string("to", value)?.to_owned()),
            "via" => via = names("via", value)?,
            other => return Err(unknown(key.span(), other, "from, to and via")),
        }
    }
    let missing = |key| (route.span(), Reason::Missing { key });
    Ok(PlannedRoute {
        from: from.ok_or_else(|| missing("from"))?,
        to: to.ok_or_else(|| missing("to"))?,
        via,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::units::{Bytes, Rate};

    use super::*;

    const SITES: &str = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n";

    fn parse(text: &str) -> Result<TopologyFile, FileError> {
        TopologyFile::parse("my.toml", Path::new("/nonexistent"), text, "mine")
    }

    #[test]
    fn link_options_apply_to_each_direction() {
        let text = format!(
            "description = 'two'\nseed = 7\n{SITES}[[link]]\nbetween = [\"a\", \"b\"]\n\
             rtt = '90ms'\nrate = '1G'\nup-rate = 10_000_000\nloss = 1e-4\n"
        );
        let TopologyFile { plan, description } = parse(&text).unwrap();
        assert_eq!(description.as_deref(), Some("two"));
        let link = &plan.links[0];
        assert_eq!((&*plan.name, &*link.name, &*link.near, &*link.far), ("mine", "a-b", "a", "b"));
        assert_eq!(link.plan.rtt(), Duration::from_millis(90));
        assert_eq!(link.plan.up.rate_bps, Some(Rate::from_bps(10_000_000)));
        assert_eq!(link.plan.down.rate_bps, Some(Rate::from_bps(1_000_000_000)));
        assert!(link.plan.up.loss.is_some());
        assert_eq!(link.plan.seed, Some(derive_seed(7, &["a-b"])));
    }

    #[test]
    fn parallel_links_and_routes_are_read() {
        let text = format!(
            "hash = 'layer3'\nfailover = '100ms'\nshortest = true\n{SITES}\
             [[link]]\nbetween = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\n\
             [[link]]\nname = 'wave'\nbetween = [\"b\", \"a\"]\ncount = 3\n\
             [[route]]\nfrom = 'a'\nto = 'b'\n"
        );
        let plan = parse(&text).unwrap().plan;
        let names: Vec<&str> = plan.links.iter().map(|link| &*link.name).collect();
        assert_eq!(names, ["a-b", "a-b-2", "wave-1", "wave-2", "wave-3"]);
        let route = PlannedRoute { from: "a".into(), to: "b".into(), via: Vec::new() };
        let routing = Routing {
            hash: FlowHash::Addresses,
            failover: Duration::from_millis(100),
            shortest: true,
            routes: vec![route],
        };
        assert_eq!(plan.routing, routing);
    }

    #[test]
    fn a_virtual_machine_is_a_site_with_a_size() {
        let link = "[[link]]\nbetween = ['a', 'b']\n";
        let guest = |keys: &str| {
            let text = format!("[[site]]\nname = 'a'\n{keys}\n[[site]]\nname = 'b'\n{link}");
            parse(&text).map(|file| file.plan.guests.get("a").copied()).map_err(|e| e.to_string())
        };
        assert_eq!(guest("vm = false"), Ok(None));
        assert_eq!(guest("vm = true"), Ok(Some(GuestPlan::default())));
        let size = GuestPlan { memory: Bytes::gib(2), processors: 4 };
        assert_eq!(guest("vm = true\nvm-memory = '2GiB'\nvm-processors = 4"), Ok(Some(size)));
        for (keys, says) in [
            ("vm = 1", "my.toml:3:6: 'vm' must be"),
            ("vm-memory = '2GiB'", "my.toml:3:1: 'vm = true' is missing here"),
            ("vm = true\nvm-memory = 'big'", "my.toml:4:13: 'vm-memory' must be a size"),
            ("vm = true\nvm-memory = '1MiB'", "my.toml:2:8: 'a' needs at least 256 MiB"),
            ("vm = true\nvm-processors = 0", "my.toml:2:8: 'a' can have 1 to 64 processors"),
            ("vm = true\nattach = 'tap:x'", "my.toml:2:8: 'a' cannot be both"),
        ] {
            let error = guest(keys).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn an_invalid_file_is_reported_with_line_and_column() {
        let link = |rest: &str| format!("{SITES}[[link]]\nbetween = [\"a\", \"b\"]\n{rest}");
        for (text, expected) in [
            ("[[site]\n".to_owned(), "my.toml:1:"),
            (format!("{SITES}speed = 1"), "my.toml:5:1: unknown key 'speed'; the keys are name"),
            (SITES.to_owned(), "my.toml:1:1: a topology has 1 to 1000 links"),
            ("sites = 3\n".to_owned(), "my.toml:1:1: unknown key 'sites'"),
            ("site = 3\n".to_owned(), "my.toml:1:8: 'site' must be a list of tables"),
            ("[[site]]\nname = 3\n".to_owned(), "my.toml:2:8: 'name' must be a text"),
            ("[[site]]\n".to_owned(), "my.toml:1:1: 'name' is missing here"),
            (
                "[[site]]\nname = 'a b'\n[[site]]\nname = 'b'".into(),
                "my.toml:2:8: 'a b' is not a valid",
            ),
            (format!("{SITES}[[link]]\n"), "my.toml:5:1: 'between' is missing here"),
            (format!("{SITES}[[link]]\nbetween = ['a']"), "my.toml:6:11: 'between' must be the"),
            (format!("{SITES}[[link]]\nbetween = ['a','c']"), "my.toml:6:11: there is no site 'c'"),
            (link("rtt = '90parsecs'"), "my.toml:7:7: rtt cannot be '90parsecs'"),
            (link("rtt = true"), "my.toml:7:7: 'rtt' must be a number, or a text"),
            (link("loss = 1.5"), "my.toml:7:8: loss cannot be '1.5'"),
            (link("weather = 'rain'"), "my.toml:7:1: unknown key 'weather'; the keys are name, "),
            (link("betwen = 1"), "my.toml:7:1: unknown key 'betwen'; did you mean 'between'?"),
            (link("up-los = 0.1"), "my.toml:7:1: unknown key 'up-los'; did you mean 'up-loss'?"),
            (
                format!("[[site]]\nattach = 'x'\n{}", link("")),
                "my.toml:2:10: 'attach' must be \"netns:",
            ),
            (link("count = 0"), "my.toml:7:9: 'count' must be a number of links from 1 to 1000"),
            (link("[[route]]\nfrom = 'a'"), "my.toml:7:1: 'to' is missing here"),
            (link("[[route]]\nfrom = 'a'\nto = 'a'"), "my.toml:7:1: the route visits 'a' twice"),
            (link("[[route]]\nfrom='a'\nto='b'\nvia='x'"), "my.toml:10:5: 'via' must be a list"),
            (format!("failover = '2h'\n{}", link("")), "my.toml:1:12: a failover time is at most"),
            (format!("hash = 'crc'\n{SITES}"), "my.toml:1:8: 'hash' must be \"layer3+4\""),
            (link("loss-trace = 'none.txt'"), "my.toml:7:14: loss-trace none.txt: the file"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}\nfor {text}");
        }
    }
}
