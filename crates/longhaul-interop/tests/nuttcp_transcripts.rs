//! Transcripts of the control channel between real nuttcp programs, against the state machines and
//! the reports. `bench/interop/record_nuttcp.py` recorded them.

use std::fs;
use std::path::Path;

use longhaul_interop::nuttcp::{
    Block, BlockTotals, Brief, Client, ClientEvent, Datagrams, Interval, Opening, Parameters,
    Retransmits, Server, ServerReport, Spread, Style, Version,
};

/// One recorded test.
struct Transcript {
    name: String,
    client: Version,
    server: Version,
    /// The lines of the client and of the server, with their ends.
    sent: Vec<String>,
    answered: Vec<String>,
    /// The lines that the client printed.
    printed: Vec<String>,
}

impl Transcript {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let marked = |mark: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
            lines.filter(|line| *line != "EOF").map(str::to_owned).collect::<Vec<_>>()
        };
        let head = text.lines().next().unwrap().to_owned();
        let mut words = head.split(' ').skip(1).map(|word| Version::parse(&format!("v{word}")));
        Transcript {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            client: words.next().unwrap().unwrap(),
            server: words.next().unwrap().unwrap(),
            sent: marked("> "),
            answered: marked("< "),
            printed: marked("| "),
        }
    }

    fn all() -> Vec<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/nuttcp");
        let mut paths: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert!(paths.len() > 40, "{} transcripts", paths.len());
        paths.iter().map(|path| Self::read(path)).collect()
    }

    fn parameters(&self) -> Parameters {
        Parameters::parse(&self.sent[1]).unwrap().0
    }

    /// Returns our client with the state after the server's lines, and its events.
    fn run_client(&self) -> (Client, Vec<ClientEvent>) {
        let mut client = Client::new(self.parameters());
        client.output();
        let mut events = Vec::new();
        for line in &self.answered {
            events.extend(client.receive(format!("{line}\n").as_bytes()).unwrap());
        }
        (client, events)
    }

    fn report(&self) -> ServerReport {
        match self.run_client().0.end().unwrap() {
            ClientEvent::Finished(report) => *report,
            other => panic!("{}: {other:?}", self.name),
        }
    }
}

#[test]
fn the_option_line_of_every_version_is_read_and_written_byte_for_byte() {
    for transcript in Transcript::all() {
        let (parameters, version) = Parameters::parse(&transcript.sent[1]).unwrap();
        assert_eq!(version, transcript.client, "{}", transcript.name);
        let oldest = transcript.client.min(transcript.server);
        let ours = parameters.line(oldest);
        let vers = format!("vers = {}", transcript.client);
        let theirs = transcript.sent[1].replace(&vers, &format!("vers = {}", Version::OURS));
        assert_eq!(ours, theirs, "{}", transcript.name);
    }
}

#[test]
fn the_server_answers_every_client() {
    for transcript in Transcript::all() {
        let mut server = Server::default();
        assert_eq!(server.receive(format!("{}\n", transcript.sent[0]).as_bytes()), Ok(None));
        assert_eq!(server.output(), b"HELO nuttcp v8.2.2\n");
        let request = server.receive(format!("{}\n", transcript.sent[1]).as_bytes()).unwrap();
        assert_eq!(request.unwrap().1, transcript.client, "{}", transcript.name);
        server.accept();
        assert_eq!(server.output(), b"OK v8.2.2\n");
    }
}

