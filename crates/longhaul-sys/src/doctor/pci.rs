//! Reads facts about PCI devices.

use longhaul_core::doctor::{
    Capability, FactResult, PciFacts, PcieLink, UnknownFact, express_capability,
};

use super::FactSource;

/// The PCI part of a device's path in sysfs: the paths of the innermost function and of the bridges
/// above it.
pub(super) struct Place {
    pub(super) path: String,
    bridges: Vec<String>,
}

impl Place {
    /// Extracts the place from `path`, such as
    /// `sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/net/eth0`.
    pub(super) fn in_path(path: &str) -> Option<Place> {
        let mut functions = Vec::new();
        let mut prefix = String::new();
        for part in path.split('/') {
            if !prefix.is_empty() {
                prefix.push('/');
            }
            prefix.push_str(part);
            if is_function(part) {
                functions.push(prefix.clone());
            }
        }
        let path = functions.pop()?;
        Some(Place { path, bridges: functions })
    }
}

/// Returns whether `name` has the form `0000:3b:00.0`.
fn is_function(name: &str) -> bool {
    let shape: String = name.chars().map(|c| if c.is_ascii_hexdigit() { 'h' } else { c }).collect();
    matches!(shape.as_str(), "hhhh:hh:hh.h" | "hhhhh:hh:hh.h")
}

/// Reads the facts of a device's bus connection.
pub(super) fn read(source: &FactSource, place: &Place, sharers: u32) -> PciFacts {
    let path = &place.path;
    let device = capability(source, path);
    PciFacts {
        sharers,
        address: path.rsplit('/').next().unwrap_or(path).to_owned(),
        link: link(source, path, "current"),
        link_max: link(source, path, "max"),
        payload: device.clone().map(|found| found.payload),
        payload_supported: device.clone().and_then(|device| {
            place.bridges.iter().try_fold(device.payload_supported, |least, bridge| {
                Ok(least.min(capability(source, bridge)?.payload_supported))
            })
        }),
        read_request: device.map(|found| found.read_request),
        translation: translation(source, path),
    }
}

/// Reads the PCI Express capability. Without `CAP_SYS_ADMIN` the kernel provides only the first 64
/// bytes, which contain no capability (pci_read_config in drivers/pci/pci-sysfs.c).
fn capability(source: &FactSource, path: &str) -> FactResult<Capability> {
    let file = format!("{path}/config");
    let config = source.bytes(&file)?;
    express_capability(&config).ok_or_else(|| match config.len() {
        0..=64 => {
            UnknownFact { what: format!("/{file}"), cause: longhaul_core::doctor::Cause::Denied }
        }
        _ => UnknownFact::absent(format!("/{file}: PCI Express")),
    })
}

/// Reads a link from texts such as `8.0 GT/s PCIe` and `16`; `Unknown` or a missing file means no
/// link.
fn link(source: &FactSource, path: &str, which: &str) -> FactResult<Option<PcieLink>> {
    let text = |name: &str| source.text(&format!("{path}/{which}_link_{name}"));
    let (Ok(speed), Ok(width)) = (text("speed"), text("width")) else { return Ok(None) };
    let rate = speed.split(' ').next().and_then(|word| word.parse().ok());
    let link = rate
        .zip(width.parse().ok())
        .map(|(giga_transfers, lanes)| PcieLink { giga_transfers, lanes });
    Ok(link.filter(|link| link.lanes > 0))
}

fn translation(source: &FactSource, path: &str) -> FactResult<Option<String>> {
    use longhaul_core::doctor::Cause;
    match source.text(&format!("{path}/iommu_group/type")) {
        Ok(kind) => Ok(Some(kind)),
        Err(unseen) if unseen.cause == Cause::Absent => Ok(None),
        Err(unseen) => Err(unseen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_a_path_are_its_device_and_bridges() {
        let path = "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1/net/eth0";
        let place = Place::in_path(path).unwrap();
        assert_eq!(place.path, "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1");
        assert_eq!(place.bridges, ["sys/devices/pci0000:3a/0000:3a:00.0"]);
        assert!(Place::in_path("sys/devices/virtual/net/lo").is_none());
    }
}
