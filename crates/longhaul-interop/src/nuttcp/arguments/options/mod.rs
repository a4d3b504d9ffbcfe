//! The options of nuttcp one by one.

mod command;

use std::time::Duration;

use super::values::{
    GivenOption, RateValue, bits, burst, bytes, class, port, rate, seconds, window,
};
use super::{ArgumentError, Command, DEFAULT_SECONDS, Output};
use crate::nuttcp::{MOST_STREAMS, Parameters, format};

/// Options that exist in nuttcp and not here, and the letters or words that follow them.
const UNAVAILABLE: [&str; 6] = ["-s", "-m", "-g", "-xt", "-3", "-wb"];
/// Options without effect here.
const WITHOUT_EFFECT: [&str; 11] = [
    "-d",
    "-B",
    "-a",
    "--nofork",
    "--single-threaded",
    "--no3rdparty",
    "--disable-v4-mapped",
    "--enable-v4-mapped",
    "-fdebuginterval",
    "-f-beta",
    "-fdebugretrans",
];

/// The options so far.
#[derive(Debug, Default)]
pub(super) struct State {
    parameters: Parameters,
    length: Option<u32>,
    amount: Option<(u64, bool)>,
    time: Option<f64>,
    rate: Option<Option<RateValue>>,
    rate_mode: Option<bool>,
    window: u64,
    server_window: Option<u64>,
    control_port: Option<u16>,
    family: Option<u8>,
    ident: String,
    output: Option<Output>,
    cpu_seconds: bool,
    server: bool,
    once: bool,
    end: Option<Command>,
    ignored: Vec<String>,
}

impl State {
    /// Reads one option, and returns true if the first of the words `after` it is its value.
    pub(super) fn option(&mut self, word: &str, after: &[String]) -> Result<bool, ArgumentError> {
        if let Some(option) = UNAVAILABLE.iter().find(|option| word.starts_with(**option)) {
            return Err(ArgumentError::Unavailable((*option).to_owned()));
        }
        if WITHOUT_EFFECT.contains(&word) {
            self.ignored.push(word.to_owned());
            return Ok(false);
        }
        let mut letters = word.chars();
        let letter = letters.nth(1).unwrap_or('-');
        let option = word.get(..2).unwrap_or(word);
        let given = GivenOption { option, attached: letters.as_str(), after };
        match letter {
            '-' if word == "--help" => self.flag('h', word),
            '-' => self.long(word, after),
            '4' | '6' | 't' | 'r' | 'D' | 'F' | 'S' | '1' | 'V' | 'h' => self.flag(letter, word),
            'f' => self.format(given.attached, word).map(|()| false),
            'x' => self.extra(word, after),
            'u' => Ok(self.datagrams(given.attached)),
            'v' | 'b' => self.output(letter, given),
            'n' | 'T' | 'i' | 'j' | 'o' => self.with_optional(letter, given),
            _ => self.with_value(letter, given),
        }
    }

    fn flag(&mut self, letter: char, word: &str) -> Result<bool, ArgumentError> {
        match letter {
            '4' => self.family = Some(4),
            '6' => self.family = Some(6),
            't' => self.parameters.client_sends = true,
            'r' => self.parameters.client_sends = false,
            'D' => self.parameters.nodelay = true,
            'F' => self.parameters.flip = true,
            'S' => self.server = true,
            '1' => (self.server, self.once) = (true, true),
            'V' => self.end = self.end.take().or(Some(Command::Version)),
            'h' => self.end = self.end.take().or(Some(Command::Usage)),
            _ => return Err(ArgumentError::Unknown(word.to_owned())),
        }
        Ok(false)
    }

    fn long(&mut self, word: &str, after: &[String]) -> Result<bool, ArgumentError> {
        let value = || after.first().ok_or_else(|| ArgumentError::Missing(word.to_owned()));
        match word {
            "--idle-data-timeout" => self.ignored.push(format!("{word} {}", value()?)),
            "--packet-burst" => self.parameters.burst = burst(word, value()?)?,
            _ => return Err(ArgumentError::Unknown(word.to_owned())),
        }
        Ok(true)
    }

