//! Writes the messages to begin from into `corpus/TARGET/`, where cargo-fuzz looks for them.

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    for (name, _) in longhaul_fuzz::all() {
        write(name, &longhaul_fuzz::seeds(name))?;
    }
    write("iperf3", &longhaul_fuzz::iperf3::seeds())?;
    write("nuttcp", &longhaul_fuzz::nuttcp::seeds())?;
    write("frame", &frames())
}

fn write(target: &str, seeds: &[Vec<u8>]) -> io::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&directory)?;
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(directory.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}

/// Super-packets and single ones of TCP and UDP over IPv4 and IPv6.
fn frames() -> Vec<Vec<u8>> {
    /// Kinds of segmentation (linux/virtio_net.h).
    const NONE: u8 = 0;
    const TCPV4: u8 = 1;
    const TCPV6: u8 = 4;
    const UDP_L4: u8 = 5;
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let payload: Vec<u8> = (0..2000_u32).map(|n| n as u8).collect();
    let tcp = [
        &[0x14, 0x51, 0x9c, 0x40, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x98, 1, 0, 0, 0, 0, 0],
        &payload[..],
    ];
    let udp = [&[0x14, 0xb4, 0x14, 0xb5, 0x07, 0xd8, 0, 0], &payload[..]];
    let (tcp, udp) = (tcp.concat(), udp.concat());
    vec![
        frame(TCPV4, 500, 16, &ipv4(TCP, &tcp)),
        frame(TCPV6, 500, 16, &ipv6(TCP, &tcp)),
        frame(UDP_L4, 400, 6, &ipv4(UDP, &udp)),
        frame(UDP_L4, 400, 6, &ipv6(UDP, &udp)),
        frame(NONE, 0, 16, &ipv4(TCP, &tcp)),
        frame(NONE, 0, 6, &ipv6(UDP, &udp)),
    ]
}

/// A packet behind its virtio-net header, its checksum (at an offset in the transport header) yet
/// to be completed.
fn frame(segmentation: u8, segment: u16, checksum: u16, packet: &[u8]) -> Vec<u8> {
    let transport = if packet[0] >> 4 == 4 { 20_u16 } else { 40 };
    let header = transport + if checksum == 16 { 20 } else { 8 };
    let mut frame = vec![1, segmentation];
    for field in [header, segment, transport, checksum] {
        frame.extend(field.to_le_bytes());
    }
    frame.extend(packet);
    frame
}

fn ipv4(protocol: u8, transport: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + transport.len() as u16).to_be_bytes();
    let header =
        [0x45, 2, high, low, 0, 7, 0x40, 0, 64, protocol, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
    [&header, transport].concat()
}

fn ipv6(protocol: u8, transport: &[u8]) -> Vec<u8> {
    let [high, low] = (transport.len() as u16).to_be_bytes();
    let mut header = vec![0x60, 0x20, 0, 0, high, low, protocol, 64];
    header.extend([0; 15]);
    header.push(1);
    header.extend([0; 15]);
    header.push(2);
    header.extend(transport);
    header
}
