//! A simulated agent: its key, its samples, its leases and its exchange with the hub.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_agent::{AgentError, HubClient};
use longhaul_fleet::api::{NewToken, TokenDocument};
use longhaul_fleet::protocol::{
    AGENT_HEADER, AgentState, COUNTER_HEADER, CoreLoad, ENROLL_PATH, EnrollRequest, EnrollResponse,
    EnrollToken, Flow, HostRow, HostSnapshot, InterfaceRow, Lease, MAX_FLOWS, MAX_WAIT_SECONDS,
    QueueRow, Role, RunOutcome, RunReport, SIGNATURE_HEADER, SYNC_PATH, SampleBatch, SyncRequest,
    SyncResponse, signed_text,
};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::Options;
use crate::figures::Figures;

/// The numbers of samples in memory; the journal of an agent has smaller ones.
const FIRST_ID: u64 = 1 << 52;
/// The maximum number of seconds of samples in one upload.
const MOST_SECONDS: i64 = 900;
/// The pause before the agent repeats a failed upload; it doubles up to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// One agent.
pub(crate) struct Simulated {
    pub(crate) host: String,
    client: HubClient,
    key: Ed25519KeyPair,
    id: String,
    counter: u64,
    next_id: u64,
    /// The number of interfaces.
    interfaces: usize,
    /// True for an agent that samples only the traffic of interfaces, as earlier versions do.
    is_earlier: bool,
    random: u64,
    /// The time between two uploads of samples, and the time of the latest one.
    upload: Duration,
    uploaded: Option<Instant>,
    leases: HashMap<(String, Role), Lease>,
    /// The end of the last second whose samples are made, in ms since 1970.
    made_ms: i64,
    /// The first and last ends of acknowledged samples, in ms since 1970.
    pub(crate) acknowledged_ms: Option<(i64, i64)>,
    /// The number of acknowledged samples per series.
    pub(crate) acknowledged: i64,
}

/// Returns the time in ms since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(i64::MAX)
}