    fn format(&mut self, name: &str, word: &str) -> Result<(), ArgumentError> {
        let format = &mut self.parameters.format;
        match name {
            "xmitstats" => *format |= format::TRANSMITTED,
            "runningtotal" => *format |= format::RUNNING_TOTAL,
            "-drops" => *format |= format::NO_DROPS,
            "-percentloss" => *format |= format::NO_PERCENT_LOSS,
            "-retrans" => *format |= format::NO_RETRANSMITS | format::NO_CWND,
            "-cwnd" => *format |= format::NO_CWND,
            "parse" => *format |= format::PARSE,
            "rtt" => *format |= format::RTT,
            "-rtt" => *format &= !format::RTT,
            _ => return Err(ArgumentError::Unknown(word.to_owned())),
        }
        Ok(())
    }

    /// Reads `-xP` (a priority) and `-xc` (the CPUs of both ends).
    fn extra(&mut self, word: &str, after: &[String]) -> Result<bool, ArgumentError> {
        let (option, attached) = match (word.strip_prefix("-xcs"), word.strip_prefix("-xc")) {
            (Some(rest), _) => ("-xcs", rest),
            (None, Some(rest)) => ("-xc", rest),
            (None, None) => match word.strip_prefix("-xP") {
                Some(rest) => ("-xP", rest),
                None => return Err(ArgumentError::Unknown(word.to_owned())),
            },
        };
        let given = GivenOption { option, attached, after };
        let (value, taken) = given.required()?;
        let server = match option {
            "-xcs" => Some(value),
            "-xc" => value.split_once('/').map(|(_, server)| server),
            _ => None,
        };
        if let Some(server) = server {
            let cpu = server.parse().map_err(|_| given.invalid(value))?;
            self.parameters.server_cpu = Some(cpu);
        }
        if option != "-xcs" {
            self.ignored.push(format!("{option}{value}"));
        }
        Ok(taken)
    }

    fn datagrams(&mut self, attached: &str) -> bool {
        self.parameters.udp = true;
        if attached == "u" {
            self.rate = Some(None);
        }
        false
    }

    fn output(&mut self, letter: char, given: GivenOption<'_>) -> Result<bool, ArgumentError> {
        if letter == 'v' {
            self.cpu_seconds |= given.attached == "v";
            self.output = Some(Output { brief: false, blocks: true, cpu_seconds: false });
            return Ok(false);
        }
        let (value, taken) = given.optional();
        let level: i32 = value.trim_end_matches(['r', 'c']).parse().unwrap_or(1);
        let (brief, blocks) = (level != 0, level <= 0);
        self.output = Some(Output { brief, blocks, cpu_seconds: false });
        Ok(taken)
    }

    fn with_optional(
        &mut self,
        letter: char,
        given: GivenOption<'_>,
    ) -> Result<bool, ArgumentError> {
        let (value, taken) = given.optional();
        let invalid = || given.invalid(value);
        match letter {
            'n' => {
                let in_bytes = value.ends_with(|c: char| c.is_ascii_alphabetic());
                let amount = bytes(value, 1).filter(|amount| *amount > 0);
                self.amount = Some((amount.ok_or_else(invalid)?, in_bytes));
            }
            'T' => {
                let time = if value.is_empty() { Some(DEFAULT_SECONDS) } else { seconds(value) };
                self.time = Some(time.filter(|time| *time > 0.0).ok_or_else(invalid)?);
            }
            'i' => {
                let time = if value.is_empty() { Some(1.0) } else { seconds(value) };
                let time = time.filter(|time| *time >= 0.01).ok_or_else(invalid)?;
                self.parameters.interval = Duration::from_secs_f64(time);
            }
            'j' => {
                self.parameters.udp = true;
                self.parameters.jitter = bits(value, 4) | u8::from(value.contains('o')) << 3;
            }
            _ => self.parameters.delay = bits(value, 2),
        }
        Ok(taken)
    }

