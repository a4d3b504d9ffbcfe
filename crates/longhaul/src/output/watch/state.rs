//! The state of the terminal display: history, selection and order. Keys change it; drawing reads it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use longhaul_core::text::escape_name;
use longhaul_watch::series::Quantity;
use longhaul_watch::{FlowSample, InterfaceSample, Sample};

/// The maximum number of samples of the history of an interface: the columns of a wide terminal.
const HISTORY: usize = 400;

/// The state of the display.
#[derive(Debug)]
pub(crate) struct WatchView {
    /// The name of the host, without control characters.
    pub(super) host: String,
    /// The interval of the samples in seconds.
    pub(super) interval_seconds: f64,
    /// True if colors may be used.
    pub(super) color: bool,
    pub(super) sample: Option<Arc<Sample>>,
    /// The rates of each interface in bit/s, the oldest first; `None` in a gap.
    pub(super) history: HashMap<u32, VecDeque<Option<(f64, f64)>>>,
    pub(super) table: Table,
    pub(super) interface_order: InterfaceOrder,
    pub(super) flow_order: FlowOrder,
    pub(super) reversed: bool,
    /// True if interfaces without link are shown.
    pub(super) all: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// The index of the selected interface.
    selected: Option<u32>,
    /// A message about a record or a sample that failed.
    pub(super) message: Option<String>,
}

/// A table that keys apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Interfaces,
    Flows,
}

/// The order of the interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InterfaceOrder {
    Traffic,
    Name,
    In,
    Out,
    Drops,
}

/// The order of the flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowOrder {
    Traffic,
    Rtt,
    Retransmits,
    Window,
}

/// A key that the display knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchKey {
    Quit,
    Up,
    Down,
    Sort,
    Reverse,
    OtherTable,
    All,
    Pause,
    Help,
}

impl WatchView {
    pub(crate) fn new(host: &str, interval_seconds: f64, color: bool) -> Self {
        WatchView {
            host: escape_name(host.as_bytes()),
            interval_seconds,
            color,
            sample: None,
            history: HashMap::new(),
            table: Table::Interfaces,
            interface_order: InterfaceOrder::Traffic,
            flow_order: FlowOrder::Traffic,
            reversed: false,
            all: false,
            paused: false,
            help: false,
            selected: None,
            message: None,
        }
    }

    /// Adds a sample to the history, and shows it unless the display is paused.
    pub(crate) fn push(&mut self, sample: &Arc<Sample>) {
        self.history.retain(|index, _| sample.interfaces.iter().any(|one| one.index == *index));
        for interface in &sample.interfaces {
            let rates = sample.interval(interface);
            let rates = rates.map(|it| (it.rate(Quantity::InBits), it.rate(Quantity::OutBits)));
            let history = self.history.entry(interface.index).or_default();
            if history.len() >= HISTORY {
                history.pop_front();
            }
            history.push_back(rates);
        }
        if !self.paused || self.sample.is_none() {
            self.sample = Some(sample.clone());
        }
    }

    /// Sets the message at the bottom.
    pub(crate) fn set_message(&mut self, message: Option<String>) {
        self.message = message;
    }

    /// Applies a key. Returns false if the display should end.
    pub(crate) fn press(&mut self, key: WatchKey) -> bool {
        match key {
            WatchKey::Quit => return false,
            WatchKey::Up => self.step(-1),
            WatchKey::Down => self.step(1),
            WatchKey::Sort => self.next_order(),
            WatchKey::Reverse => self.reversed = !self.reversed,
            WatchKey::OtherTable => {
                self.table = match self.table {
                    Table::Interfaces => Table::Flows,
                    Table::Flows => Table::Interfaces,
                }
            }
            WatchKey::All => self.all = !self.all,
            WatchKey::Pause => self.paused = !self.paused,
            WatchKey::Help => self.help = !self.help,
        }
        true
    }

    fn next_order(&mut self) {
        match self.table {
            Table::Interfaces => {
                self.interface_order = match self.interface_order {
                    InterfaceOrder::Traffic => InterfaceOrder::Name,
                    InterfaceOrder::Name => InterfaceOrder::In,
                    InterfaceOrder::In => InterfaceOrder::Out,
                    InterfaceOrder::Out => InterfaceOrder::Drops,
                    InterfaceOrder::Drops => InterfaceOrder::Traffic,
                }
            }
            Table::Flows => {
                self.flow_order = match self.flow_order {
                    FlowOrder::Traffic => FlowOrder::Rtt,
                    FlowOrder::Rtt => FlowOrder::Retransmits,
                    FlowOrder::Retransmits => FlowOrder::Window,
                    FlowOrder::Window => FlowOrder::Traffic,
                }
            }
        }
    }

