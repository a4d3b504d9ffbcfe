//! Copies between two servers of which one does not end.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::copy::name_list::sent_path;
use crate::copy::tests::empty_report;
use crate::session::control;

#[test]
fn a_source_that_stays_after_the_end_is_not_waited_for() {
    let channel = || {
        let ends = UnixStream::pair().unwrap();
        let end = |socket: UnixStream| control(socket.try_clone().unwrap(), socket, "a peer");
        (end(ends.0), end(ends.1))
    };
    let ((to_source, from_source), (source, _source)) = channel();
    let ((to_sink, from_sink), (sink, _sink)) = channel();
    let (progress, options) = (&CopyProgress::default(), &CopyOptions::default());
    let watchdog = Watchdog::new(Duration::from_secs(2));
    let (state, finished) = (Mutex::default(), OnceLock::new());
    let relay = Relay { to_source, to_sink, progress, options, state, finished, watchdog };
    sink.send(&SinkMessage::Finished(empty_report())).unwrap();
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let limit = Duration::from_secs(30);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (path, reason) = (sent_path(Path::new("f")).unwrap(), String::new());
            let skipped = SourceMessage::Skipped { path, reason };
            while !over.load(Ordering::Relaxed) && begun.elapsed() < limit {
                let _ = source.send(&skipped);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let state = relay.run(from_source, from_sink, None, &AtomicBool::new(false));
        over.store(true, Ordering::Relaxed);
        assert!(state.unwrap().sink.is_some());
    });
    assert!(begun.elapsed() < limit, "{:?}", begun.elapsed());
}
