//! TCP within this host: a test of one stream, both of whose ends are here.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use longhaul_core::plan::{Amount, FlowPlan};
use longhaul_core::result::{FlowResult, Measurement};
use longhaul_core::wire::{RefusalKind, Service};

use super::failed;
use crate::error::{EngineError, Result};
use crate::flow::{self, FlowLimits};
use crate::serve::{Listener, Services, serve_session};
use crate::session::{
    DataDialer, Grant, ServedSession, Session, SessionRegistry, SessionSecret, control, greet,
    random_keying_material,
};

const NAME: &str = "loopback_tcp";
const TITLE: &str = "TCP over loopback";

/// One stream for `time`, sender and receiver each with a thread of its own.
pub(super) fn measure(time: Duration, stop: &AtomicBool) -> Measurement {
    let result = match run(time, stop) {
        Ok(result) => result,
        Err(error) => return failed(NAME, TITLE, &error),
    };
    let summary = &result.summary;
    Measurement {
        name: NAME.to_owned(),
        title: TITLE.to_owned(),
        throughput_bps: Some(summary.throughput_bps),
        seconds: summary.receiver.seconds,
        note: format!(
            "1 stream; sender {:.0} %, receiver {:.0} % of a core",
            summary.sender.cpu_percent, summary.receiver.cpu_percent
        ),
    }
}

/// The far end, for one client in this process.
struct Tests;

impl Services for Tests {
    fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
        None
    }

    fn run(&self, _: Service, session: ServedSession) -> Result<()> {
        flow::serve(session, &FlowLimits::default())
    }

    fn ended(&self, _: &str, _: Result<()>) {}
}

fn run(time: Duration, stop: &AtomicBool) -> Result<FlowResult> {
    let failed = |source| EngineError::System { operation: "make a pair of sockets", source };
    let (near, far) = UnixStream::pair().map_err(failed)?;
    let near_writer = near.try_clone().map_err(failed)?;
    let far_writer = far.try_clone().map_err(failed)?;
    let listener = Listener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
    let address = listener.address();
    let secret = SessionSecret::from_keying_material(&random_keying_material());
    let registry = SessionRegistry::default();
    let streams = registry.register(secret.clone());
    let over = Arc::new(AtomicBool::new(false));
    let data = thread::spawn({
        let over = over.clone();
        move || listener.run_data(&registry, &over)
    });
    let server = thread::spawn(move || {
        let (sender, receiver) = control(far, far_writer, "this host");
        let grant = Grant::default();
        serve_session(ServedSession { sender, receiver, streams, authorised: true, grant }, &Tests)
    });
    let (sender, mut receiver) = control(near, near_writer, "this host");
    let plan = FlowPlan { amount: Amount::Time(time), ..FlowPlan::new() };
    let result = greet(&sender, &mut receiver, Service::Test, |_| true).and_then(|()| {
        let session = Session::new(sender, receiver, DataDialer::new(vec![address], secret));
        flow::run(session, &plan, stop, |_| {})
    });
    over.store(true, Ordering::Relaxed);
    // What either has to say, the session has said.
    let _ = server.join();
    let _ = data.join();
    result
}
