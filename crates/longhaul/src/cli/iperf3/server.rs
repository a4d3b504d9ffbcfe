//! The server of `longhaul iperf3 -s`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::serve::{
    ClientLimits, ServeEvent, ServerKeys, Services, Serving, serve_guests,
};
use longhaul_engine::session::ServedSession;
use longhaul_engine::test::TestLimits;
use longhaul_engine::{EngineError, Result as EngineResult};
use longhaul_interop::iperf3::output::{
    Finished, TextOutput, end_document, interval_document, start_document, whole_document,
};
use longhaul_interop::iperf3::{DEFAULT_SKEW, Padding, Server, Users};
use serde_json::json;

use super::args::Args;
use super::{FAILED, Output, system};
use crate::exit::{self, Coded};
use crate::output::{failure_text, print_message};
use crate::signals::Interrupt;

/// The interval at which the idle time is checked.
const IDLE_CHECK: Duration = Duration::from_millis(100);

/// The server's only service is that of its guest.
struct GuestOnly {
    /// The time of the last event in ms since the start.
    last: AtomicU64,
    start: Instant,
}

impl Services for GuestOnly {
    fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
        Some((RefusalKind::NotAuthorized, "this server answers iperf3 only".to_owned()))
    }

    fn run(&self, _: Service, _: ServedSession) -> EngineResult<()> {
        Err(EngineError::Interrupted)
    }

    fn log(&self, event: ServeEvent) {
        self.last.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
        if let ServeEvent::Guest(report) = event
            && let Err(error) = &report.outcome
        {
            print_message(format_args!("{}: {}", report.address, failure_text(error)));
        }
    }
}

/// Serves until a signal, or as `--one-off` and `--idle-timeout` determine.
pub(super) fn run(args: &Args, output: Output) -> Result<u8, Coded> {
    let interrupt = Interrupt::install().map_err(|error| Coded::new(FAILED, error))?;
    let limits = TestLimits {
        rate: args.server_bitrate_limit.map(|limit| limit.0),
        time: args.server_max_duration.unwrap_or(Duration::from_secs(90_000)),
        ..TestLimits::default()
    };
    let server = listen(args, limits)?.with_users(users(args)?);
    let documents = args.json || args.json_stream;
    if !documents {
        let port = server.address().port();
        let line = "-".repeat(59);
        output.text(&format!("{line}\nServer listening on {port} (test #1)\n{line}\n"))?;
    }
    let (json, stream, format) = (args.json, args.json_stream, args.format.unwrap_or_default());
    let server = server.with_observer(Box::new(move |finished| {
        let printed = match (json, stream) {
            (_, true) => print_stream(&output, finished),
            (true, false) => output.document(&whole_document(finished, &system()), false),
            (false, false) => output.text(&text_of(TextOutput::new(format), finished)),
        };
        if let Err(error) = printed {
            print_message(failure_text(error.error.as_ref()));
        }
    }));
    let only = Arc::new(GuestOnly { last: AtomicU64::new(0), start: Instant::now() });
    let serving = Serving {
        host: Arc::new(ServerKeys::without_clients()?),
        services: only.clone(),
        clients: ClientLimits {
            one_off: args.one_off,
            penalties: false,
            anonymous: 64,
            ..ClientLimits::default()
        },
        guests: vec![Arc::new(server)],
    };
    let over = AtomicBool::new(false);
    let stop: &AtomicBool = interrupt.flag();
    thread::scope(|scope| {
        if let Some(limit) = args.idle_timeout.filter(|limit| !limit.is_zero()) {
            let (only, over) = (&only, &over);
            scope.spawn(move || watch_idle(only, limit, stop, over));
        }
        serve_guests(serving, stop);
        over.store(true, Ordering::Relaxed);
    });
    Ok(interrupt.exit_code().map_or(exit::OK, |_| FAILED))
}

/// Sets `stop` when nothing has happened for `limit`.
fn watch_idle(only: &GuestOnly, limit: Duration, stop: &AtomicBool, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let last = Duration::from_millis(only.last.load(Ordering::Relaxed));
        if only.start.elapsed().saturating_sub(last) > limit {
            stop.store(true, Ordering::Relaxed);
            return;
        }
        thread::sleep(IDLE_CHECK);
    }
}

/// Returns the users of the server, if it has any.
fn users(args: &Args) -> Result<Option<Users>, Coded> {
    let (key, users) = match (&args.rsa_private_key_path, &args.authorized_users_path) {
        (None, None) => return Ok(None),
        (Some(key), Some(users)) => (key, users),
        _ => {
            let reason =
                anyhow!("--rsa-private-key-path and --authorized-users-path belong together");
            return Err(Coded::new(FAILED, reason));
        }
    };
    let padding = if args.use_pkcs1_padding { Padding::Pkcs1 } else { Padding::Oaep };
    let skew = args.time_skew_threshold.unwrap_or(DEFAULT_SKEW);
    let users = Users::read(key, users, padding, skew);
    users.map(Some).map_err(|error| Coded::new(FAILED, error))
}

fn listen(args: &Args, limits: TestLimits) -> Result<Server, Coded> {
    let bind = args.bind.as_deref().map(str::parse::<IpAddr>).transpose();
    let bind = bind.map_err(|_| Coded::new(FAILED, anyhow!("-B is not an IP address")))?;
    let wildcard: IpAddr =
        if args.version4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let address = SocketAddr::new(bind.unwrap_or(wildcard), args.port);
    let server = Server::bind(address, limits.clone()).or_else(|error| match bind {
        Some(_) => Err(error),
        // A host without IPv6 has no wildcard for both.
        None => Server::bind((Ipv4Addr::UNSPECIFIED, args.port).into(), limits).map_err(|_| error),
    });
    let failed = |source| EngineError::Listen { address: address.to_string(), source };
    server.map_err(|source| Coded::new(FAILED, failed(source)))
}

fn text_of(mut text: TextOutput, finished: &Finished) -> String {
    let mut all = text.start(&finished.started);
    let most = finished.halves.iter().map(|half| half.samples.len()).max().unwrap_or(0);
    for number in 0..most {
        for half in &finished.halves {
            if let Some(sample) = half.samples.get(number) {
                all.push_str(&text.interval(&finished.started, half.role, sample));
            }
        }
    }
    all + &text.end(finished)
}

/// Prints the events of a finished test.
fn print_stream(output: &Output, finished: &Finished) -> Result<(), Coded> {
    let data = start_document(&finished.started, &system());
    output.document(&json!({ "event": "start", "data": data }), true)?;
    for half in &finished.halves {
        for sample in &half.samples {
            let data = interval_document(&finished.started, &[(half.role, sample)]);
            output.document(&json!({ "event": "interval", "data": data }), true)?;
        }
    }
    output.document(&json!({ "event": "end", "data": end_document(finished) }), true)
}
