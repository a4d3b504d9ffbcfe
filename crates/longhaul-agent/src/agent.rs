//! The agent: its options, its enrollment and its threads.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use longhaul_engine::session::Identity;
use longhaul_fleet::protocol::{
    AgentEvent, DeclaredCapacity, ENROLL_PATH, EnrollRequest, EnrollResponse, EnrollToken,
    Severity, StampPeer,
};
use longhaul_interop::stamp::{Reflector, ReflectorSettings};
use longhaul_sys::host;
use serde_json::Value;

use crate::client::{HubClient, HubUrl, Trust};
use crate::clock::{End, HubClock};
use crate::error::{AgentError, Notice, Result};
use crate::home::{Enrollment, Home};
use crate::journal::{Journal, samples_dropped};
use crate::measure::{CAPACITY_WAIT, FACTS_INTERVAL, Samples, measure_peers, read_facts};
use crate::run::{AllowedPeers, Executor, RunQueue};
use crate::sync::Sync;

/// The time between two checks of the flag of the caller, which a signal handler sets.
const LOOK: Duration = Duration::from_millis(250);
/// The pause before a part of the agent that failed starts again.
const RESTART: Duration = Duration::from_secs(60);
/// The minimum time between two examinations of the host.
const LEAST_PAUSE: Duration = Duration::from_secs(10);
/// The interval between two checks for a change of the declared capacity.
const CAPACITY_LOOK: Duration = Duration::from_secs(1);

/// The default directory of the agent's state.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/longhaul/agent";

/// The options of an agent.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The hub; that of the enrollment if `None`.
    pub hub: Option<HubUrl>,
    /// The one-time token; necessary for the first start.
    pub token: Option<EnrollToken>,
    /// A file with the certificates (PEM) that verify the hub, instead of a pin.
    pub ca: Option<PathBuf>,
    /// The name of this host in the mesh; its host name if `None`.
    pub name: Option<String>,
    /// The directory of the journal and the key.
    pub state: PathBuf,
    /// The program that runs the tests: longhaul.
    pub program: PathBuf,
    /// The addresses of the STAMP reflectors; none disables them.
    pub reflectors: Vec<SocketAddr>,
    /// The addresses that the agent tests.
    pub allow: AllowedPeers,
    /// True if the agent reports the connections of the host.
    pub flows: bool,
}

/// Enrolls this host if the directory of its state has no enrollment, and returns the enrollment.
///
/// # Errors
/// The directory cannot be used, there is no token, or the hub refuses the token.
pub fn enroll(options: &AgentOptions) -> std::result::Result<Enrollment, AgentError> {
    let home = Home::open(&options.state)?;
    enrolled(options, &home).map(|(enrollment, _)| enrollment)
}

