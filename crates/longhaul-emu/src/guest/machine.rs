//! The command that starts QEMU, and the facts that a guest needs about its site.

use std::env;
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::plan::GuestPlan;
use longhaul_core::result::GuestProcessor;
use longhaul_sys::poll::readable;

use super::fault::GuestFault;
use super::image::Image;
use crate::site::SiteSpec;

/// The addresses on the network card of a guest that are not routed over any link, and their prefix
/// length: those of this host and of the guest (RFC 3927).
pub(crate) const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 77, 1);
pub(super) const GUEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 77, 2);
pub(crate) const PREFIX: u8 = 30;

const QEMU: &str = "qemu-system-x86_64";

/// Returns the kind of processor that QEMU can offer on this host.
///
/// # Errors
/// A program that guests need is missing.
pub(super) fn processor(image: &Image) -> Result<GuestProcessor, GuestFault> {
    if env::consts::ARCH != "x86_64" {
        return Err(GuestFault::Architecture { architecture: env::consts::ARCH });
    }
    for (program, package) in [(QEMU, "qemu-system-x86"), ("ssh", "openssh-client")] {
        if !is_installed(program) {
            return Err(GuestFault::Program { program: program.to_owned(), package });
        }
    }
    let works = Path::new("/dev/kvm").exists() && kvm_works(image);
    Ok(if works { GuestProcessor::Hardware } else { GuestProcessor::Emulated })
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Returns whether a machine of KVM executes the kernel. On some virtual hosts the device can be
/// opened, and QEMU ends, executes nothing, or executes only the firmware.
fn kvm_works(image: &Image) -> bool {
    /// The kernel prints this line within a second.
    const LINE: &[u8] = b"Linux version";
    const LIMIT: Duration = Duration::from_secs(10);
    let mut command = quiet(Path::new(QEMU));
    command.args(["-accel", "kvm", "-cpu", "host", "-nodefaults", "-no-user-config", "-no-reboot"]);
    command.args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-m", "256"]);
    command.arg("-kernel").arg(image.file("kernel"));
    command.args(["-append", "earlyprintk=ttyS0 panic=-1"]);
    let Ok(mut child) = command.spawn() else { return false };
    let printed = child.stdout.take().is_some_and(|output| prints(output, LINE, LIMIT));
    let _ = child.kill();
    let _ = child.wait();
    printed
}

/// Returns whether `wanted` occurs in the output within the time limit.
fn prints(mut output: impl Read + AsFd, wanted: &[u8], limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    let (mut text, mut block) = (Vec::new(), [0; 4096]);
    while readable(&output, deadline.saturating_duration_since(Instant::now())) {
        match output.read(&mut block) {
            Ok(length) if length > 0 => text.extend_from_slice(&block[..length]),
            _ => return false,
        }
        if text.windows(wanted.len()).any(|part| part == wanted) {
            return true;
        }
    }
    false
}

/// Returns the command that boots the guest of a site.
pub(super) fn command(
    image: &Image,
    size: GuestPlan,
    processor: GuestProcessor,
    site: &SiteSpec,
) -> Command {
    let share = |path: PathBuf, tag: &str| {
        let path = path.display().to_string().replace(',', ",,");
        format!("local,path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap")
    };
    let (accelerator, model) = match processor {
        GuestProcessor::Hardware => ("kvm", "host"),
        GuestProcessor::Emulated => ("tcg", "max"),
    };
    let interface = site.interfaces.first().map(|interface| &*interface.name).unwrap_or_default();
    let mut command = quiet(Path::new(QEMU));
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.args(["-monitor", "none", "-serial", "stdio", "-accel", accelerator, "-cpu", model]);
    command.args(["-m", &format!("{}M", size.memory.get() >> 20)]);
    command.args(["-smp", &size.processors.to_string()]);
    command.arg("-kernel").arg(image.file("kernel")).arg("-initrd").arg(image.file("initramfs"));
    // A panic ends QEMU, and nothing attacks the guest by its processor's side channels.
    command.args(["-append", "console=ttyS0 panic=-1 quiet mitigations=off"]);
    command.args([
        "-netdev",
        &format!("tap,id=wan,ifname={interface},script=no,downscript=no"),
        "-device",
        "virtio-net-pci,netdev=wan,mac=02:00:00:00:00:03,romfile=",
        "-device",
        "virtio-rng-pci",
        "-virtfs",
        &share(PathBuf::from("/"), "host"),
        "-virtfs",
        &share(image.file("root"), "extra"),
        "-fw_cfg",
        &format!("name=opt/org.longhaul/site,string={}", facts(site, processor)),
    ]);
    command
}

/// Returns the facts that the initramfs reads, a line each.
fn facts(site: &SiteSpec, processor: GuestProcessor) -> String {
    let mtu = site.interfaces.first().map_or(1500, |interface| interface.mtu);
    let mut lines = vec![
        format!("name {}", site.own.name),
        format!("mtu {mtu}"),
        format!("window {}", site.windows.largest.get()),
        format!("processor {processor}"),
        // All other sites are on the guest's own network.
        format!("address {}/15", site.own.ipv4),
    ];
    lines.extend(site.own.ipv6.map(|ipv6| format!("address {ipv6}/48")));
    for host in &site.hosts {
        lines.extend(host.addresses().map(|address| format!("host {address} {}", host.name)));
    }
    // After the others: programs of RDMA prefer the first address of the card.
    lines.push(format!("control {GUEST_ADDRESS}/{PREFIX}\n"));
    lines.join("\n")
}

/// Returns a command whose output is read and whose input is empty.
fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use crate::device::Medium;
    use crate::site::{Host, InterfaceSpec, Windows};

    #[test]
    fn a_kernel_that_prints_something_else_or_nothing_does_not_run() {
        let found = |script: &str| {
            let mut command = quiet(Path::new("sh"));
            let mut child = command.args(["-c", script]).spawn().unwrap();
            let output = child.stdout.take().unwrap();
            let found = prints(output, b"Linux version", Duration::from_millis(500));
            child.kill().unwrap();
            child.wait().unwrap();
            found
        };
        assert!(found("printf 'Probing\nLinux ver'; sleep 0.1; echo 'sion 6.1'; exec sleep 60"));
        assert!(!found("echo Probing; exec sleep 60"));
        assert!(!found("echo Probing"));
    }

    #[test]
    fn a_guest_reads_the_facts_of_its_site() {
        let host = |name: &str, last: u8| Host {
            name: name.to_owned(),
            ipv4: Ipv4Addr::new(198, 18, 0, last),
            ipv6: (last == 1).then_some(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1)),
        };
        let spec = SiteSpec {
            own: host("vm", 1),
            attachment: None,
            guest: true,
            hosts: vec![host("vm", 1), host("far", 2)],
            interfaces: vec![InterfaceSpec { name: "wan0".into(), mtu: 9000, queues: 1 }],
            routes: Vec::new(),
            windows: Windows::default(),
            medium: Medium::Tun,
        };
        assert_eq!(
            facts(&spec, GuestProcessor::Emulated),
            "name vm\nmtu 9000\nwindow 0\nprocessor emulated\n\
             address 198.18.0.1/15\naddress 2001:2::1/48\nhost 198.18.0.1 vm\n\
             host 2001:2::1 vm\nhost 198.18.0.2 far\n\
             control 169.254.77.2/30\n"
        );
    }
}
