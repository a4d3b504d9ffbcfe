//! A server with many clients, half of them hostile, and its limits.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use crate::host::{Server, TestHost, text};

fn serve(host: &TestHost, options: &[&str]) -> Server {
    let mut arguments = vec!["serve", "--bind", "127.0.0.1", "-p", "0"];
    arguments.extend(options);
    Server::start(host.longhaul(&arguments))
}

fn test(host: &TestHost, server: &Server, arguments: &str) -> Command {
    let port = server.port.to_string();
    let mut command = host.longhaul(&["test", "127.0.0.1", "-p", &port]);
    command.args(arguments.split_whitespace());
    command
}

fn output(host: &TestHost, server: &Server, arguments: &str) -> Output {
    test(host, server, arguments).output().unwrap()
}

#[test]
fn every_honest_client_is_answered_beside_hostile_ones() {
    let host = TestHost::new();
    let server = serve(&host, &["--exclusive"]);
    // The start of a TLS handshake record; the rest never follows.
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    let noise: Vec<u8> =
        (0..4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut hostile: Vec<TcpStream> = (0..20)
        .map(|number| {
            let mut foe = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            match number % 4 {
                0 => {}
                1 => foe.write_all(&noise).unwrap(),
                2 => foe.write_all(&hello).unwrap(),
                _ => foe.write_all(&hello[..1]).unwrap(),
            }
            foe
        })
        .collect();
    let outputs: Vec<Output> = thread::scope(|scope| {
        let honest: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| output(&host, &server, "-n 100K -P 2 --json")))
            .collect();
        honest.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for output in &outputs {
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("\"bytes\": 102400"));
    }
    // The server serves one client at a time, so some clients had to wait.
    let queued = outputs.iter().filter(|o| text(&o.stderr).contains("in the queue of")).count();
    assert!(queued > 0, "no client waited in the queue");
    // The server has closed the connections with invalid data. Silent connections are still open,
    // but harmless.
    hostile[1].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let ended = hostile[1].read_to_end(&mut Vec::new());
    assert!(ended.is_ok() || ended.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_refusal_names_the_limit() {
    let host = TestHost::new();
    let server =
        serve(&host, &["--key-max-time", "2", "--key-max-streams", "2", "--key-max-rate", "100M"]);
    for (arguments, words) in [
        ("-b 10M -t 3", "this server allows tests of 2s, not 3s"),
        ("-b 10M -t 1 -P 3", "this server allows 2 streams, not 3"),
        ("-b 1G -t 1", "this server allows 100 Mb/s, not 1.00 Gb/s"),
        ("-t 1", "this server allows 100 Mb/s; request a rate of at most that"),
    ] {
        let refused = output(&host, &server, arguments);
        assert_eq!(refused.status.code(), Some(4), "{arguments}");
        let error = text(&refused.stderr);
        assert!(error.contains(words), "{arguments}: {error}");
        assert!(refused.stdout.is_empty(), "{arguments}: {refused:?}");
    }
    let allowed = output(&host, &server, "-b 10M -t 1 -P 2");
    assert!(allowed.status.success(), "{}", text(&allowed.stderr));
}

#[test]
fn authorized_keys_have_higher_limits_and_keys_only_refuses_others() {
    let [host, unauthorized] = [(); 2].map(|()| TestHost::new());
    let server = serve(&host, &["--max-time", "1"]);
    let refused = output(&unauthorized, &server, "-t 3");
    assert_eq!(refused.status.code(), Some(4));
    assert!(text(&refused.stderr).contains("allows tests of 1s, not 3s"));
    assert!(output(&unauthorized, &server, "-n 10K").status.success());
    assert!(output(&host, &server, "-t 1.5").status.success());

    let closed = serve(&host, &["--keys-only"]);
    let refused = output(&unauthorized, &closed, "-n 10K");
    assert_eq!(refused.status.code(), Some(4));
    assert!(text(&refused.stderr).contains("this key is not authorized"));
    assert!(output(&host, &closed, "-n 10K").status.success());
}
