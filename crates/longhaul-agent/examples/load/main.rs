//! Loads a hub as many agents do, over the protocol of agents and in one process.
//!
//! ```text
//! load --hub https://127.0.0.1:5280 --pin PIN --password PASSWORD [--agents 1000] [--interfaces 10] [--seconds 300]
//!     [--earlier yes]
//! ```
//!
//! Each simulated agent enrolls with a token, signs with its own key, and uploads samples at 1 s with long
//! polls, as the agent does: two series per interface (traffic and queue), one of the host, and a snapshot.
//! With `--earlier yes` it samples only the traffic of interfaces, as earlier versions do. It takes leases,
//! and reports a result at the end of their windows. The example prints one JSON document.
//! `bench/hub-load.py` runs it.
#![allow(clippy::print_stdout, clippy::print_stderr)] // The output of an example.

mod agent;
mod check;
mod figures;

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_agent::{HubClient, HubUrl, Trust};
use longhaul_fleet::api::{LoginRequest, LoginResponse};
use serde_json::json;

use crate::agent::Simulated;
use crate::figures::Figures;

/// The stack of the thread of an agent.
const STACK: usize = 256 << 10;
/// The time until all agents upload regularly.
const WARM: Duration = Duration::from_secs(60);
/// The threads that enroll agents. A hub refuses more than ten pending enrollments of one address.
const ENROLLING: usize = 6;

/// The arguments.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    hub: HubUrl,
    trust: Trust,
    password: String,
    agents: usize,
    pub(crate) interfaces: usize,
    pub(crate) is_earlier: bool,
    seconds: u64,
}

impl Options {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let pairs: HashMap<&str, &str> =
            words.chunks_exact(2).map(|two| (two[0].as_str(), two[1].as_str())).collect();
        let text = |name: &str| pairs.get(name).copied().ok_or(format!("{name} is missing"));
        let number = |name: &str, default: usize| {
            pairs.get(name).map_or(Ok(default), |text| text.parse::<usize>())
        };
        Ok(Options {
            hub: text("--hub")?.parse()?,
            trust: Trust::Pin(text("--pin")?.to_owned()),
            password: text("--password")?.to_owned(),
            agents: number("--agents", 1000)?,
            interfaces: number("--interfaces", 10)?,
            is_earlier: pairs.get("--earlier") == Some(&"yes"),
            seconds: number("--seconds", 300)? as u64,
        })
    }

    /// Returns the number of agents.
    pub(crate) fn agents(&self) -> usize {
        self.agents
    }

    /// Returns a client with its own connection.
    pub(crate) fn client(&self) -> Result<HubClient, longhaul_agent::AgentError> {
        HubClient::new(self.hub.clone(), &self.trust)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Arc::new(Options::parse()?);
    let login = LoginRequest {
        user: "admin".to_owned(),
        password: options.password.clone(),
        label: "load".to_owned(),
    };
    let answer: LoginResponse = options.client()?.post("/api/v1/login", &[], &login)?;
    let bearer = Arc::new(format!("Bearer {}", answer.token));
    let begun = Instant::now();
    let mut agents = enrolled(&options, &bearer)?;
    eprintln!("{} agents enrolled in {:.1} s", agents.len(), begun.elapsed().as_secs_f64());

    let (stop, figures) = (Arc::new(AtomicBool::new(false)), Arc::new(Figures::default()));
    let mut probe = agents.pop().ok_or("no agents")?;
    let started = Instant::now();
    let mut threads = Vec::new();
    for (at, mut agent) in agents.into_iter().enumerate() {
        let (stop, figures) = (stop.clone(), figures.clone());
        // The agents of a fleet do not upload at the same time.
        let delay = Duration::from_millis(25_000 * at as u64 / options.agents as u64);
        threads.push(thread::Builder::new().stack_size(STACK).spawn(move || {
            agent.run(delay, &stop, &figures);
            agent
        })?);
    }
    let prober = thread::spawn({
        let (options, bearer) = (options.clone(), bearer.clone());
        let (stop, figures) = (stop.clone(), figures.clone());
        move || check::probe(&options, &bearer, &mut probe, &stop, &figures)
    });
    let mut warm = None;
    while started.elapsed() < Duration::from_secs(options.seconds) {
        thread::sleep(Duration::from_secs(10));
        if started.elapsed() >= WARM {
            warm.get_or_insert((started.elapsed(), figures.samples()));
        }
        eprintln!("{:4.0} s: {}", started.elapsed().as_secs_f64(), figures.line());
    }
    let rate = warm.map(|(at, samples)| {
        (figures.samples() - samples) as f64 / (started.elapsed() - at).as_secs_f64()
    });
    stop.store(true, Ordering::Relaxed);
    let agents: Vec<Simulated> = threads.into_iter().filter_map(|one| one.join().ok()).collect();
    let lived = agents.len();
    let series = agents.first().map(Simulated::series);
    let _ = prober.join();
    let lost = check::missing(&options, &bearer, &agents)?;
    let document = json!({
        "agents": lived, "series": series, "seconds": options.seconds,
        "samples_per_second_when_warm": rate, "load": figures.document(), "acknowledged_and_missing": lost,
    });
    println!("{document:#}");
    Ok(())
}

/// Creates a token for each agent, and enrolls the agents; the last one is the probe.
fn enrolled(options: &Arc<Options>, bearer: &Arc<String>) -> Result<Vec<Simulated>, String> {
    let threads: Vec<_> = (0..ENROLLING)
        .map(|first| {
            let (options, bearer) = (options.clone(), bearer.clone());
            thread::spawn(move || {
                let admin = options.client().map_err(|error| error.to_string())?;
                let mine = (first..=options.agents).step_by(ENROLLING);
                let each = mine.map(|at| Simulated::enroll(&options, &admin, &bearer, at));
                each.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
            })
        })
        .collect();
    let mut all = Vec::new();
    for one in threads {
        all.extend(one.join().map_err(|_| "a thread failed".to_owned())??);
    }
    Ok(all)
}