    fn with_value(&mut self, letter: char, given: GivenOption<'_>) -> Result<bool, ArgumentError> {
        if letter == 'w' && given.attached.starts_with('s') {
            let rest = GivenOption { option: "-ws", attached: &given.attached[1..], ..given };
            let (value, taken) = rest.required()?;
            self.server_window = Some(window(rest, value)?);
            return Ok(taken);
        }
        if !"lwpPNRIMc".contains(letter) {
            return Err(ArgumentError::Unknown(given.option.to_owned()));
        }
        let (value, taken) = given.required()?;
        let invalid = || given.invalid(value);
        match letter {
            'l' => {
                let length = bytes(value, 1).and_then(|length| u32::try_from(length).ok());
                self.length =
                    Some(length.filter(|l| (1..=64 << 20).contains(l)).ok_or_else(invalid)?);
            }
            'w' => self.window = window(given, value)?,
            'p' => self.data_ports(given, value)?,
            'P' => self.control_port = Some(port(value).ok_or_else(invalid)?),
            'N' => {
                let streams = value.parse().ok().filter(|n| (1..=MOST_STREAMS).contains(n));
                self.parameters.streams = streams.ok_or_else(invalid)?;
            }
            'R' => self.rate_limit(given, value)?,
            'I' => self.ident = value.chars().filter(|c| c.is_ascii_graphic()).take(40).collect(),
            'M' => self.parameters.mss = value.parse().map_err(|_| invalid())?,
            _ => self.parameters.tos = class(value).ok_or_else(invalid)?,
        }
        Ok(taken)
    }

    fn data_ports(&mut self, given: GivenOption<'_>, value: &str) -> Result<(), ArgumentError> {
        let (source, data) = value.split_once(':').map_or((None, value), |(s, d)| (Some(s), d));
        let invalid = || given.invalid(value);
        if let Some(source) = source {
            self.parameters.source_port = port(source).ok_or_else(invalid)?;
        }
        self.parameters.port = port(data).ok_or_else(invalid)?;
        Ok(())
    }

