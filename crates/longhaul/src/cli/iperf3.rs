//! `longhaul iperf3`, or the same program under the name `iperf3`: the command line and the output of
//! iperf3.

mod args;
mod server;
mod values;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;

use anyhow::anyhow;
use clap::{CommandFactory, Parser};
use longhaul_core::result::{End, TestEnd};
use longhaul_engine::session::{Family, LocalAddress};
use longhaul_interop::iperf3::output::{
    IPERF3_VERSION, Started, TextOutput, end_document, interval_document, start_document,
    whole_document,
};
use longhaul_interop::iperf3::{self, ClientOptions, Credentials, Progress};
use longhaul_interop::{InteropError, PeerAddress, PeerTest, Program};
use serde_json::{Value, json};

use self::args::Args;
use crate::exit::{self, Coded};
use crate::output::{failure_text, print_message, print_result};
use crate::signals::Interrupt;

/// The exit code of iperf3 for every error.
const FAILED: u8 = 1;

/// Returns the options of iperf3.
pub(super) fn command() -> clap::Command {
    Args::command()
}

/// Runs the command line `words`, without the name of the program.
pub(super) fn run(words: Vec<OsString>) -> Result<u8, Coded> {
    let words = std::iter::once("iperf3".into()).chain(words);
    let args = Args::try_parse_from(words).map_err(|error| {
        let text = error.render().to_string();
        Coded::new(FAILED, anyhow!("{}", text.trim_end().trim_start_matches("error: ")))
    })?;
    if args.version {
        print_result(&version())?;
        return Ok(exit::OK);
    }
    if args.help {
        print_result(&Args::command().render_long_help().to_string())?;
        return Ok(exit::OK);
    }
    if let Some(option) = args.unavailable() {
        return Err(Coded::new(FAILED, anyhow!("not available: {option}")));
    }
    for option in args.without_effect() {
        print_message(format_args!("warning: {option} has no effect"));
    }
    write_pid(&args)?;
    let output = Output::open(&args)?;
    match (&args.client, args.server) {
        (Some(host), _) => client(&args, host, &output),
        (None, true) => server::run(&args, output),
        (None, false) => {
            Err(Coded::new(FAILED, anyhow!("must either be a client (-c) or server (-s)")))
        }
    }
}

/// Returns the text of `--version`. Its second word is the version of iperf3.
fn version() -> String {
    format!(
        "iperf {IPERF3_VERSION} (longhaul {})\n{}\nOptional features available: CPU affinity \
         setting, TCP congestion algorithm setting, sendfile / zerocopy, socket pacing, \
         authentication\n",
        env!("CARGO_PKG_VERSION"),
        system()
    )
}

/// Returns the description of this host.
fn system() -> String {
    let name = rustix::system::uname();
    let parts = [name.sysname(), name.nodename(), name.release(), name.version(), name.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
}

fn write_pid(args: &Args) -> Result<(), Coded> {
    let Some(file) = &args.pidfile else { return Ok(()) };
    let written = std::fs::write(file, std::process::id().to_string());
    written.map_err(|error| Coded::new(FAILED, anyhow!("cannot write {}: {error}", file.display())))
}

/// Standard output, or the file of `--logfile`.
struct Output {
    file: Option<Mutex<File>>,
    title: String,
}

impl Output {
    fn open(args: &Args) -> Result<Self, Coded> {
        let open = |path: &std::path::PathBuf| {
            let file = File::options().append(true).create(true).open(path);
            let failed = |error| anyhow!("cannot open {}: {error}", path.display());
            file.map(Mutex::new).map_err(|error| Coded::new(FAILED, failed(error)))
        };
        let title = args.title.as_ref().map_or_else(String::new, |title| format!("{title}:  "));
        Ok(Output { file: args.logfile.as_ref().map(open).transpose()?, title })
    }

    /// Prints a text, with the title before each line.
    fn text(&self, text: &str) -> Result<(), Coded> {
        if self.title.is_empty() {
            return self.raw(text);
        }
        let lines: String = text.lines().map(|line| format!("{}{line}\n", self.title)).collect();
        self.raw(&lines)
    }

    /// Prints a document, and an event of a stream in one line.
    fn document(&self, document: &Value, one_line: bool) -> Result<(), Coded> {
        let text = if one_line {
            document.to_string()
        } else {
            serde_json::to_string_pretty(document).unwrap_or_default()
        };
        self.raw(&format!("{text}\n"))
    }

    fn raw(&self, text: &str) -> Result<(), Coded> {
        match &self.file {
            None => print_result(text),
            Some(file) => {
                let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                file.write_all(text.as_bytes()).map_err(|error| Coded::new(FAILED, error))
            }
        }
    }
}

/// The output of a client during its test.
struct Live<'a> {
    args: &'a Args,
    output: &'a Output,
    text: TextOutput,
    started: Option<Started>,
    /// The first failure of the output.
    printed: Result<(), Coded>,
}