#[test]
fn the_client_follows_every_server() {
    for transcript in Transcript::all() {
        let (_, events) = transcript.run_client();
        assert_eq!(events[0], ClientEvent::Accepted(transcript.server), "{}", transcript.name);
        let report = transcript.report();
        let sends = transcript.parameters().client_sends;
        let bytes = report.bytes().unwrap();
        assert!(bytes > 0, "{}", transcript.name);
        let rate = bytes as f64 / 125_000.0 / report.megabits.unwrap();
        // The time of 64 buffers is too short for two digits.
        assert!((rate - report.seconds.unwrap()).abs() < 0.01, "{}", transcript.name);
        assert!(report.cpu_percent.is_some(), "{}", transcript.name);
        let tcp = !transcript.parameters().udp;
        assert_eq!(report.retransmits.is_some(), tcp && !sends, "{}", transcript.name);
        let connects = tcp && sends == transcript.parameters().flip;
        assert_eq!(report.rtt_ms.is_some(), connects, "{}", transcript.name);
        let cwnd = tcp && !sends && transcript.server >= Version::new(8, 0, 1);
        assert_eq!(report.cwnd_kb.is_some(), cwnd, "{}", transcript.name);
        assert_eq!(report.jitter.is_some(), transcript.parameters().jitter != 0);
        assert_eq!(report.delay.is_some(), sends && transcript.parameters().delay != 0);
    }
}

#[test]
fn the_pieces_in_which_bytes_arrive_do_not_matter() {
    for transcript in Transcript::all() {
        let (_, whole) = transcript.run_client();
        let text = transcript.answered.join("\n") + "\n";
        let mut client = Client::new(transcript.parameters());
        let mut events = Vec::new();
        for piece in text.as_bytes().chunks(7) {
            events.extend(client.receive(piece).unwrap());
        }
        assert_eq!(events, whole, "{}", transcript.name);
    }
}