impl Simulated {
    /// Enrolls the agent `at` with a new token.
    pub(crate) fn enroll(
        options: &Options,
        admin: &HubClient,
        bearer: &str,
        at: usize,
    ) -> Result<Self, AgentError> {
        let host = format!("h{at:04}");
        let token = NewToken { host: host.clone(), valid_seconds: 600 };
        let headers = [("authorization", bearer)];
        let token: TokenDocument = admin.post("/api/v1/tokens", &headers, &token)?;
        let secret = token.token.parse::<EnrollToken>().map(|token| token.secret);
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).ok();
        let key = pair.and_then(|pair| Ed25519KeyPair::from_pkcs8(pair.as_ref()).ok());
        let key = key.expect("the system has random numbers");
        let request = EnrollRequest {
            secret: secret.unwrap_or_default(),
            host: host.clone(),
            public_key: STANDARD.encode(key.public_key()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let answer: EnrollResponse = admin.post(ENROLL_PATH, &[], &request)?;
        Ok(Simulated {
            host,
            client: options.client()?,
            key,
            id: answer.agent,
            counter: 0,
            next_id: FIRST_ID,
            interfaces: options.interfaces,
            is_earlier: options.is_earlier,
            random: 0x9e37_79b9_7f4a_7c15 ^ at as u64,
            upload: Duration::from_secs(1),
            uploaded: None,
            leases: HashMap::new(),
            made_ms: 0,
            acknowledged_ms: None,
            acknowledged: 0,
        })
    }

    /// Exchanges messages until `stop` is set.
    pub(crate) fn run(&mut self, delay: Duration, stop: &AtomicBool, figures: &Figures) {
        let begin = Instant::now() + delay;
        while Instant::now() < begin && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(100));
        }
        let mut pause = PAUSES.0;
        while !stop.load(Ordering::Relaxed) {
            match self.sync(None, figures) {
                Ok(()) => pause = PAUSES.0,
                Err(error) => {
                    self.uploaded = None;
                    figures.failed(&error);
                    thread::sleep(pause);
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Uploads all samples since the last acknowledged ones if they are due, or if `wait` is a time in seconds.
    pub(crate) fn sync(&mut self, wait: Option<u64>, figures: &Figures) -> Result<(), AgentError> {
        let is_due = wait.is_some() || self.is_earlier || self.until_upload() == 0;
        if is_due {
            self.uploaded = Some(Instant::now());
        }
        let until = self.until_upload().clamp(1, MAX_WAIT_SECONDS);
        let wait = wait.unwrap_or(if self.leases.is_empty() { until } else { 1 });
        let (first, end) = if is_due { self.seconds() } else { (self.made_ms, self.made_ms) };
        let seconds = (end - first) / 1000;
        let begun = now_ms();
        let request = SyncRequest {
            boot: "simulated".to_owned(),
            clock_ms: begun,
            state: self.state(),
            facts: None,
            samples: self.samples(first, seconds),
            snapshot: (is_due && !self.is_earlier).then(|| self.snapshot(begun)),
            results: self.results(begun),
            stamp: Vec::new(),
            events: Vec::new(),
        };
        let sent = Instant::now();
        let answer = self.send(&request, wait)?;
        figures.answered(sent.elapsed(), wait);
        let stored = |id: &u64| answer.acknowledged.contains(id);
        if request.samples.iter().map(|one| one.id).all(|id| stored(&id)) {
            let begin = self.acknowledged_ms.map_or(first + 1000, |(begin, _)| begin);
            if seconds > 0 {
                self.acknowledged_ms = Some((begin, end));
            }
            self.acknowledged += seconds;
            self.made_ms = end;
            figures.stored(seconds.unsigned_abs() * self.series());
        } else {
            figures.unacknowledged();
        }
        for result in request.results.iter().filter(|result| stored(&result.id)) {
            self.leases.remove(&(result.run.clone(), result.role));
            figures.reported();
        }
        for lease in answer.leases {
            self.leases.insert((lease.run.clone(), lease.role), lease);
        }
        for run in &answer.cancel {
            self.leases.retain(|(id, _), _| id != run);
        }
        self.upload = Duration::from_secs(answer.settings.upload_seconds.into());
        Ok(())
    }

    /// Returns the whole seconds until the next upload of samples, as the agent does.
    fn until_upload(&self) -> u64 {
        let left = self.uploaded.map(|at| self.upload.saturating_sub(at.elapsed()));
        left.map_or(0, |left| left.as_secs_f64().round() as u64)
    }

    /// Returns the end of the last acknowledged second, and the end of the last whole second.
    fn seconds(&mut self) -> (i64, i64) {
        let end = now_ms() / 1000 * 1000;
        if self.made_ms == 0 {
            self.made_ms = end;
        }
        (self.made_ms, end.min(self.made_ms + MOST_SECONDS * 1000))
    }

    fn state(&self) -> AgentState {
        let now = now_ms();
        let ids = |running: bool| {
            let chosen = self.leases.values().filter(|lease| (lease.start_ms <= now) == running);
            chosen.map(|lease| lease.run.clone()).collect()
        };
        AgentState {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            running: ids(true),
            accepted: ids(false),
            memory_bytes: 20 << 20,
            disk_free_bytes: 50 << 30,
            stamp_port: 8620,
            ..AgentState::default()
        }
    }

    fn samples(&mut self, first: i64, seconds: i64) -> Vec<SampleBatch> {
        if seconds == 0 {
            return Vec::new();
        }
        let ends: Vec<i64> = (1..=seconds).map(|second| first + second * 1000).collect();
        let mut batches = Vec::new();
        if !self.is_earlier {
            let host = ends.iter().map(|end_ms| self.host_row(*end_ms)).collect();
            batches.push(SampleBatch { id: self.id(), host, ..SampleBatch::default() });
        }
        for at in 0..self.interfaces {
            let queue = if self.is_earlier { &[] } else { ends.as_slice() };
            batches.push(SampleBatch {
                id: self.id(),
                interface: format!("eth{at}"),
                speed_bps: Some(1_000_000_000),
                rows: ends.iter().map(|end_ms| self.interface_row(*end_ms)).collect(),
                queue: queue.iter().map(|end_ms| self.queue_row(*end_ms)).collect(),
                host: Vec::new(),
            });
        }
        batches
    }

    /// Returns the number of series: two per interface and one of the host, or one per interface.
    pub(crate) fn series(&self) -> u64 {
        let interfaces = self.interfaces as u64;
        if self.is_earlier { interfaces } else { 2 * interfaces + 1 }
    }

    /// Returns the number of the next entry.
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns traffic that changes, as that of a busy interface does.
    fn interface_row(&mut self, end_ms: i64) -> InterfaceRow {
        let traffic = self.next() % 125_000_000;
        InterfaceRow {
            end_ms,
            span_ms: 1000,
            in_bytes: traffic,
            out_bytes: traffic / 3 + self.next() % 100_000,
            in_packets: traffic / 1400,
            out_packets: traffic / 4000,
            ..InterfaceRow::default()
        }
    }

    /// Returns a queue that is empty most of the time.
    fn queue_row(&mut self, end_ms: i64) -> QueueRow {
        let packets = (self.next() % 40).saturating_sub(30);
        let bytes = packets * 1500;
        QueueRow { end_ms, span_ms: 1000, bytes, packets, drops: Some(packets / 9) }
    }

    fn host_row(&mut self, end_ms: i64) -> HostRow {
        let (segments, busy) = (self.next() % 100_000, self.next() % 500_000);
        HostRow {
            end_ms,
            span_ms: 1000,
            segments: Some(segments),
            retransmits: Some(segments / 5000),
            connections: Some(200 + segments % 50),
            busy_ppm: Some(busy),
            max_busy_ppm: Some(2 * busy),
            softirq_ppm: Some(busy / 10),
            max_softirq_ppm: Some(busy / 5),
            steal_ppm: Some(0),
        }
    }

    fn snapshot(&mut self, at_ms: i64) -> HostSnapshot {
        let flow = |at: usize| {
            let rate = self.next() % 1_000_000_000;
            Flow {
                local: ([10, 0, 0, 1], 5000 + at as u16).into(),
                peer: ([10, 1, 0, 1], 40_000 + at as u16).into(),
                program: Some("simulated".to_owned()),
                user_id: 1000,
                congestion: "cubic".to_owned(),
                in_bps: rate / 100,
                out_bps: rate,
                delivery_bps: 2 * rate,
                rtt_ns: 20_000_000 + rate,
                min_rtt_ns: Some(20_000_000),
                congestion_window_bytes: rate / 50,
                retransmits: rate % 7,
                queued_bytes: rate / 100,
            }
        };
        let flows = (0..MAX_FLOWS).map(flow).collect();
        let core = |core| CoreLoad { core, busy_ppm: 400_000, softirq_ppm: 90_000 };
        HostSnapshot { at_ms, flows: Some(flows), cores: (0..2).map(core).collect() }
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Returns the reports of the leases whose windows end.
    fn results(&mut self, now: i64) -> Vec<RunReport> {
        let over: Vec<Lease> =
            self.leases.values().filter(|lease| lease.end_ms - 1000 <= now).cloned().collect();
        let report = |lease: Lease| RunReport {
            id: self.id(),
            run: lease.run,
            fencing: lease.fencing,
            role: lease.role,
            outcome: RunOutcome::Finished,
            reason: None,
            started_ms: Some(lease.start_ms),
            ended_ms: now,
            exit_code: Some(0),
            message: None,
            document: (lease.role == Role::Source).then(document),
        };
        over.into_iter().map(report).collect()
    }

    fn send(&mut self, request: &SyncRequest, wait: u64) -> Result<SyncResponse, AgentError> {
        self.counter += 1;
        let path = format!("{SYNC_PATH}?wait={wait}");
        // The client writes the same bytes.
        let body = serde_json::to_vec(request).unwrap_or_default();
        let text = signed_text("POST", &path, self.counter, &body);
        let signature = STANDARD.encode(self.key.sign(text.as_bytes()));
        let counter = self.counter.to_string();
        let headers = [
            (AGENT_HEADER, self.id.as_str()),
            (COUNTER_HEADER, counter.as_str()),
            (SIGNATURE_HEADER, signature.as_str()),
        ];
        self.client.post(&path, &headers, request)
    }
}

/// Returns a result document of the size of a test of 2 s.
fn document() -> Value {
    let interval = json!({"start_seconds": 0.1, "bytes": 12_500_000, "throughput_bps": 9.4e8,
        "rtt_ms": 12.5, "retransmits": 0, "cwnd_bytes": 2_000_000});
    json!({"schema": "longhaul.test/1", "summary": {"throughput_bps": 9.4e8,
        "sender": {"rtt_ms": 12.5}}, "intervals": vec![interval; 20]})
}