    /// Reads `-R`: `i` is an instantaneous limit, `a` an aggregate one, `u` none.
    fn rate_limit(&mut self, given: GivenOption<'_>, value: &str) -> Result<(), ArgumentError> {
        let (limit, packets) = value.split_once('/').map_or((value, None), |(l, p)| (l, Some(p)));
        if let Some(packets) = packets {
            self.parameters.burst = burst("-R", packets)?;
        }
        let limit = match limit.split_at_checked(1) {
            Some(("u", _)) => {
                (self.rate, self.rate_mode) = (Some(None), Some(false));
                return Ok(());
            }
            Some(("a", rest)) => {
                self.rate_mode = Some(false);
                rest
            }
            Some(("i", rest)) => {
                self.rate_mode = Some(true);
                self.parameters.slow_start = rest.starts_with('s');
                rest.trim_start_matches('s')
            }
            _ => limit,
        };
        let limit = rate(limit).ok_or_else(|| given.invalid(value))?;
        let unlimited = matches!(limit, RateValue::Kilobits(r) | RateValue::Packets(r) if r == 0.0);
        self.rate = Some((!unlimited).then_some(limit));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nuttcp::arguments::{ClientArguments, parse};

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn client(text: &str) -> ClientArguments {
        match parse(&words(text)).unwrap() {
            Command::Client(client) => *client,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn values_follow_their_letters_with_and_without_a_space() {
        let attached = client("-w4m -N4 -T10 -i1 -P5001 -p5200 -M1400 -c10 -R100m -l16k host");
        let apart =
            client("-w 4m -N 4 -T 10 -i 1 -P 5001 -p 5200 -M 1400 -c 10 -R 100m -l 16k host");
        assert_eq!(attached, apart);
        let Parameters { streams, time, port, mss, tos, rate_kbps, buffer_bytes, .. } =
            attached.parameters;
        assert_eq!((streams, time, port, mss), (4, Duration::from_secs(10), 5200, 1400));
        assert_eq!((tos, rate_kbps, buffer_bytes), (40, Some(100_000), 16384));
        assert_eq!((attached.window_bytes, attached.control_port), (4 << 20, 5001));
        assert_eq!(client("-w256 host").window_bytes, 256 << 10);
        assert_eq!(client("-w256 -ws1m host").parameters.server_window_bytes, 1 << 20);
    }

    #[test]
    fn an_optional_value_is_not_the_host() {
        assert_eq!(client("-i host").parameters.interval, Duration::from_secs(1));
        assert_eq!(client("-i 10.0.0.1").host, "10.0.0.1");
        assert_eq!(client("-i 0.5 10.0.0.1").parameters.interval, Duration::from_millis(500));
        assert_eq!(client("-i -T5 host").parameters.time, Duration::from_secs(5));
        assert_eq!(client("-u -j host").parameters.jitter, 4);
        assert_eq!(client("-u -jmax -Ri10m host").parameters.jitter, 7);
    }

    #[test]
    fn rates_have_modes_and_bursts() {
        let burst = client("-u -Ri300m/100 host").parameters;
        assert!(burst.instant_rate);
        assert_eq!((burst.rate_kbps, burst.burst), (Some(300_000), 100));
        assert_eq!(client("-u host").parameters.rate_kbps, Some(1000));
        assert_eq!(client("-uu host").parameters.rate_kbps, None);
        assert_eq!(client("-u -l1000 -R1000p host").parameters.rate_kbps, Some(8000));
        assert_eq!(client("-R100.5 host").parameters.rate_kbps, Some(100));
        assert_eq!(client("-R0.0 host").parameters.rate_kbps, None);
        let unlimited = parse(&words("-j -Ru host")).unwrap_err();
        assert!(matches!(unlimited, ArgumentError::Conflict("-j", _)));
    }

    #[test]
    fn amounts_are_buffers_or_bytes() {
        let buffers = client("-n100 host").parameters;
        assert_eq!((buffers.buffers, buffers.time), (Some(100), Duration::ZERO));
        let megabytes = client("-n100m host").parameters;
        assert_eq!((megabytes.buffers, megabytes.in_bytes), (Some(1600), true));
        assert_eq!(client("host").parameters.time, Duration::from_secs(10));
        assert_eq!(client("-T5 -i5 host").parameters.interval, Duration::ZERO);
        assert_eq!(client("-T1m host").parameters.time, Duration::from_secs(60));
    }

    #[test]
    fn the_command_line_of_pscheduler_is_accepted() {
        let server = parse(&words("-S -1 --nofork -p 5101 -P 5001 -4")).unwrap();
        let Command::Server(server) = server else { panic!("{server:?}") };
        assert_eq!((server.port, server.once, server.family), (5001, true, Some(4)));
        assert_eq!(server.ignored, ["--nofork"]);
        let line = "-p 5101 -P 5001 -4 -T 10 -i 1 -N 2 -R1000.0 -u -j -l 1000 -c 32T dst.example";
        let client = client(line);
        assert_eq!((client.host.as_str(), client.parameters.tos), ("dst.example", 32));
        assert!(client.parameters.instant_rate && client.parameters.udp);
    }

    #[test]
    fn unavailable_and_unknown_options_are_refused_by_name() {
        let refused = |text: &str| parse(&words(text)).unwrap_err().to_string();
        assert_eq!(refused("-s host"), "option -s is not available");
        assert_eq!(refused("-xt host"), "option -xt is not available");
        assert_eq!(refused("host other"), "option a third-party host is not available");
        assert_eq!(refused("-z host"), "unknown option -z");
        assert_eq!(refused("-N0 host"), "invalid value \"0\" of option -N");
        assert_eq!(refused("-Rm20 host"), "invalid value \"m20\" of option -R");
        assert_eq!(refused("-w9g host"), "invalid value \"9g\" of option -w");
        assert_eq!(refused("-l"), "option -l needs a value");
        assert_eq!(parse(&[]), Ok(Command::Usage));
        assert_eq!(parse(&words("-V host")), Ok(Command::Version));
        assert_eq!(parse(&words("--help")), Ok(Command::Usage));
    }

    #[test]
    fn no_words_panic() {
        for word in
            ["-", "--", "-é", "-ws", "-fé", "-xcé", "-Ré", "-R/", "-Ri", "-p:", "-c", "-né", "-T."]
        {
            let _ = parse(&words(word));
            let _ = parse(&words(&format!("{word} host")));
        }
    }
}