    /// Returns the shown interfaces in their order.
    pub(super) fn interfaces<'a>(&self, sample: &'a Sample) -> Vec<&'a InterfaceSample> {
        let shown = |one: &&InterfaceSample| self.all || one.running;
        let mut found: Vec<&InterfaceSample> = sample.interfaces.iter().filter(shown).collect();
        let rate = |one: &InterfaceSample, channel| {
            sample.interval(one).map_or(-1.0, |interval| interval.rate(channel))
        };
        // Names ascend, rates descend.
        found.sort_by(|one, two| {
            let descending =
                |value: &dyn Fn(&InterfaceSample) -> f64| value(two).total_cmp(&value(one));
            match self.interface_order {
                InterfaceOrder::Name => one.name.cmp(&two.name),
                InterfaceOrder::In => descending(&|it| rate(it, Quantity::InBits)),
                InterfaceOrder::Out => descending(&|it| rate(it, Quantity::OutBits)),
                InterfaceOrder::Traffic => {
                    descending(&|it| rate(it, Quantity::InBits).max(rate(it, Quantity::OutBits)))
                }
                InterfaceOrder::Drops => {
                    descending(&|it| drops(it).map_or(-1.0, |drops| drops as f64))
                }
            }
            .then_with(|| one.index.cmp(&two.index))
        });
        if self.reversed && self.table == Table::Interfaces {
            found.reverse();
        }
        found
    }

    /// Returns the shown flows in their order.
    pub(super) fn flows<'a>(&self, sample: &'a Sample) -> Vec<&'a FlowSample> {
        let mut found: Vec<&FlowSample> = sample.flows.iter().flatten().collect();
        let key = |flow: &FlowSample| -> u128 {
            match self.flow_order {
                FlowOrder::Traffic => {
                    u128::from(flow.in_rate.bps()) + u128::from(flow.out_rate.bps())
                }
                FlowOrder::Rtt => flow.rtt.as_nanos(),
                FlowOrder::Retransmits => flow.retransmits.into(),
                FlowOrder::Window => flow.window_bytes.into(),
            }
        };
        found.sort_by_key(|flow| std::cmp::Reverse(key(flow)));
        if self.reversed && self.table == Table::Flows {
            found.reverse();
        }
        found
    }

    /// Returns the index of the selected interface: the first one if the user has selected none.
    pub(super) fn selection(&self, shown: &[&InterfaceSample]) -> Option<u32> {
        let exists = |index: &u32| shown.iter().any(|one| one.index == *index);
        let first = || shown.iter().find(|one| !one.loopback).or(shown.first());
        self.selected.filter(exists).or_else(|| first().map(|one| one.index))
    }

    fn step(&mut self, by: isize) {
        let Some(sample) = self.sample.clone() else { return };
        let shown = self.interfaces(&sample);
        let Some(index) = self.selection(&shown) else { return };
        let at = shown.iter().position(|one| one.index == index).unwrap_or(0);
        let next = at.saturating_add_signed(by).min(shown.len().saturating_sub(1));
        self.selected = shown.get(next).map(|one| one.index);
    }
}