impl Live<'_> {
    fn progress(&mut self, progress: Progress<'_>) {
        let printed = match progress {
            Progress::Started(started) => {
                self.started = Some(started.clone());
                self.start(started)
            }
            Progress::Sample(role, sample) => self.sample(role, sample),
        };
        if self.printed.is_ok() {
            self.printed = printed;
        }
    }

    fn start(&self, started: &Started) -> Result<(), Coded> {
        if self.args.json_stream {
            let data = start_document(started, &system());
            self.output.document(&json!({ "event": "start", "data": data }), true)
        } else if self.args.json {
            Ok(())
        } else {
            self.output.text(&self.text.start(started))
        }
    }

    fn sample(
        &mut self,
        role: End,
        sample: &longhaul_core::result::TestSample,
    ) -> Result<(), Coded> {
        let Some(started) = &self.started else { return Ok(()) };
        if self.args.json_stream {
            let data = interval_document(started, &[(role, sample)]);
            self.output.document(&json!({ "event": "interval", "data": data }), true)
        } else if self.args.json {
            Ok(())
        } else {
            let text = self.text.interval(started, role, sample);
            self.output.text(&text)
        }
    }
}

fn client(args: &Args, host: &str, output: &Output) -> Result<u8, Coded> {
    let plan = args.plan().map_err(|error| Coded::new(FAILED, anyhow!(error)))?;
    let interrupt = Interrupt::install().map_err(|error| Coded::new(FAILED, error))?;
    let address = PeerAddress { program: Program::Iperf3, host: host.to_owned(), port: args.port };
    let family = match (args.version4, args.version6) {
        (true, _) => Family::V4,
        (false, true) => Family::V6,
        (false, false) => Family::Any,
    };
    let options = ClientOptions {
        credentials: credentials(args)?,
        title: args.title.clone(),
        extra_data: args.extra_data.clone(),
        server_output: args.get_server_output,
    };
    let documents = args.json || args.json_stream;
    if !documents {
        output.text(&format!("Connecting to host {host}, port {}\n", args.port))?;
    }
    let text = TextOutput::new(args.format.unwrap_or_default());
    let mut live = Live { args, output, text, started: None, printed: Ok(()) };
    let local = args.bind.as_deref().map(str::parse::<LocalAddress>).transpose();
    let local = local.map_err(|error| Coded::new(FAILED, anyhow!("-B: {error}")))?;
    if let Some(local) = &local {
        local.check().map_err(|error| Coded::new(FAILED, error))?;
    }
    let (address, plan, local) = (&address, &plan, local.as_ref());
    let test = PeerTest { address, plan, family, local, stop: interrupt.flag() };
    let result = iperf3::run(&test, &options, &mut |progress| live.progress(progress));
    let Live { text, printed, started, .. } = live;
    printed?;
    match result {
        Ok(result) => {
            if args.json_stream {
                let data = end_document(&result.finished);
                output.document(&json!({ "event": "end", "data": data }), true)?;
            } else if args.json {
                output.document(&whole_document(&result.finished, &system()), false)?;
            } else {
                output.text(&text.end(&result.finished))?;
            }
            let interrupted = result.test.end == TestEnd::Interrupted;
            Ok(if interrupted { FAILED } else { exit::OK })
        }
        Err(error) if documents => failed_document(args, output, started.as_ref(), &error),
        Err(error) => Err(Coded::new(FAILED, error)),
    }
}

/// Prints an error as a document; iperf3's document of a failed test has the field `error`.
fn failed_document(
    args: &Args,
    output: &Output,
    started: Option<&Started>,
    error: &InteropError,
) -> Result<u8, Coded> {
    let text = format!("error - {}", failure_text(error));
    if args.json_stream {
        output.document(&json!({ "event": "error", "data": text }), true)?;
    } else {
        let start = started.map(|started| start_document(started, &system()));
        let document = json!({
            "start": start.unwrap_or_else(|| json!({})),
            "intervals": [],
            "end": {},
            "error": text,
        });
        output.document(&document, false)?;
    }
    Ok(FAILED)
}

/// Returns the credentials of `--username`, with the password of `IPERF3_PASSWORD`.
fn credentials(args: &Args) -> Result<Option<Credentials>, Coded> {
    let (user, key) = match (&args.username, &args.rsa_public_key_path) {
        (None, None) => return Ok(None),
        (Some(user), Some(key)) => (user, key),
        _ => {
            let reason = anyhow!("--username and --rsa-public-key-path belong together");
            return Err(Coded::new(FAILED, reason));
        }
    };
    crate::cli::test::peer_credentials(user, key, args.use_pkcs1_padding).map(Some)
}
