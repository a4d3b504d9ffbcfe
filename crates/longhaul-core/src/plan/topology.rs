//! The plan of a topology.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{LinkPlan, LinkPlanError, Side};

/// Sites and the links between them.
///
/// A plan can be built only if [`TopologyPlan::validate`] accepts it; the emulator validates again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyPlan {
    /// The name of the running topology.
    pub name: String,
    /// The names of the sites.
    pub sites: Vec<String>,
    /// The links, at most one between two sites.
    pub links: Vec<TopologyLink>,
}

/// A link of a topology.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopologyLink {
    /// The name for display and changes.
    pub name: String,
    /// The site at the near end.
    pub near: String,
    /// The site at the far end.
    pub far: String,
    /// The properties of the link.
    pub plan: LinkPlan,
}

/// A part of a topology, to locate an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyPart {
    /// The name of the topology.
    Name,
    /// The topology as a whole.
    Whole,
    /// The name of a site, by index.
    Site(usize),
    /// The name of a link, by index.
    LinkName(usize),
    /// The sites that a link joins.
    LinkEnds(usize),
    /// The properties of a link.
    LinkPlan(usize),
}

/// The reason why a topology is invalid, with its place.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{fault}")]
pub struct TopologyError {
    /// The invalid part.
    pub part: TopologyPart,
    /// The error.
    pub fault: TopologyFault,
}

/// The errors of a topology.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TopologyFault {
    /// Too few or too many sites.
    #[error("a topology has 2 to {} sites, and this one has {sites}", TopologyPlan::MAX_SITES)]
    SiteCount {
        /// The number of sites.
        sites: usize,
    },
    /// No link, or too many.
    #[error("a topology has 1 to {} links, and this one has {links}", TopologyPlan::MAX_LINKS)]
    LinkCount {
        /// The number of links.
        links: usize,
    },
    /// A name that some programs would reject.
    #[error(
        "'{name}' cannot be a name: use 1 to {} letters, digits and hyphens, with a letter or a \
         digit first and last",
        TopologyPlan::MAX_NAME
    )]
    Name {
        /// The given name.
        name: String,
    },
    /// A name that is reserved inside of sites.
    #[error("a site cannot have the reserved name '{name}'")]
    Reserved {
        /// The given name.
        name: String,
    },
    /// Two sites or two links with one name, ignoring case.
    #[error("there is another {what} with the name '{name}'")]
    Twice {
        /// `site` or `link`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Two sites with the same environment variable for their addresses.
    #[error("'{name}' and '{other}' would share the environment variable {variable}")]
    Variable {
        /// The first name.
        name: String,
        /// The second name.
        other: String,
        /// The common variable.
        variable: String,
    },
    /// A link to an unknown site.
    #[error("there is no site '{site}'")]
    UnknownSite {
        /// The name of the site.
        site: String,
    },
    /// A link whose ends are the same site.
    #[error("a link must join two different sites, not '{site}' to itself")]
    Loop {
        /// The name of the site.
        site: String,
    },
    /// A second link between two sites, which no route would use.
    #[error("link '{link}' already joins '{near}' and '{far}'")]
    Parallel {
        /// The near end.
        near: String,
        /// The far end.
        far: String,
        /// The first link between them.
        link: String,
    },
    /// The properties of a link are invalid.
    #[error(transparent)]
    Link(LinkPlanError),
}

impl TopologyPlan {
    /// The most sites. Each site is a thread and a process, and has an entry in every site's
    /// tables.
    pub const MAX_SITES: usize = 250;
    /// The most links. Each link is a thread.
    pub const MAX_LINKS: usize = 1000;
    /// The longest name: that of a label in the domain name system (RFC 1035, section 2.3.4).
    pub const MAX_NAME: usize = 63;

    /// Creates the topology of one link between the sites `near` and `far`.
    pub fn pair(plan: LinkPlan) -> Self {
        let [near, far] = Side::BOTH.map(|side| side.name().to_owned());
        let link = TopologyLink { name: "link".into(), near: near.clone(), far: far.clone(), plan };
        TopologyPlan { name: "pair".into(), sites: vec![near, far], links: vec![link] }
    }

