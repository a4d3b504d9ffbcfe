//! The nftables chains that filter packets for this host (`include/uapi/linux/netfilter/`).

use std::io;

use crate::netlink::{Netlink, Request, attribute};

/// A chain of rules at the input hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputChain {
    /// `inet`, `ip` or `ip6`.
    pub family: &'static str,
    /// The table of the chain.
    pub table: String,
    /// The name of the chain.
    pub name: String,
    /// True if the policy of the chain is to drop.
    pub drops: bool,
    /// The number of rules.
    pub rules: u32,
}

/// Returns the chains at the input hook in the calling thread's network namespace.
///
/// # Errors
/// `CAP_NET_ADMIN` over the namespace is missing, or the kernel has [no nftables](is_missing).
pub fn input_chains() -> io::Result<Vec<InputChain>> {
    // nfnetlink.h and nf_tables.h
    const SUBSYSTEM_NFTABLES: u16 = 10;
    const MSG_GETCHAIN: u16 = 4;
    const GENMSG_BYTES: usize = 4; // family, version, resource
    let request = Request::new(
        (SUBSYSTEM_NFTABLES << 8) | MSG_GETCHAIN,
        libc::NLM_F_DUMP,
        &[0; GENMSG_BYTES],
    );
    let answers = Netlink::open(libc::NETLINK_NETFILTER)?.answers(request)?;
    Ok(answers.iter().filter_map(|answer| chain(answer, GENMSG_BYTES)).collect())
}

/// Returns whether an error of [`input_chains`] means that this kernel has no nftables.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPROTONOSUPPORT | libc::EOPNOTSUPP | libc::EINVAL | libc::ENOENT)
    )
}

/// Parses one answer; `None` for a chain of another family or hook.
fn chain(answer: &[u8], header: usize) -> Option<InputChain> {
    // nf_tables.h: NFTA_CHAIN_TABLE, NAME, HOOK, POLICY, USE; NFTA_HOOK_HOOKNUM.
    const TABLE: u16 = 1;
    const NAME: u16 = 3;
    const HOOK: u16 = 4;
    const POLICY: u16 = 5;
    const USE: u16 = 6;
    const HOOK_NUMBER: u16 = 1;
    const LOCAL_IN: u32 = 1; // NF_INET_LOCAL_IN
    const DROP: u32 = 0; // NF_DROP
    let family = match i32::from(*answer.first()?) {
        1 => "inet", // NFPROTO_INET
        libc::AF_INET => "ip",
        libc::AF_INET6 => "ip6",
        _ => return None,
    };
    let attributes = answer.get(header..)?;
    let number = |bytes: &[u8], kind| {
        attribute(bytes, kind).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_be_bytes(*bytes))
    };
    let text = |kind| {
        let bytes = attribute(attributes, kind)?;
        Some(String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned())
    };
    if number(attribute(attributes, HOOK)?, HOOK_NUMBER)? != LOCAL_IN {
        return None;
    }
    Some(InputChain {
        family,
        table: text(TABLE)?,
        name: text(NAME)?,
        drops: number(attributes, POLICY) == Some(DROP),
        rules: number(attributes, USE).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::NestedAttributes;

    fn answer(hook: u32) -> Vec<u8> {
        let at = NestedAttributes::new(&[]).with(1, &hook.to_be_bytes()).with(2, &[0; 4]);
        NestedAttributes::new(&[1, 0, 0, 0])
            .with(1, b"filter\0")
            .with(3, b"input\0")
            .with(4 | 0x8000, at.bytes())
            .with(5, &0u32.to_be_bytes())
            .with(6, &7u32.to_be_bytes())
            .bytes()
            .to_vec()
    }

    #[test]
    fn chains_of_the_input_hook_are_read() {
        let found = chain(&answer(1), 4).unwrap();
        assert_eq!((found.family, &*found.table, &*found.name), ("inet", "filter", "input"));
        assert_eq!((found.drops, found.rules), (true, 7));
        assert_eq!(chain(&answer(2), 4), None, "what is forwarded is no concern");
        assert_eq!(chain(&[], 4), None);
    }

    #[test]
    fn this_host_answers_or_has_none() {
        if let Err(error) = input_chains() {
            assert!(is_missing(&error) || error.raw_os_error() == Some(libc::EPERM), "{error}");
        }
    }
}