/// Returns the enrollment, and whether it is new.
fn enrolled(options: &AgentOptions, home: &Home) -> Result<(Enrollment, bool)> {
    if let Some(enrollment) = home.enrollment()? {
        return match &options.hub {
            Some(hub) if hub.to_string() != enrollment.hub => {
                Err(AgentError::OtherHub { path: options.state.clone(), hub: enrollment.hub })
            }
            _ => Ok((enrollment, false)),
        };
    }
    let (Some(hub), Some(token)) = (&options.hub, &options.token) else {
        return Err(AgentError::NotEnrolled(options.state.clone()));
    };
    let trust = Trust::of(token.pin.as_deref(), options.ca.as_deref());
    let client = HubClient::new(hub.clone(), &trust)?;
    let request = EnrollRequest {
        secret: token.secret.clone(),
        host: options.name.clone().unwrap_or_else(host_name),
        public_key: base64_of(&home.identity()?),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let response: EnrollResponse = client.post(ENROLL_PATH, &[], &request)?;
    let pin = token.pin.clone().filter(|_| options.ca.is_none());
    let enrollment =
        Enrollment { hub: hub.to_string(), pin, agent: response.agent, host: response.host };
    home.store(&enrollment)?;
    Ok((enrollment, true))
}

/// Returns the public key in base64.
fn base64_of(identity: &Identity) -> String {
    // The text is the type of the key and its base64.
    let text = identity.public().to_string();
    text.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Runs an agent until `stop` is set. Passes notices to `notice`, from several threads.
///
/// # Errors
/// The directory, the journal or the certificates cannot be used, the enrollment is refused, or the hub
/// will never accept this agent again.
pub fn run(
    options: &AgentOptions,
    stop: &AtomicBool,
    notice: &(dyn Fn(Notice<'_>) + std::marker::Sync),
) -> std::result::Result<(), AgentError> {
    let home = Home::open(&options.state)?;
    let (enrollment, new) = enrolled(options, &home)?;
    if new {
        notice(Notice::Enrolled { host: &enrollment.host, agent: &enrollment.agent });
    }
    let hub = enrollment.hub.parse().map_err(|error: crate::client::InvalidUrl| {
        AgentError::Damaged { path: home.file("enrolment.json"), message: error.to_string() }
    })?;
    let trust = Trust::of(enrollment.pin.as_deref(), options.ca.as_deref());
    let client = HubClient::new(hub, &trust)?;
    let identity = home.identity()?;
    let journal = Journal::open(&home.file("journal.db"))?;
    let executor = Executor { program: options.program.clone(), state: options.state.clone() };
    executor.clean();
    let parts = Parts {
        clock: HubClock::new(),
        samples: Samples::new(options.flows),
        peers: Mutex::default(),
        facts: Mutex::default(),
        capacity: Mutex::default(),
        end: End::default(),
    };
    let queue = RunQueue::new(&journal, &parts.clock, (&executor, &options.allow), notice)?;
    start_event(&journal, &parts.clock);
    notice(Notice::Started { host: &enrollment.host, hub: &enrollment.hub });
    let sync = Sync {
        client: &client,
        identity: &identity,
        agent: enrollment.agent.clone(),
        state: options.state.clone(),
        boot: host::boot_id().unwrap_or_default(),
        stamp_port: options.reflectors.first().map_or(0, |address| address.port()),
        started: Instant::now(),
        journal: &journal,
        clock: &parts.clock,
        queue: &queue,
        samples: &parts.samples,
        peers: &parts.peers,
        allow: &options.allow,
        facts: &parts.facts,
        capacity: &parts.capacity,
        notice,
    };
    thread::scope(|scope| {
        parts.start(scope, options, &journal, notice);
        exchange(scope, stop, &parts.end, (&queue, &sync))
    })
}

/// Runs the queue and the exchange with the hub until `stop` is set or one of them ends.
fn exchange<'scope>(
    scope: &'scope Scope<'scope, '_>,
    stop: &AtomicBool,
    end: &'scope End,
    (queue, sync): (&'scope RunQueue<'scope>, &'scope Sync<'scope>),
) -> Result<()> {
    let runs = scope.spawn(move || queue.run(scope, end));
    let exchange = scope.spawn(move || sync.run(end));
    // An agent that exchanges and does not run would accept leases in vain.
    while !stop.load(Ordering::Relaxed) && !exchange.is_finished() && !runs.is_finished() {
        thread::sleep(LOOK);
    }
    end.reach();
    queue.wake();
    sync.client.shut_down();
    // A panic of the thread ends the agent, too.
    exchange.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The parts of the agent that its threads share.
struct Parts {
    clock: HubClock,
    samples: Samples,
    peers: Mutex<Vec<StampPeer>>,
    facts: Mutex<Option<Value>>,
    capacity: Mutex<Option<DeclaredCapacity>>,
    end: End,
}

impl Parts {
    /// Starts the permanent measurements.
    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        options: &'scope AgentOptions,
        journal: &'scope Journal,
        notice: &'scope (dyn Fn(Notice<'_>) + std::marker::Sync),
    ) {
        scope.spawn(move || {
            while !self.end.is_reached() {
                if let Err(error) = self.samples.run(&self.clock, self.end.flag()) {
                    let message = longhaul_core::text::chain(&error);
                    notice(Notice::PartFailed { part: "sampling of the host", message });
                    self.end.sleep(RESTART);
                }
            }
        });
        scope.spawn(|| {
            // Without space in the journal the summary is a gap.
            measure_peers(&self.peers, &self.clock, self.end.flag(), |summary| {
                if let Ok(dropped @ 1..) = journal.push_stamp(&summary) {
                    let _ = journal.push_event(&samples_dropped(dropped, self.clock.now_ms()));
                }
            });
        });
        for address in &options.reflectors {
            let settings = ReflectorSettings::default();
            match Reflector::bind(*address, settings) {
                Ok(reflector) => {
                    scope.spawn(move || reflector.run(|| self.end.is_reached(), |_| {}));
                }
                Err(error) => {
                    let message = format!("{address}: {error}");
                    notice(Notice::PartFailed { part: "STAMP reflector", message });
                }
            }
        }
        scope.spawn(|| self.report_facts(&options.program, &options.state));
    }

    /// Examines the host at the start, every six hours and after a change of its declared capacity, and passes
    /// on the changes.
    fn report_facts(&self, program: &Path, state: &Path) {
        let mut last = None;
        self.pause(CAPACITY_WAIT, || self.capacity().is_some());
        while !self.end.is_reached() {
            let capacity = self.capacity();
            let facts = read_facts(program, state, capacity.as_ref(), self.end.flag());
            let pause = if facts.is_some() { FACTS_INTERVAL } else { RESTART };
            if facts.is_some() && facts != last {
                *self.facts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = facts.clone();
                last = facts;
            }
            // This pause limits the load if a hub changes the capacity often.
            self.pause(LEAST_PAUSE, || false);
            self.pause(pause, || self.capacity() != capacity);
        }
    }

    fn capacity(&self) -> Option<DeclaredCapacity> {
        self.capacity.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Sleeps for `time`, or until the agent ends or `over` returns true.
    fn pause(&self, time: Duration, over: impl Fn() -> bool) {
        let until = Instant::now() + time;
        while !self.end.is_reached() && !over() && Instant::now() < until {
            self.end.sleep(CAPACITY_LOOK);
        }
    }
}

fn start_event(journal: &Journal, clock: &HubClock) {
    let event = AgentEvent {
        id: 0,
        at_ms: clock.now_ms(),
        severity: Severity::Info,
        kind: "agent_started".to_owned(),
        message: format!("longhaul {} started", env!("CARGO_PKG_VERSION")),
    };
    // Without space in the journal the event is lost.
    let _ = journal.push_event(&event);
}