    /// Returns the index of a site.
    pub fn site(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| site.eq_ignore_ascii_case(name))
    }

    /// Returns the index of a link.
    pub fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name.eq_ignore_ascii_case(name))
    }

    /// Returns the environment variable with the IPv4 address of a site: `LONGHAUL_` and its name
    /// in upper case, with underscores for hyphens.
    pub fn variable(site: &str) -> String {
        format!("LONGHAUL_{}", site.to_ascii_uppercase().replace('-', "_"))
    }

    /// Returns the environment variable with the IPv6 address of a site.
    pub fn variable_v6(site: &str) -> String {
        format!("{}_IPV6", Self::variable(site))
    }

    /// Checks the whole plan.
    ///
    /// # Errors
    /// The first invalid part.
    pub fn validate(&self) -> Result<(), TopologyError> {
        let at = |part| move |fault| TopologyError { part, fault };
        check_name(&self.name).map_err(at(TopologyPart::Name))?;
        self.validate_sites()?;
        let links = self.links.len();
        if !(1..=Self::MAX_LINKS).contains(&links) {
            return Err(at(TopologyPart::Whole)(TopologyFault::LinkCount { links }));
        }
        for (index, link) in self.links.iter().enumerate() {
            check_name(&link.name).map_err(at(TopologyPart::LinkName(index)))?;
            if self.link(&link.name) != Some(index) {
                let fault = TopologyFault::Twice { what: "link", name: link.name.clone() };
                return Err(at(TopologyPart::LinkName(index))(fault));
            }
            self.check_ends(index).map_err(at(TopologyPart::LinkEnds(index)))?;
            let checked = link.plan.validate().map_err(TopologyFault::Link);
            checked.map_err(at(TopologyPart::LinkPlan(index)))?;
        }
        Ok(())
    }

    fn validate_sites(&self) -> Result<(), TopologyError> {
        let sites = self.sites.len();
        if !(2..=Self::MAX_SITES).contains(&sites) {
            let fault = TopologyFault::SiteCount { sites };
            return Err(TopologyError { part: TopologyPart::Whole, fault });
        }
        let mut variables = BTreeMap::new();
        for (index, name) in self.sites.iter().enumerate() {
            self.check_site(index, name, &mut variables)
                .map_err(|fault| TopologyError { part: TopologyPart::Site(index), fault })?;
        }
        Ok(())
    }

    fn check_site<'a>(
        &self,
        index: usize,
        name: &'a str,
        variables: &mut BTreeMap<String, &'a str>,
    ) -> Result<(), TopologyFault> {
        check_name(name)?;
        // `site` would become LONGHAUL_SITE, which contains the name of the current site.
        if ["localhost", "site"].iter().any(|taken| name.eq_ignore_ascii_case(taken)) {
            return Err(TopologyFault::Reserved { name: name.to_owned() });
        }
        if self.site(name) != Some(index) {
            return Err(TopologyFault::Twice { what: "site", name: name.to_owned() });
        }
        for variable in [Self::variable(name), Self::variable_v6(name)] {
            if let Some(other) = variables.insert(variable.clone(), name) {
                let (name, other) = (name.to_owned(), other.to_owned());
                return Err(TopologyFault::Variable { name, other, variable });
            }
        }
        Ok(())
    }

    fn check_ends(&self, index: usize) -> Result<(), TopologyFault> {
        let ends = |link: &TopologyLink| [&link.near, &link.far].map(|name| self.site(name));
        let link = &self.links[index];
        let found = ends(link);
        for (end, site) in found.iter().zip([&link.near, &link.far]) {
            if end.is_none() {
                return Err(TopologyFault::UnknownSite { site: site.clone() });
            }
        }
        if found[0] == found[1] {
            return Err(TopologyFault::Loop { site: link.near.clone() });
        }
        let same = |other: &&TopologyLink| {
            let other = ends(other);
            other == found || other == [found[1], found[0]]
        };
        match self.links[..index].iter().find(same) {
            None => Ok(()),
            Some(other) => Err(TopologyFault::Parallel {
                near: link.near.clone(),
                far: link.far.clone(),
                link: other.name.clone(),
            }),
        }
    }
}

/// Checks the syntax of host names (RFC 1123, section 2.1), which every resolver and shell accepts.
fn check_name(name: &str) -> Result<(), TopologyFault> {
    let bytes = name.as_bytes();
    let fits = (1..=TopologyPlan::MAX_NAME).contains(&bytes.len());
    let known = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    let hyphen = |end: Option<&u8>| end == Some(&b'-');
    if fits && known && !hyphen(bytes.first()) && !hyphen(bytes.last()) {
        return Ok(());
    }
    Err(TopologyFault::Name { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
            links: links.iter().map(link).collect(),
        }
    }

    #[test]
    fn sense_is_accepted() {
        let pair = TopologyPlan::pair(LinkPlan::symmetric(Duration::ZERO));
        assert!(pair.validate().is_ok());
        let three =
            plan(&["GSFC", "star-light", "arc2"], &[("gsfc", "star-light"), ("GSFC", "arc2")]);
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
        for (plan, part, says) in [
            (plan(&["a"], &[]), Whole, "a topology has 2 to 250 sites, and this one has 1"),
            (plan(&["a", "b"], &[]), Whole, "a topology has 1 to 1000 links"),
            (plan(&["a", "b_c"], &[("a", "b_c")]), Site(1), "'b_c' cannot be a name"),
            (plan(&["a", "-b"], &[]), Site(1), "'-b' cannot be a name"),
            (plan(&["a", "Localhost"], &[]), Site(1), "cannot have the reserved name"),
            (plan(&["a", "b", "A"], &[]), Site(2), "there is another site with the name 'A'"),
            (
                plan(&["a", "a-ipv6"], &[]),
                Site(1),
                "share the environment variable LONGHAUL_A_IPV6",
            ),
            (twice, LinkName(1), "there is another link with the name 'A-B'"),
            (plan(&["a", "b"], &[("a", "c")]), LinkEnds(0), "there is no site 'c'"),
            (plan(&["a", "b"], &[("b", "B")]), LinkEnds(0), "must join two different sites"),
            (plan(&["a", "b"], &[("a", "b"), ("b", "a")]), LinkEnds(1), "link 'a-b' already joins"),
            (tiny, Plan(0), "an MTU of 10 is outside"),
        ] {
            let error = plan.validate().unwrap_err();
            assert_eq!(error.part, part, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
