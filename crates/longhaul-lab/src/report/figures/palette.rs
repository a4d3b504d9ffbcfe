//! The palette index of a tool, which is the same in every figure of every report. It selects a
//! color, a marker and a dash pattern.

/// The tools with a fixed color, in the order of the palette. All commands of longhaul share one.
const KNOWN: [&str; 8] =
    ["longhaul", "iperf3", "nuttcp", "scp", "rsync", "iperf", "globus-url-copy", "curl"];
/// The tools that share these colors with another marker and dash pattern.
const OTHERS: [&str; 33] = [
    "xrdcp",
    "lftp",
    "rclone",
    "sftp",
    "rsync daemon",
    "tar over ssh",
    "aria2c",
    "wget",
    "wget through squid",
    "bbcp",
    "bbftp",
    "fdt",
    "hpn-ssh",
    "mscp",
    "escp",
    "qcp",
    "udr",
    "uftp",
    "wdt",
    "tsunami",
    "irods",
    "nfs",
    "perftest",
    "aspera",
    "sshfs",
    "sshfs read",
    "nfs-ganesha",
    "nfs-ganesha read",
    "webdav",
    "webdav read",
    "xdd",
    "xrootdfs",
    "xrootdfs read",
];
/// The difference between the indices of two entries of one tool: a multiple of the number of colors
/// and dash patterns, so that only the marker differs.
const VARIANT: usize = 40;

/// Returns the palette indices of series by their drivers, in the order of the table. Several series
/// of one tool share its color and differ in their markers.
pub(super) fn palette<'a>(drivers: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let mut taken: Vec<usize> = Vec::new();
    for driver in drivers {
        let mut index = slot(driver);
        while taken.contains(&index) {
            index += VARIANT;
        }
        taken.push(index);
    }
    taken
}

fn slot(driver: &str) -> usize {
    // A pair of different programs has the color of its client.
    let client = driver.split_once(" (").map_or(driver, |(client, _)| client);
    let program = if client.starts_with("longhaul ") { "longhaul" } else { client };
    let all = KNOWN.iter().chain(&OTHERS);
    all.clone().position(|known| *known == program).unwrap_or(KNOWN.len() + OTHERS.len())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_tool_has_the_same_color_in_every_figure() {
        let first = palette(["scp", "longhaul cp", "longhaul cp"].into_iter());
        let second = palette(["longhaul test", "scp"].into_iter());
        assert_eq!((first[0], first[1]), (second[1], second[0]));
        // The palette has eight colors.
        assert_eq!(first[1] % 8, first[2] % 8);
        assert_ne!(first[1], first[2]);
    }

    #[test]
    fn every_driver_has_a_place() {
        let last = KNOWN.len() + OTHERS.len();
        for driver in crate::drivers::all(Path::new("longhaul")) {
            assert!(slot(driver.name()) < last, "{} has no color", driver.name());
        }
    }
}
