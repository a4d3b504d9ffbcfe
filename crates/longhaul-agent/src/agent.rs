//! The agent: its enrolment and its threads.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use longhaul_engine::session::Identity;
use longhaul_fleet::protocol::{
    AgentEvent, ENROL_PATH, EnrolRequest, EnrolResponse, Severity, StampPeer,
};
use longhaul_interop::stamp::{Reflector, ReflectorSettings};
use serde_json::Value;

use crate::client::{HubClient, Trust};
use crate::clock::HubClock;
use crate::error::{AgentError, Result};
use crate::home::{Enrolment, Home};
use crate::journal::Journal;
use crate::measure::{FACTS_INTERVAL, Interfaces, measure_peers, read_facts};
use crate::notice::Notice;
use crate::options::AgentOptions;
use crate::run::{Executor, RunQueue};
use crate::sync::{Sync, sleep};

/// The time between two checks for the end.
const LOOK: Duration = Duration::from_millis(100);
/// The pause before a part of the agent that failed starts again.
const RESTART: Duration = Duration::from_secs(60);

/// Enrols this host if the directory of its state has no enrolment, and returns the enrolment.
///
/// # Errors
/// The directory cannot be used, there is no token, or the hub refuses the token.
pub fn enrol(options: &AgentOptions) -> std::result::Result<Enrolment, AgentError> {
    let home = Home::open(&options.state)?;
    enrolled(options, &home).map(|(enrolment, _)| enrolment)
}

/// Returns the enrolment, and whether it is new.
fn enrolled(options: &AgentOptions, home: &Home) -> Result<(Enrolment, bool)> {
    if let Some(enrolment) = home.enrolment()? {
        return match &options.hub {
            Some(hub) if hub.to_string() != enrolment.hub => {
                Err(AgentError::OtherHub { path: options.state.clone(), hub: enrolment.hub })
            }
            _ => Ok((enrolment, false)),
        };
    }
    let (Some(hub), Some(token)) = (&options.hub, &options.token) else {
        return Err(AgentError::NotEnrolled(options.state.clone()));
    };
    let trust = Trust::of(token.pin.as_deref(), options.ca.as_deref());
    let client = HubClient::new(hub.clone(), &trust)?;
    let request = EnrolRequest {
        secret: token.secret.clone(),
        host: options.name.clone().unwrap_or_else(host_name),
        public_key: base64_of(&home.identity()?),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let response: EnrolResponse = client.post(ENROL_PATH, &[], &request)?;
    let pin = token.pin.clone().filter(|_| options.ca.is_none());
    let enrolment =
        Enrolment { hub: hub.to_string(), pin, agent: response.agent, host: response.host };
    home.store(&enrolment)?;
    Ok((enrolment, true))
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
/// The directory, the journal or the certificates cannot be used, the enrolment is refused, or the hub
/// will never accept this agent again.
pub fn run(
    options: &AgentOptions,
    stop: &AtomicBool,
    notice: &(dyn Fn(Notice<'_>) + std::marker::Sync),
) -> std::result::Result<(), AgentError> {
    let home = Home::open(&options.state)?;
    let (enrolment, new) = enrolled(options, &home)?;
    if new {
        notice(Notice::Enrolled { host: &enrolment.host, agent: &enrolment.agent });
    }
    let hub = enrolment.hub.parse().map_err(|error: crate::client::InvalidUrl| {
        AgentError::Damaged { path: home.file("enrolment.json"), message: error.to_string() }
    })?;
    let trust = Trust::of(enrolment.pin.as_deref(), options.ca.as_deref());
    let client = HubClient::new(hub, &trust)?;
    let identity = home.identity()?;
    let journal = Journal::open(&home.file("journal.db"))?;
    let executor = Executor { program: options.program.clone(), state: options.state.clone() };
    executor.clean();
    let parts = Parts {
        clock: HubClock::new(),
        interfaces: Interfaces::new(),
        peers: Mutex::default(),
        facts: Mutex::default(),
        ended: AtomicBool::new(false),
    };
    let queue = RunQueue::new(&journal, &parts.clock, &executor, notice)?;
    start_event(&journal, &parts.clock);
    notice(Notice::Started { host: &enrolment.host, hub: &enrolment.hub });
    let sync = Sync {
        client: &client,
        identity: &identity,
        agent: enrolment.agent.clone(),
        state: options.state.clone(),
        boot: boot_id(),
        stamp_port: options.reflectors.first().map_or(0, |address| address.port()),
        started: Instant::now(),
        journal: &journal,
        clock: &parts.clock,
        queue: &queue,
        interfaces: &parts.interfaces,
        peers: &parts.peers,
        facts: &parts.facts,
        notice,
    };
    thread::scope(|scope| {
        parts.start(scope, options, &journal, notice);
        scope.spawn(|| queue.run(scope, &parts.ended));
        let exchange = scope.spawn(|| sync.run(&parts.ended));
        while !stop.load(Ordering::Relaxed) && !exchange.is_finished() {
            thread::sleep(LOOK);
        }
        parts.ended.store(true, Ordering::Relaxed);
        client.shut_down();
        // A panic of the thread ends the agent, too.
        exchange.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The parts of the agent that its threads share.
struct Parts {
    clock: HubClock,
    interfaces: Interfaces,
    peers: Mutex<Vec<StampPeer>>,
    facts: Mutex<Option<Value>>,
    ended: AtomicBool,
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
            while !self.ended.load(Ordering::Relaxed) {
                if let Err(error) = self.interfaces.run(&self.clock, &self.ended) {
                    let message = longhaul_core::text::chain(&error);
                    notice(Notice::PartFailed { part: "sampling of interfaces", message });
                    sleep(RESTART, &self.ended);
                }
            }
        });
        scope.spawn(|| {
            // Without space in the journal the summary is a gap.
            measure_peers(&self.peers, &self.clock, &self.ended, |summary| {
                let _ = journal.push_stamp(&summary);
            });
        });
        for address in &options.reflectors {
            let settings = ReflectorSettings::default();
            match Reflector::bind(*address, settings) {
                Ok(reflector) => {
                    let ended = || self.ended.load(Ordering::Relaxed);
                    scope.spawn(move || reflector.run(ended, |_| {}));
                }
                Err(error) => {
                    let message = format!("{address}: {error}");
                    notice(Notice::PartFailed { part: "STAMP reflector", message });
                }
            }
        }
        scope.spawn(|| self.report_facts(&options.program, &options.state));
    }

    /// Examines the host at the start and every six hours, and passes on what has changed.
    fn report_facts(&self, program: &Path, state: &Path) {
        let mut last = None;
        while !self.ended.load(Ordering::Relaxed) {
            let facts = read_facts(program, state, &self.ended);
            let pause = if facts.is_some() { FACTS_INTERVAL } else { RESTART };
            if facts.is_some() && facts != last {
                *self.facts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = facts.clone();
                last = facts;
            }
            sleep(pause, &self.ended);
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

fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}