#[test]
fn interval_lines_of_every_version_are_printed_byte_for_byte() {
    let mut checked = 0;
    for transcript in Transcript::all() {
        let parameters = transcript.parameters();
        let style = Style(parameters.format);
        let lines = transcript.answered.iter().chain(&transcript.printed);
        for line in lines.filter(|line| Interval::parse(line).is_some()) {
            // A last line has the same head, and the mean delay is not read back.
            if line.contains("%RX") || line.contains("rx_cpu=") || line.contains("msAvgOWD") {
                continue;
            }
            let mut interval = Interval::parse(line).unwrap();
            // The rate comes from the exact time, of which the line has two digits.
            interval.seconds = exact_seconds(line, interval.bytes);
            assert_eq!(&interval.line(style), line, "{}", transcript.name);
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked} interval lines");
}

/// Returns the time that leads to the rate on `line`.
fn exact_seconds(line: &str, bytes: u64) -> f64 {
    let rate = number_before(line, " Mbps").or_else(|| number_after(line, "rate_Mbps="));
    bytes as f64 / 125_000.0 / rate.unwrap()
}

fn number_before(line: &str, unit: &str) -> Option<f64> {
    line.split_once(unit)?.0.rsplit(' ').next()?.parse().ok()
}

fn number_after(line: &str, name: &str) -> Option<f64> {
    line.split_once(name)?.1.split(' ').next()?.parse().ok()
}

#[test]
fn the_last_line_of_every_version_is_printed_byte_for_byte() {
    let mut checked = 0;
    for transcript in Transcript::all() {
        for line in &transcript.printed {
            if line.contains(" %RX") || line.contains("rx_cpu=") {
                let style = Style(transcript.parameters().format);
                assert_eq!(&brief(line).line(style), line, "{}", transcript.name);
                checked += 1;
            }
        }
    }
    assert!(checked > 40, "{checked} last lines");
}

/// Reads the figures of a last line back.
fn brief(line: &str) -> Brief {
    let either = |unit: &str, name: &str| {
        number_before(line, unit).or_else(|| number_after(line, &format!("{name}=")))
    };
    let count = |unit: &str, name: &str| either(unit, name).map(|value| value as u64);
    let spread = |unit, name, value: fn(f64) -> (u8, Spread)| either(unit, name).map(value);
    let loss = either(" %loss", "data_loss");
    let dropped = match line.split_once(" drop/pkt") {
        Some((head, _)) => head.rsplit(' ').nth(2).and_then(|number| number.parse().ok()),
        None => number_after(line, "drop="),
    };
    let datagrams = loss.map(|percent| Datagrams {
        dropped: dropped.unwrap() as i64,
        sent: count(" drop/pkt", "pkt").unwrap(),
        loss: percent / 100.0,
    });
    Brief {
        bytes: (either(" MB", "megabytes").unwrap() * 1_048_576.0).round() as u64,
        seconds: either(" sec", "real_seconds").unwrap(),
        megabits: either(" Mbps", "rate_Mbps").unwrap(),
        sender_cpu_percent: either(" %TX", "tx_cpu").unwrap() as u32,
        receiver_cpu_percent: either(" %RX", "rx_cpu").unwrap() as u32,
        datagrams,
        retransmits: count(" retrans", "retrans")
            .map(|count| Retransmits { count, of_host: false }),
        cwnd_kb: count(" KB-cwnd", "cwnd"),
        rtt_ms: either(" msRTT", "rtt_ms"),
        jitter: spread(" msMaxJitter", "msmaxjitter", |max| {
            (4, Spread { max, ..Spread::default() })
        }),
        delay: spread(" msAvgOWD", "msavgOWD", |mean| (2, Spread { mean, ..Spread::default() })),
        ..Brief::default()
    }
}

#[test]
fn the_lines_about_an_end_are_those_of_the_newest_version() {
    for transcript in Transcript::all().iter().filter(|one| one.server == Version::OURS) {
        let parameters = transcript.parameters();
        let style = Style(parameters.format);
        let sends = !parameters.client_sends;
        let theirs: Vec<_> = transcript.report().lines;
        let found = |unit: &str, name: &str| {
            let line = theirs.iter().find(|line| line.contains(name))?;
            number_after(line, name).or_else(|| number_before(line, unit))
        };
        let window = |text, key| number_in(&theirs, text).or_else(|| number_in(&theirs, key));
        let rtt = found(" ms", "RTT=").or_else(|| found("", "rtt_ms="));
        let opening = Opening {
            connected: rtt.is_some(),
            peer: "127.0.0.1".parse().unwrap(),
            mss: number_in(&theirs, "mss=").map(|mss| mss as u32),
            rtt_ms: rtt.unwrap_or_default(),
        };
        let windows = (
            window(": send window size = ", "send_window_size=").unwrap() as u64,
            window("receive window size = ", "receive_window_size=").unwrap() as u64,
        );
        let block = Block { sends, ident: "", parameters: &parameters, style };
        let ours = block.start(&opening, windows);
        assert_eq!(ours, theirs[..ours.len()], "{}", transcript.name);

        let report = transcript.report();
        let totals = BlockTotals {
            bytes: report.bytes().unwrap(),
            seconds: report.bytes().unwrap() as f64 / 125_000.0 / report.megabits.unwrap(),
            jitter: report.jitter,
            delay: report.delay,
            connection: report
                .retransmits
                .map(|count| (Retransmits { count, of_host: false }, report.cwnd_kb.unwrap())),
            ..BlockTotals::default()
        };
        let ends = block.end(&totals, true);
        // The rate in KB/s has more digits than the figures from which the test computes it.
        let known = |line: &&String| ["retrans", "jitter", "OWD"].iter().any(|w| line.contains(w));
        let ours: Vec<_> = ends.iter().filter(known).collect();
        let theirs: Vec<_> = theirs.iter().filter(known).collect();
        assert_eq!(ours.len(), theirs.len(), "{}", transcript.name);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            // Streams have their parts in brackets, which no client needs.
            assert!(theirs.starts_with(ours.split(" cwnd").next().unwrap()), "{theirs}");
        }
        let mut server = ServerReport::default();
        ends.iter().for_each(|line| server.add(line));
        assert_eq!(server.retransmits, report.retransmits);
        assert_eq!((server.jitter, server.delay), (report.jitter, report.delay));
        assert_eq!(server.megabytes, report.megabytes, "{}", transcript.name);
        assert_eq!(server.megabits, report.megabits, "{}", transcript.name);
        assert_eq!(server.cpu_percent, Some(0));
    }
}

/// Returns the number after `name` on the first line that has it.
fn number_in(lines: &[String], name: &str) -> Option<f64> {
    let (_, rest) = lines.iter().find_map(|line| line.split_once(name))?;
    rest.split([' ', ',']).next()?.parse().ok()
}
