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
    AGENT_HEADER, AgentState, COUNTER_HEADER, ENROLL_PATH, EnrollRequest, EnrollResponse,
    EnrollToken, InterfaceRow, InterfaceSamples, Lease, MAX_WAIT_SECONDS, Role, RunOutcome,
    RunReport, SIGNATURE_HEADER, SYNC_PATH, SyncRequest, SyncResponse, signed_text,
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
    series: usize,
    random: u64,
    wait: u64,
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
            series: options.series,
            random: 0x9e37_79b9_7f4a_7c15 ^ at as u64,
            wait: 1,
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
            let wait = if self.leases.is_empty() { self.wait.min(MAX_WAIT_SECONDS) } else { 1 };
            match self.sync(wait, figures) {
                Ok(()) => pause = PAUSES.0,
                Err(error) => {
                    figures.failed(&error);
                    thread::sleep(pause);
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Uploads all samples since the last acknowledged ones.
    pub(crate) fn sync(&mut self, wait: u64, figures: &Figures) -> Result<(), AgentError> {
        let (first, end) = self.seconds();
        let seconds = (end - first) / 1000;
        let begun = now_ms();
        let request = SyncRequest {
            boot: "simulated".to_owned(),
            clock_ms: begun,
            state: self.state(),
            facts: None,
            samples: (0..self.series).map(|at| self.samples(at, first, seconds)).collect(),
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
            figures.stored(seconds.unsigned_abs() * self.series as u64);
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
        self.wait = answer.settings.upload_seconds.into();
        Ok(())
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

    fn samples(&mut self, at: usize, first: i64, seconds: i64) -> InterfaceSamples {
        let rows = (1..=seconds).map(|second| {
            // Rates that change, as those of a busy interface do.
            let traffic = self.next() % 125_000_000;
            InterfaceRow {
                end_ms: first + second * 1000,
                span_ms: 1000,
                in_bytes: traffic,
                out_bytes: traffic / 3 + self.next() % 100_000,
                in_packets: traffic / 1400,
                out_packets: traffic / 4000,
                ..InterfaceRow::default()
            }
        });
        let rows = rows.collect();
        self.next_id += 1;
        let interface = format!("eth{at}");
        InterfaceSamples { id: self.next_id, interface, speed_bps: Some(1_000_000_000), rows }
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
        let report = |lease: Lease| {
            self.next_id += 1;
            RunReport {
                id: self.next_id,
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
            }
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
