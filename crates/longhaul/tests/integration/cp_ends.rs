//! `longhaul cp` with standard input and output, with lists of paths, and with `--json-stream`.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::cable::TcpProxy;
use crate::host::{TestHost, assert_code, names, text, wait_for};
use crate::ssh::Sshd;

/// Runs longhaul with `input` on its standard input.
fn feed(host: &TestHost, arguments: &[&str], input: &[u8]) -> Output {
    let mut copy = piped(host, arguments);
    let mut stdin = copy.stdin.take().unwrap();
    let input = input.to_vec();
    // The program may end before it has read all of its input.
    let feeding = thread::spawn(move || stdin.write_all(&input));
    let output = copy.wait_with_output().unwrap();
    let _ = feeding.join().unwrap();
    output
}

fn piped(host: &TestHost, arguments: &[&str]) -> Child {
    let mut copy = host.longhaul(arguments);
    copy.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn standard_input_becomes_a_file() {
    let host = TestHost::new();
    let server = host.serve();
    let large = fs::read(host.file("large", (9 << 20) + 321)).unwrap();
    for (name, bytes) in [("large", &large[..]), ("even", &large[..2 << 20]), ("no", b"")] {
        for target in [server.url(name), format!("here-{name}")] {
            let output = feed(&host, &["cp", "--json", "--digest", "-", &target], bytes);
            assert_code(&output, 0);
            let result: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(result["summary"]["bytes"], bytes.len(), "{target}");
            assert_eq!(result["summary"]["durable"], true);
            let digest = blake3::hash(bytes).to_string();
            assert_eq!(result["digests"][0]["blake3"], digest.as_str(), "{target}");
        }
        assert!(fs::read(host.far(name)).unwrap() == bytes, "{name}");
        assert!(fs::read(host.near(&format!("here-{name}"))).unwrap() == bytes, "{name}");
    }
    // A stream that is copied into a directory needs a name.
    assert_code(&feed(&host, &["cp", "-", &server.url("")], b"some"), 0);
    assert_eq!(names(&host.far("")), ["even", "large", "no", "stdin"]);
    assert_code(&feed(&host, &["cp", "-", "/dev/null"], &large), 0);
}

#[test]
fn standard_output_carries_only_the_file() {
    let host = TestHost::new();
    let server = host.serve();
    for (name, size) in [("large", (40 << 20) + 321), ("small", 1000), ("no", 0)] {
        let bytes = fs::read(host.file(name, size)).unwrap();
        fs::copy(host.near(name), host.far(name)).unwrap();
        for (from, flags) in [
            (server.url(name), &["--json"][..]),
            (server.url(name), &["--cleartext", "-P", "7", "--digest"]),
            (name.to_owned(), &["--json-stream"]),
        ] {
            let output = host.run(&[&["cp"], flags, &[&from, "-"]].concat());
            assert_code(&output, 0);
            assert!(output.stdout == bytes, "{from}: {} came", output.stdout.len());
            let printed = text(&output.stderr);
            if flags.contains(&"--digest") {
                assert!(printed.contains(&blake3::hash(&bytes).to_string()), "{printed}");
            } else {
                assert!(printed.contains("longhaul.cp/1"), "{printed}");
            }
        }
    }
    // Holes become zeros in a stream.
    let sparse = fs::File::create(host.far("sparse")).unwrap();
    sparse.set_len(6 << 20).unwrap();
    let output = host.run(&["cp", &server.url("sparse"), "-"]);
    assert!(output.stdout == vec![0; 6 << 20], "{} came", output.stdout.len());
    let output = host.run(&["cp", &server.url("none"), "-"]);
    assert_code(&output, 5);
    assert!(text(&output.stderr).contains("none"), "{}", text(&output.stderr));
    // A closed pipe ends the copy.
    let mut copy = piped(&host, &["cp", "large", "-"]);
    copy.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let output = copy.wait_with_output().unwrap();
    assert_code(&output, 5);
    assert!(text(&output.stderr).contains("Broken pipe"), "{}", text(&output.stderr));
}

#[test]
fn standard_input_and_output_work_over_ssh() {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    let bytes = fs::read(host.file("data", (5 << 20) + 7)).unwrap();
    let there = format!("127.0.0.1:{}", host.far("there").display());
    for way in [&[][..], &["--via-ssh"]] {
        let cp = ["cp", "-e", &sshd.rsh, "--far-longhaul", crate::host::PROGRAM];
        let cp = [&cp[..], way].concat();
        assert_code(&feed(&host, &[&cp[..], &["-", &there]].concat(), &bytes), 0);
        assert!(fs::read(host.far("there")).unwrap() == bytes);
        let output = host.run(&[&cp[..], &[&there, "-"]].concat());
        assert_code(&output, 0);
        assert!(output.stdout == bytes);
        fs::remove_file(host.far("there")).unwrap();
    }
}

#[test]
fn standard_input_survives_lost_and_corrupted_connections() {
    let host = TestHost::new();
    let server = host.serve();
    let bytes = fs::read(host.file("data", 24 << 20)).unwrap();
    for spoiling in [false, true] {
        let cable = TcpProxy::to(server.port);
        let (into, out) = (cable.url("x"), cable.url("x"));
        let cut = |copying: thread::ScopedJoinHandle<'_, Output>| {
            if spoiling {
                cable.corrupt_every(5 << 20);
            } else {
                for _ in 0..2 {
                    thread::sleep(Duration::from_millis(1200));
                    cable.cut();
                }
            }
            copying.join().unwrap()
        };
        let output = thread::scope(|scope| {
            let limit = if spoiling { "1G" } else { "60M" };
            let arguments = ["cp", "--json", "--bwlimit", limit, "-", &into];
            let (host, bytes) = (&host, &bytes);
            cut(scope.spawn(move || feed(host, &arguments, bytes)))
        });
        assert_code(&output, 0);
        let summary = serde_json::from_slice::<Value>(&output.stdout).unwrap()["summary"].clone();
        let mended = if spoiling { "resent_blocks" } else { "reconnects" };
        assert!(summary[mended].as_u64().unwrap() >= 1, "{summary}");
        assert!(fs::read(host.far("x")).unwrap() == bytes);
        assert_eq!(names(&host.far("")), ["x"]);

        cable.corrupt_every(0);
        let output = thread::scope(|scope| {
            let limit = if spoiling { "1G" } else { "60M" };
            let arguments = ["cp", "--bwlimit", limit, &out, "-"];
            let host = &host;
            cut(scope.spawn(move || host.run(&arguments)))
        });
        assert_code(&output, 0);
        assert!(output.stdout == bytes, "{} came", output.stdout.len());
        let printed = text(&output.stderr);
        assert!(printed.contains("; reconnecting"), "{printed}");
        assert!(!spoiling || cable.corrupted_bits() > 0);
    }
}

