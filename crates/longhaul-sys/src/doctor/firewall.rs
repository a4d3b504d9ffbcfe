//! Reads facts about packet filters.

use longhaul_core::doctor::{Chain, FirewallFacts, Seen};

use super::source::FactSource;
use crate::netfilter;

/// Reads the rule chains that filter incoming packets of this host.
pub(super) fn read(source: &FactSource) -> FirewallFacts {
    let old_tables = source.text("proc/net/ip_tables_names");
    FirewallFacts {
        chains: chains(source),
        old_tables: old_tables.map(|text| text.lines().map(str::to_owned).collect()),
    }
}

fn chains(source: &FactSource) -> Seen<Vec<Chain>> {
    let text = source.call("nftables input chains", || {
        let chains = match netfilter::input_chains() {
            Ok(chains) => chains,
            // Without the module the kernel has no rules.
            Err(error) if netfilter::is_missing(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let line = |chain: netfilter::InputChain| {
            let netfilter::InputChain { family, table, name, drops, rules } = chain;
            format!("{family} {table} {name} {} {rules}", if drops { "drop" } else { "accept" })
        };
        Ok(chains.into_iter().map(line).collect::<Vec<_>>().join("\n"))
    })?;
    let chain = |line: &str| {
        let [family, table, name, policy, rules] =
            line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        Some(Chain {
            family: str::to_owned(family),
            table: str::to_owned(table),
            name: str::to_owned(name),
            drops: policy == "drop",
            rules: rules.parse().ok()?,
        })
    };
    Ok(text.lines().filter_map(chain).collect())
}
