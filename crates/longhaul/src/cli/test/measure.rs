//! Runs a test with a server and prints its intervals and its result.

use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::anyhow;
use longhaul_core::plan::TestPlan;
use longhaul_core::result::{TEST_SCHEMA, TestEnd, TestResult, TestSample};
use longhaul_core::wire::Service;
use longhaul_engine::session::{ConfigDir, ConnectOptions, HostPolicy, HostPort, LocalAddress};
use longhaul_engine::{EngineError, test};
use longhaul_interop::PeerTest;
use longhaul_interop::iperf3::Credentials;
use serde_json::json;

use super::Args;
use super::target::{self, Target};
use super::values::AddressList;
use crate::cli::queue::connect_in_turn;
use crate::exit::{self, Coded};
use crate::output::{
    TestText, after_printing, complete_test, print_document, print_document_line, print_message,
    print_note, print_result,
};
use crate::passphrase;
use crate::process::invocation;
use crate::remote::{SshServer, is_ssh_alias};
use crate::signals::Interrupt;

/// The circumstances of a run.
#[derive(Clone, Copy)]
struct Run<'a> {
    interrupt: &'a Interrupt,
    /// The local address of `--bind`.
    local: Option<&'a LocalAddress>,
    begun: Instant,
}

/// The test that is printed: the address of the server as text, the plan, and the start.
struct PrintedTest<'a> {
    /// The host that runs the test with the server; `None` for this host.
    client: Option<&'a HostPort>,
    shown: &'a str,
    plan: &'a TestPlan,
    begun: Instant,
}

impl Args {
    pub(in crate::cli) fn run(self) -> Result<u8, Coded> {
        let begun = Instant::now();
        // Invalid arguments are reported before a connection is opened.
        let plan = self.plan(TestPlan::DATAGRAM_BYTES)?;
        let local = self.bind.checked(self.family())?;
        for address in AddressList::of(&self.local) {
            LocalAddress::from(address.clone()).check()?;
        }
        let local = local.as_ref();
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        let run = Run { interrupt: &interrupt, local, begun };
        match self.host.clone() {
            Target::Longhaul(mut target) => {
                target.port = self.port.unwrap_or(target.port);
                self.run_longhaul(&target, plan, run)
            }
            Target::Ssh(destination) => self.run_ssh(&destination, plan, run),
            Target::Peer(_) if self.other.is_some() => {
                let reason =
                    anyhow!("a test between two servers needs 'longhaul serve' on both hosts");
                Err(Coded::new(exit::USAGE, reason))
            }
            Target::Peer(mut address) => {
                address.port = self.port.unwrap_or(address.port);
                let shown = format!("{}:{}", address.host, address.port);
                let credentials = self.credentials()?;
                let test = PeerTest {
                    address: &address,
                    plan: &plan,
                    family: self.family(),
                    local,
                    stop: interrupt.flag(),
                };
                let printed = PrintedTest { client: None, shown: &shown, plan: &plan, begun };
                self.print(printed, &interrupt, |show| {
                    target::run_with_peer(&test, credentials, show)
                })
            }
        }
    }

    fn run_longhaul(
        &self,
        target: &HostPort,
        mut plan: TestPlan,
        run: Run<'_>,
    ) -> Result<u8, Coded> {
        let Run { interrupt, local, begun } = run;
        let config = ConfigDir::of_user()?;
        let identity = passphrase::identity(&config)?;
        // A test sends no secrets, so an unknown server is accepted, but not a changed key.
        let policy = HostPolicy::RefuseChanged;
        let (identity, config, family) = (&identity, &config, self.family());
        let options = ConnectOptions { identity, config, policy, family, local };
        let service = match &self.other {
            None => Service::Test,
            Some(_) => Service::ThirdParty,
        };
        let session = match connect_in_turn(target, service, &options, interrupt.flag()) {
            Err(EngineError::Resolve { .. }) if is_ssh_alias(&target.host, &self.ssh) => {
                return self.run_ssh(&target.host, plan, run);
            }
            opened => opened?,
        };
        if let (None, Some(bytes)) = (&self.other, session.datagram_bytes()) {
            plan = self.plan(bytes)?;
        }
        let shown = self.other.as_ref().unwrap_or(target).to_string();
        let client = self.other.as_ref().map(|_| target);
        let printed = PrintedTest { client, shown: &shown, plan: &plan, begun };
        self.print(printed, interrupt, |show| {
            let result = match &self.other {
                None => test::run(session, &plan, interrupt.flag(), show),
                Some(other) => test::run_third(session, other, &plan, interrupt.flag(), show),
            };
            Ok(result?)
        })
    }