#[test]
fn standard_input_is_not_resumed_by_a_restarted_sink() {
    let host = TestHost::new();
    let mut server = host.serve();
    let port = server.port;
    let mut copy = piped(&host, &["cp", "-", &server.url("x")]);
    let mut stdin = copy.stdin.take().unwrap();
    stdin.write_all(&vec![7; 4 << 20]).unwrap();
    let part = || names(&host.far("")).iter().any(|name| name.ends_with(".part"));
    wait_for("a temporary file", part);
    thread::sleep(Duration::from_millis(500));
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    for name in names(&host.far("")) {
        fs::remove_file(host.far(&name)).unwrap();
    }
    let _again = host.serve_at(port);
    drop(stdin);
    let output = copy.wait_with_output().unwrap();
    assert_code(&output, 5);
    assert!(text(&output.stderr).contains("cannot be read twice"), "{}", text(&output.stderr));
    assert!(!host.far("x").exists());
}

/// Returns all files below a directory, with their contents.
fn contents(host: &TestHost, dir: &str) -> String {
    let script = "find . -mindepth 1 | sort; find . -type f -print0 | sort -z | xargs -0r cat";
    let output = host.command("sh", &["-c", &format!("cd '{dir}' && {script}")]).output().unwrap();
    assert_code(&output, 0);
    text(&output.stdout)
}

