//! Reads samples of a host.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_core::units::Rate;
use longhaul_sys::ethtool::speed_megabits;
use longhaul_sys::host::{CoreTimes, TcpCounters, core_times, tcp_counters};
use longhaul_sys::traffic::{LinkCounters, LinkQueue, LinkReader, LinkState};

use crate::WatchError;
use crate::flows::FlowSampler;
use crate::programs::Programs;
use crate::sample::{CoreSample, InterfaceSample, Sample, TcpTotals};
use crate::series::change;

/// The settings of a [`Sampler`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerOptions {
    /// The names of the interfaces; all if empty.
    pub interfaces: Vec<String>,
    /// The intended time between two samples. A later sample is a gap if more than three intervals and
    /// a second have passed.
    pub interval: Duration,
    /// The number of TCP connections in a sample; 0 to list none.
    pub flows: usize,
    /// The shortest time between two listings of the TCP connections. Samples between them repeat the last
    /// listing.
    pub flow_interval: Duration,
    /// True if connections have the names of their programs. The search reads the open files of all
    /// processes, and uses at most 0.1 % of a core.
    pub programs: bool,
    /// True if samples have the cores and the TCP counters of the host.
    pub host: bool,
}

impl Default for SamplerOptions {
    /// Returns the options for all interfaces every second, with 20 flows.
    fn default() -> Self {
        SamplerOptions {
            interfaces: Vec::new(),
            interval: Duration::from_secs(1),
            flows: 20,
            flow_interval: Duration::ZERO,
            programs: false,
            host: true,
        }
    }
}

/// The time after which names and states of interfaces are read again. A new index causes it at once.
const STATES: Duration = Duration::from_secs(1);
/// The time after which the speed of an interface is read again, in readings of states.
const SPEEDS: u32 = 60;

/// Samples the network namespace of the thread that created it, and the cores of the host.
///
/// `sample` must be called by a thread of the same network namespace.
#[derive(Debug)]
pub struct Sampler {
    options: SamplerOptions,
    links: LinkReader,
    flows: Option<FlowSampler>,
    states: HashMap<u32, Link>,
    states_read: Option<Instant>,
    previous: Option<Previous>,
}

/// An interface and its speed.
#[derive(Debug)]
struct Link {
    state: LinkState,
    speed: Option<Rate>,
    /// The number of readings of the state since the speed was read.
    age: u32,
}

/// The counters of the previous sample.
#[derive(Debug)]
struct Previous {
    at: Instant,
    links: HashMap<u32, (LinkCounters, Option<LinkQueue>)>,
    tcp: TcpCounters,
    cores: Vec<(u32, CoreTimes)>,
}

impl Sampler {
    /// Opens the connections to the kernel.
    ///
    /// # Errors
    /// The kernel refuses a socket, or an interface of the options does not exist.
    pub fn new(options: SamplerOptions) -> Result<Self, WatchError> {
        let links = LinkReader::open().map_err(kernel("interfaces"))?;
        // A kernel without tcp_diag shows no flows.
        let flows = if options.flows > 0 { open_flows(&options) } else { None };
        let mut sampler = Sampler {
            options,
            links,
            flows,
            states: HashMap::new(),
            states_read: None,
            previous: None,
        };
        sampler.read_states()?;
        let known = |name: &&String| sampler.states.values().any(|link| link.state.name == **name);
        if let Some(missing) = sampler.options.interfaces.iter().find(|name| !known(name)) {
            return Err(WatchError::NoInterface(missing.clone()));
        }
        Ok(sampler)
    }

    /// Returns the state now and the changes since the previous call.
    ///
    /// # Errors
    /// The kernel refuses to list the interfaces. A later call may succeed.
    pub fn sample(&mut self) -> Result<Sample, WatchError> {
        let sample = self.read();
        if sample.is_err() {
            // The socket may hold the rest of an answer.
            self.links = LinkReader::open().map_err(kernel("interfaces"))?;
        }
        sample
    }

    fn read(&mut self) -> Result<Sample, WatchError> {
        if self.states_read.is_none_or(|read| read.elapsed() >= STATES) {
            self.read_states()?;
        }
        let mut links = self.read_counters()?;
        if links.keys().any(|index| !self.states.contains_key(index)) {
            self.read_states()?;
        }
        let now = Instant::now();
        let time_ms = unix_ms(SystemTime::now());
        let failed = self.links.queues(|index, queue| {
            if let Some((_, slot)) = links.get_mut(&index) {
                *slot = Some(queue);
            }
        });
        failed.map_err(kernel("queues"))?;
        let (tcp, cores) = if self.options.host {
            (tcp_counters(), core_times())
        } else {
            (TcpCounters::default(), Vec::new())
        };
        let flows = self.read_flows(now);
        let current = Previous { at: now, links, tcp, cores };
        let previous = self.previous.take();
        let limit = self.options.interval * 3 + Duration::from_secs(1);
        let before = previous.as_ref().filter(|previous| now - previous.at <= limit);
        let sample = Sample {
            time_ms,
            span: before.map(|before| now - before.at),
            interfaces: self.interfaces(&current, before),
            tcp: tcp_sample(&current.tcp, before.map(|before| &before.tcp)),
            cores: core_samples(&current, before),
            flows,
        };
        self.previous = Some(current);
        Ok(sample)
    }

