//! Control channels to peers that do not read.

use std::os::unix::net::UnixStream;

use longhaul_core::wire::FrameError;

use super::*;

/// Returns the channel to a program that reads nothing.
fn stalled(timeout: Duration) -> (ControlSender, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    let (sender, _) = control(near.try_clone().unwrap(), near, "the peer");
    sender.set_timeout(timeout);
    (sender, far)
}

#[test]
fn a_program_that_reads_nothing_is_not_waited_for() {
    let (sender, _far) = stalled(Duration::from_millis(300));
    let error = sender.send(&"x".repeat(900_000)).unwrap_err();
    let EngineError::Control { source: FrameError::Io(error), .. } = error else {
        panic!("{error}")
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_message_beside_one_that_waits_is_left_out() {
    let (sender, far) = stalled(Duration::from_secs(600));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.send(&"x".repeat(900_000)));
        while sender.writer.try_lock().is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(sender.send_if_idle(&"y").is_ok());
        sender.send_last(&"z", Duration::from_millis(20));
        drop(far);
        assert!(waiting.join().unwrap().is_err());
    });
}