#[test]
fn files_from_selects_as_rsync_does() {
    let host = TestHost::new();
    let server = host.serve();
    for file in ["a", "sub/b", "sub/deep/c", "sub/deep/d", "other/e", "odd name", "#hash", "f\ng"] {
        let path = host.near(&format!("t/{file}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{file}\n")).unwrap();
    }
    host.command("cp", &["-r", "t", "../far/t"]).status().unwrap();
    for (number, (list, flags)) in [
        ("a\nsub/deep/c\n", &[][..]),
        ("# a comment\n; another\n\nodd name\n/sub/b\n./a\nsub//b\n", &[]),
        ("sub\n", &[]),
        ("sub\nsub/deep/c\n", &["-r"]),
        ("sub/deep\nother/e\n", &["-r"]),
        (".\n", &["-r"]),
        ("a\0f\ng\0", &["--from0"]),
        ("a\nsub/b\nother/e\n", &["--exclude=other"]),
        ("", &[]),
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(host.near("list"), list).unwrap();
        let theirs = format!("theirs{number}");
        // Without the slash, rsync treats a single listed path as a file with a new name.
        fs::create_dir(host.near(&theirs)).unwrap();
        let arguments = [&["--files-from=list"], flags, &["t", &theirs]].concat();
        assert_code(&host.command("rsync", &arguments).output().unwrap(), 0);
        // From this host to the server and from the server to this host.
        for (way, source, target) in [
            ("here", "t".to_owned(), format!("ours{number}")),
            ("pull", server.url("t"), format!("pulled{number}")),
            ("push", "t".to_owned(), server.url(&format!("pushed{number}"))),
        ] {
            let arguments = [&["cp", "--files-from", "list"], flags, &[&source, &target]].concat();
            assert_code(&host.run(&arguments), 0);
            let ours = match way {
                "push" => format!("../far/pushed{number}"),
                _ => target,
            };
            assert_eq!(contents(&host, &ours), contents(&host, &theirs), "{list:?} {flags:?}");
        }
    }
    // A path that ends with NUL is never a comment; rsync would skip this path.
    fs::write(host.near("list"), "#hash\0").unwrap();
    assert_code(&host.run(&["cp", "--files-from", "list", "-0", "t", "nul"]), 0);
    assert_eq!(fs::read(host.near("nul/#hash")).unwrap(), b"#hash\n");
}

#[test]
fn missing_listed_paths_are_reported_and_the_rest_is_copied() {
    let host = TestHost::new();
    fs::create_dir_all(host.near("t/sub")).unwrap();
    host.file("t/a", 10);
    host.file("t/sub/b", 10);
    let list = b"a\nmissing\nsub/none\nnowhere/x\na/x\n../t/a\nsub/b\n";
    let output = feed(&host, &["cp", "--files-from", "-", "t", "copy"], list);
    assert_code(&output, 7);
    let printed = text(&output.stderr);
    for missing in ["t/missing", "t/sub/none", "t/nowhere/x", "t/a/x", "../t/a"] {
        assert!(
            printed.lines().any(|line| line.contains(&format!("{missing}:"))),
            "{missing}: {printed}"
        );
    }
    assert_eq!(names(&host.near("copy")), ["a", "sub"]);
    assert_eq!(names(&host.near("copy/sub")), ["b"]);
    let output = feed(&host, &["cp", "--files-from", "-", "t/a", "copy"], b"x\n");
    assert_code(&output, 5);
    assert!(text(&output.stderr).contains("not a directory"), "{}", text(&output.stderr));
}

#[test]
fn a_long_list_reaches_a_remote_source() {
    let host = TestHost::new();
    let server = host.serve();
    fs::create_dir(host.far("t")).unwrap();
    let name = |i: usize| format!("{i:04}-{}", "x".repeat(200));
    let list: Vec<_> = (0..3000).map(name).collect();
    for name in list.iter().step_by(100) {
        fs::write(host.far(&format!("t/{name}")), name).unwrap();
    }
    fs::write(host.near("list"), list.join("\n")).unwrap();
    let output = host.run(&["cp", "--json", "--files-from", "list", &server.url("t"), "got"]);
    assert_code(&output, 7);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["summary"]["files"], 30);
    // The first thousand failures are reported individually.
    assert_eq!(result["failures"].as_array().unwrap().len(), 1000);
    assert_eq!(names(&host.near("got")).len(), 30);
}

#[test]
fn json_stream_prints_a_line_per_second_and_the_result() {
    let host = TestHost::new();
    let server = host.serve();
    host.file("data", 6 << 20);
    let output = host.run(&["cp", "--json-stream", "--bwlimit", "16M", "data", &server.url("x")]);
    assert_code(&output, 0);
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, before) = lines.split_last().unwrap();
    assert!(before.len() >= 2, "{before:?}");
    for line in before {
        assert_eq!(
            (&line["schema"], &line["event"]),
            (&"longhaul.cp/1".into(), &"progress".into())
        );
        let data = &line["data"];
        assert_eq!(
            (&data["total_bytes"], &data["rate_limit_bps"]),
            (&(6 << 20).into(), &16_000_000.into())
        );
        assert!(data["seconds"].as_f64().unwrap() >= 1.0, "{data}");
    }
    let bytes = |line: &Value| line["data"]["bytes"].as_u64().unwrap();
    assert!(before.windows(2).all(|pair| bytes(&pair[0]) <= bytes(&pair[1])));
    assert_eq!(last["event"], "result");
    assert_eq!(last["data"]["summary"]["bytes"], 6 << 20);
}
