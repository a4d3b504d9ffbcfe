//! The readers of the messages of nuttcp: lines of both ends, reports and datagrams, and the
//! command line.
//!
//! The fuzz target `nuttcp` calls this, and so does `crates/longhaul-interop/tests/hostile_nuttcp.rs`.

use longhaul_interop::nuttcp::datagram::Received;
use longhaul_interop::nuttcp::{
    Client, ClientEvent, Interval, Parameters, Server, Version, arguments,
};

/// Reads `bytes` as both ends of a control connection, as a datagram and as a command line. The
/// first byte is the length of the pieces in which they arrive.
pub fn nuttcp(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let size = usize::from(*size).max(1);
    read_server(bytes, size);
    read_client(bytes, size);
    let mut received = Received::default();
    bytes.chunks(size).for_each(|datagram| received.datagram(datagram, std::time::Duration::ZERO));
    assert!(received.bytes <= bytes.len() as u64);
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<String> = text.split_whitespace().take(32).map(str::to_owned).collect();
    let _ = arguments::parse(&words);
}

/// Reads the lines of a server.
fn read_server(bytes: &[u8], size: usize) {
    let mut client = Client::new(Parameters::default());
    for piece in bytes.chunks(size) {
        let Ok(events) = client.receive(piece) else { return };
        for event in events {
            if let ClientEvent::Interval(line, interval) = event {
                assert!(interval.seconds > 0.0 && line.len() <= 4096);
            }
        }
        let _ = client.output();
    }
    if let Ok(ClientEvent::Finished(report)) = client.end() {
        assert!(report.lines.len() <= 64);
        assert!(report.seconds.is_none_or(f64::is_finite));
    }
}

/// Reads the lines of a client. An accepted request reads back as the same.
fn read_client(bytes: &[u8], size: usize) {
    let mut server = Server::default();
    for piece in bytes.chunks(size) {
        match server.receive(piece) {
            Ok(None) => {}
            Ok(Some((parameters, _))) => {
                assert!((1..=128).contains(&parameters.streams) && parameters.port >= 1024);
                let line = parameters.line(Version::OURS);
                let (again, _) = Parameters::parse(&line).expect("an accepted request");
                assert_eq!((again.streams, again.port), (parameters.streams, parameters.port));
                return;
            }
            Err(_) => return,
        }
    }
    let _ = Interval::parse(&String::from_utf8_lossy(bytes));
}

/// Inputs to begin from.
pub fn seeds() -> Vec<Vec<u8>> {
    let line = Parameters::default().line(Version::OURS);
    let texts = [
        format!("HELO nuttcp v8.2.2\n{line}\n"),
        "HELO nuttcp v8.2.2\nOK v8.2.2\n  587.0000 MB /   0.50 sec = 9847.5759 Mbps     5 retrans  \
         447 KB-cwnd\nDONE\nnuttcp-r: 1116.3860 MB in 1.00 real seconds = 1140348.91 KB/sec = \
         9341.7383 Mbps\nnuttcp-r: 0.0user 0.3sys 0:01real 37% 0i+0d 7270maxrss\n"
            .to_owned(),
        "HELO nuttcp v6.1.2\nOK v6.1.2\nmegabytes=1.0 real_sec=0.50 rate_Mbps=2.5 drop=1 pkt=2 \
         data_loss=0.5\nnuttcp-t: retrans=6 cwnd=383\nnuttcp-t: connect=127.0.0.1 rtt_ms=0.09\n"
            .to_owned(),
        "HELO nuttcp v8.2.2\nKO\nnuttcp: invalid port\nKO\n".to_owned(),
        "-w4m -N4 -T 10 -i -Ri300m/100 -c 32T -p 5200:5101 -xc0/1 -fparse host".to_owned(),
        "BOD0".to_owned(),
    ];
    texts.map(|text| [&[64], text.as_bytes()].concat()).to_vec()
}