    /// Runs the test with a server that ssh starts at `destination`.
    fn run_ssh(
        &self,
        destination: &str,
        mut plan: TestPlan,
        Run { interrupt, local, begun }: Run<'_>,
    ) -> Result<u8, Coded> {
        if self.other.is_some() || self.port.is_some() {
            let reason = "a test over ssh has one host, and ssh -p sets its port: -e 'ssh -p PORT'";
            return Err(Coded::new(exit::USAGE, anyhow!(reason)));
        }
        let (far, session) = SshServer::start(destination, Service::Test, &self.ssh)?;
        let session = session.bound_to(local.cloned())?;
        if let Some(bytes) = session.datagram_bytes() {
            plan = self.plan(bytes)?;
        }
        let printed = PrintedTest { client: None, shown: destination, plan: &plan, begun };
        let done = self.print(printed, interrupt, |show| {
            Ok(test::run(session, &plan, interrupt.flag(), show)?)
        });
        far.finish();
        done
    }

    /// Returns the credentials for an iperf3 server.
    fn credentials(&self) -> Result<Option<Credentials>, Coded> {
        let (Some(user), Some(key)) = (&self.username, &self.rsa_public_key_path) else {
            return Ok(None);
        };
        target::credentials(user, key, self.use_pkcs1_padding).map(Some)
    }

    /// Prints the heading, the intervals and the result of the test that `measure` runs. The heading
    /// precedes the first interval, so that a test that cannot start prints only its error.
    fn print(
        &self,
        PrintedTest { client, shown, plan, begun }: PrintedTest<'_>,
        interrupt: &Interrupt,
        measure: impl FnOnce(&mut dyn FnMut(&TestSample)) -> Result<TestResult, Coded>,
    ) -> Result<u8, Coded> {
        let mut lines = Lines { interrupt, printed: Ok(()) };
        let text = match client {
            Some(client) => TestText::between(&client.to_string(), shown, plan),
            None => TestText::new(shown, plan),
        };
        let mut head = (!self.json && !self.json_stream).then(|| text.head());
        let mut result = measure(&mut |sample: &TestSample| {
            if self.json_stream {
                lines.event("interval", &json!(sample));
            } else if !self.json {
                if let Some(head) = head.take() {
                    lines.text(&head);
                }
                lines.text(&text.interval(sample));
            }
        })?;
        result.invocation = Some(invocation(begun.elapsed()));
        complete_test(&mut result);
        for warning in &result.warnings {
            print_note(format_args!("warning: {}: {}", warning.message, warning.advice));
        }
        if self.json {
            lines.keep(print_document(&result));
        } else if self.json_stream {
            // The intervals have been printed.
            let whole = TestResult { intervals: Vec::new(), ..result.clone() };
            lines.event("result", &json!(whole));
        } else {
            if let Some(head) = head {
                lines.text(&head);
            }
            lines.text(&text.block(&result));
        }
        match result.end {
            TestEnd::Completed => after_printing(exit::OK, lines.printed),
            TestEnd::Interrupted => {
                after_printing(interrupt.exit_code().unwrap_or(exit::OK), lines.printed)
            }
            // The document states the reason, too.
            TestEnd::Cut { reason } => {
                print_message(format_args!("the test was aborted: {reason}"));
                after_printing(exit::UNREACHABLE, lines.printed)
            }
        }
    }
}

/// Standard output. The test is interrupted if a write fails.
struct Lines<'a> {
    interrupt: &'a Interrupt,
    /// The first failure.
    printed: Result<(), Coded>,
}

impl Lines<'_> {
    fn text(&mut self, text: &str) {
        self.keep(print_result(&format!("{text}\n")));
    }

    fn event(&mut self, name: &str, data: &serde_json::Value) {
        let event = json!({ "schema": TEST_SCHEMA, "event": name, "data": data });
        self.keep(print_document_line(&event));
    }

    fn keep(&mut self, printed: Result<(), Coded>) {
        if printed.is_err() {
            self.interrupt.flag().store(true, Ordering::Release);
        }
        if self.printed.is_ok() {
            self.printed = printed;
        }
    }
}