    fn read_states(&mut self) -> Result<(), WatchError> {
        let states = self.links.states().map_err(kernel("interfaces"))?;
        let mut known = std::mem::take(&mut self.states);
        for state in states {
            let old = known.remove(&state.index);
            let old = old.filter(|old| old.age < SPEEDS && old.state == state);
            let link = match old {
                Some(old) => Link { age: old.age + 1, ..old },
                None => Link { speed: speed(&state.name), age: 0, state },
            };
            self.states.insert(link.state.index, link);
        }
        self.states_read = Some(Instant::now());
        Ok(())
    }

    fn read_counters(&self) -> Result<HashMap<u32, (LinkCounters, Option<LinkQueue>)>, WatchError> {
        let mut found = HashMap::with_capacity(self.states.len());
        self.links
            .counters(|index, counters| {
                found.insert(index, (counters, None));
            })
            .map_err(kernel("counters"))?;
        Ok(found)
    }

    fn read_flows(&mut self, now: Instant) -> Option<Vec<crate::FlowSample>> {
        let found = self.flows.as_mut()?.sample(now);
        if found.is_err() {
            // The kernel has no tcp_diag, or the answer was incomplete and the socket still holds a part.
            self.flows = open_flows(&self.options);
        }
        found.ok()
    }

    fn interfaces(&self, current: &Previous, before: Option<&Previous>) -> Vec<InterfaceSample> {
        let wanted = |link: &&Link| {
            let names = &self.options.interfaces;
            names.is_empty() || names.contains(&link.state.name)
        };
        let sample = |link: &Link| {
            let state = &link.state;
            let (totals, queue) = *current.links.get(&state.index)?;
            let before = before.and_then(|before| before.links.get(&state.index));
            let change = before.and_then(|(before, _)| change(before, &totals));
            let queue_before = before.and_then(|(_, queue)| *queue);
            let queue_drops =
                queue.zip(queue_before).map(|(queue, old)| queue.drops.checked_sub(old.drops));
            Some(InterfaceSample {
                index: state.index,
                name: state.name.clone(),
                running: state.running,
                loopback: state.loopback,
                speed: link.speed,
                totals,
                change,
                queue,
                queue_drops: queue_drops.flatten(),
            })
        };
        let mut found: Vec<InterfaceSample> =
            self.states.values().filter(wanted).filter_map(sample).collect();
        found.sort_by_key(|interface| interface.index);
        found
    }
}

fn open_flows(options: &SamplerOptions) -> Option<FlowSampler> {
    let programs = options.programs.then(Programs::new);
    FlowSampler::open(options.flows, options.flow_interval, programs).ok()
}

fn kernel(what: &'static str) -> impl FnOnce(io::Error) -> WatchError {
    move |source| WatchError::Kernel { what, source }
}

fn speed(name: &str) -> Option<Rate> {
    let megabits = speed_megabits(name).ok()??;
    Some(Rate::from_bps(u64::from(megabits) * 1_000_000))
}

/// Returns a time in Unix milliseconds.
fn unix_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn tcp_sample(now: &TcpCounters, before: Option<&TcpCounters>) -> TcpTotals {
    let since = |value: fn(&TcpCounters) -> u64| value(now).checked_sub(value(before?));
    TcpTotals {
        totals: *now,
        sent: since(|tcp| tcp.segments_out),
        retransmits: since(|tcp| tcp.retransmits),
    }
}

fn core_samples(current: &Previous, before: Option<&Previous>) -> Vec<CoreSample> {
    let sample = |(core, times): &(u32, CoreTimes)| {
        let share = |value: fn(&CoreTimes) -> Duration| {
            let before = before?;
            let (_, old) = before.cores.iter().find(|(other, _)| other == core)?;
            let used = value(times).checked_sub(value(old))?;
            let span = current.at.saturating_duration_since(before.at).as_secs_f64();
            // The kernel counts in ticks of 10 ms.
            (span > 0.0).then(|| (used.as_secs_f64() / span).min(1.0))
        };
        CoreSample {
            core: *core,
            totals: *times,
            busy: share(|times| times.busy),
            softirq: share(|times| times.softirq),
            stolen: share(|times| times.stolen),
        }
    };
    current.cores.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn traffic_of_loopback_is_the_change_of_its_counters() {
        let options = SamplerOptions { interfaces: vec!["lo".into()], ..SamplerOptions::default() };
        let mut sampler =
            Sampler::new(SamplerOptions { interval: Duration::from_secs(60), ..options }).unwrap();
        let first = sampler.sample().unwrap();
        assert_eq!((first.span, first.interfaces.len()), (None, 1));
        assert_eq!(first.interfaces[0].change, None);
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        near.send_to(&[0; 1000], far.local_addr().unwrap()).unwrap();
        let second = sampler.sample().unwrap();
        let interval = second.interval(&second.interfaces[0]).unwrap();
        assert!(interval.counts.out_bytes >= 1028 && interval.counts.in_packets >= 1);
        assert!(second.interfaces[0].loopback && second.interfaces[0].running);
        assert!(second.tcp.retransmits.is_some() && !second.cores.is_empty());
    }

    #[test]
    fn a_missing_interface_is_an_error() {
        let options =
            SamplerOptions { interfaces: vec!["no-such-if".into()], ..SamplerOptions::default() };
        assert!(
            matches!(Sampler::new(options), Err(WatchError::NoInterface(name)) if name == "no-such-if")
        );
    }

    #[test]
    fn a_reset_of_tcp_counters_is_a_gap() {
        let counters = |retransmits| TcpCounters { retransmits, ..TcpCounters::default() };
        let sample = tcp_sample(&counters(3), Some(&counters(5)));
        assert_eq!((sample.retransmits, sample.sent), (None, Some(0)));
        assert_eq!(tcp_sample(&counters(9), Some(&counters(5))).retransmits, Some(4));
    }
}