/// Returns the packets that an interface and its queue dropped since the previous sample.
pub(super) fn drops(one: &InterfaceSample) -> Option<u64> {
    let change = one.change?;
    Some(change.in_drops + change.out_drops + u64::from(one.queue_drops.unwrap_or(0)))
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use longhaul_core::units::Rate;
    use longhaul_sys::host::{CoreTimes, TcpCounters};
    use longhaul_sys::traffic::{LinkCounters, LinkQueue};
    use longhaul_watch::{CoreSample, TcpTotals};

    use super::*;

    pub(in crate::output::watch) fn interface(
        index: u32,
        name: &str,
        bytes: u64,
    ) -> InterfaceSample {
        let change = LinkCounters {
            in_bytes: bytes,
            out_bytes: bytes / 2,
            in_packets: bytes / 1000,
            in_drops: u64::from(index),
            ..LinkCounters::default()
        };
        InterfaceSample {
            index,
            name: name.into(),
            running: index != 9,
            loopback: false,
            speed: Some(Rate::from_bps(10_000_000_000)),
            totals: change,
            change: Some(change),
            queue: Some(LinkQueue { bytes: 1500, packets: 1, drops: 0 }),
            queue_drops: Some(0),
        }
    }

    pub(in crate::output::watch) fn sample() -> Sample {
        let core = |core| CoreSample {
            core,
            totals: CoreTimes::default(),
            busy: Some(0.93),
            softirq: Some(0.41),
            stolen: Some(0.0),
        };
        let flow = |port: u16, bps: u64| FlowSample {
            local: ([192, 0, 2, 1], 5210).into(),
            peer: ([198, 51, 100, 7], port).into(),
            user: 0,
            program: None,
            congestion: "cubic".into(),
            in_rate: Rate::from_bps(bps),
            out_rate: Rate::from_bps(bps / 10),
            rtt: Duration::from_millis(90),
            min_rtt: Some(Duration::from_millis(89)),
            window_segments: 7000,
            window_bytes: 62_000_000,
            delivery_rate: Rate::from_bps(9_400_000_000),
            delivery_app_limited: false,
            retransmits: u64::from(port),
            queued_bytes: 0,
            unread_bytes: 0,
        };
        Sample {
            time_ms: 1_800_000_000_000,
            span: Some(Duration::from_secs(1)),
            interfaces: vec![
                interface(2, "eth0", 1_100_000_000),
                interface(3, "e\x1b[2Jvil", 20_000),
                interface(9, "down0", 0),
            ],
            tcp: TcpTotals {
                totals: TcpCounters::default(),
                sent: Some(1000),
                retransmits: Some(5),
            },
            cores: vec![core(0), core(1)],
            flows: Some(vec![flow(40_001, 8_800_000_000), flow(40_002, 1_000)]),
        }
    }

    fn view() -> WatchView {
        let mut view = WatchView::new("host", 1.0, true);
        view.push(&Arc::new(sample()));
        view
    }

    fn names(view: &WatchView) -> Vec<String> {
        let sample = view.sample.clone().unwrap();
        view.interfaces(&sample).iter().map(|one| one.name.clone()).collect()
    }

    #[test]
    fn keys_sort_and_filter_the_interfaces() {
        let mut view = view();
        assert_eq!(
            names(&view),
            ["eth0", "e\x1b[2Jvil"],
            "the fastest first, without those without link"
        );
        view.press(WatchKey::Reverse);
        assert_eq!(names(&view)[0], "e\x1b[2Jvil");
        view.press(WatchKey::Reverse);
        view.press(WatchKey::All);
        assert_eq!(names(&view).len(), 3);
        for _ in 0..4 {
            view.press(WatchKey::Sort);
        }
        assert_eq!(view.interface_order, InterfaceOrder::Drops);
        assert_eq!(names(&view), ["down0", "e\x1b[2Jvil", "eth0"]);
        assert!(!view.press(WatchKey::Quit));
    }

    #[test]
    fn the_selection_stays_on_its_interface() {
        let mut view = view();
        let sample = view.sample.clone().unwrap();
        assert_eq!(view.selection(&view.interfaces(&sample)), Some(2));
        view.press(WatchKey::Down);
        view.press(WatchKey::Down);
        assert_eq!(view.selection(&view.interfaces(&sample)), Some(3));
        view.press(WatchKey::Reverse);
        assert_eq!(view.selection(&view.interfaces(&sample)), Some(3));
        view.press(WatchKey::Up);
        assert_eq!(view.selection(&view.interfaces(&sample)), Some(3), "it is the first now");
    }

    #[test]
    fn flows_have_their_own_order() {
        let mut view = view();
        let sample = view.sample.clone().unwrap();
        let first = |view: &WatchView| view.flows(&sample)[0].peer.port();
        assert_eq!(first(&view), 40_001);
        view.press(WatchKey::OtherTable);
        view.press(WatchKey::Sort);
        view.press(WatchKey::Sort);
        assert_eq!((view.flow_order, first(&view)), (FlowOrder::Retransmits, 40_002));
        view.press(WatchKey::Reverse);
        assert_eq!(first(&view), 40_001);
    }

    #[test]
    fn a_pause_keeps_the_sample_and_the_history_grows() {
        let mut view = view();
        view.press(WatchKey::Pause);
        let later = Sample { time_ms: 1_800_000_001_000, span: None, ..sample() };
        for _ in 0..HISTORY * 2 {
            view.push(&Arc::new(later.clone()));
        }
        assert_eq!(view.sample.as_ref().unwrap().time_ms, 1_800_000_000_000);
        let history = &view.history[&2];
        assert_eq!((history.len(), history.back()), (HISTORY, Some(&None)), "a gap is no zero");
    }
}
