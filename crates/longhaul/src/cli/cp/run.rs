//! Runs a copy: opens the route, copies, and prints the result.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::anyhow;
use longhaul_core::plan::{CopyPlan, CpuList, Location};
use longhaul_core::result::{CopyResult, NotKept};
use longhaul_engine::EngineError;
use longhaul_engine::copy::{
    CopyProgress, CopyRun, CopySecret, FetchTarget, Outlet, PastRates, Reconnect, RemoteFiles,
    ThirdPartyEnds, between, check_apart, pull, push,
};
use longhaul_engine::session::Family;
use longhaul_sys::cpu;

use super::check::{Check, check};
use super::connector::{Access, Addresses, Connector};
use super::events::{Events, Printer};
use super::route::{Endpoint, Route, Target, endpoint};
use super::{Args, LEAST_GIVE_UP};
use crate::exit::{self, Coded};
use crate::output::{
    CopyBar, after_printing, copy_stats, copy_text, copy_verdict, failure_text, print_message,
    raw_output,
};
use crate::process::invocation;
use crate::remote::{SshOptions, expand_wildcards, install_far};
use crate::signals::{Interrupt, Throttle};

impl Args {
    pub(in crate::cli) fn run(mut self) -> Result<u8, Coded> {
        if let Some(host) = &self.install_far {
            return install_far(host, &self.ssh, self.yes);
        }
        if let Some(cpus) = &self.affinity {
            run_on(cpus)?;
        }
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        if let Some(manifest) = &self.check {
            let open = |far: &Endpoint| self.connector(far, None, interrupt.flag());
            let (places, patience) = (&self.places[..], self.give_up.max(LEAST_GIVE_UP));
            let what = Check { manifest, places, patience, stop: interrupt.flag() };
            return check(&what, self.json, open);
        }
        let begun = Instant::now();
        if let [sources @ .., target] = &self.places[..] {
            let mut places = expand_wildcards(sources, &self.ssh)?;
            places.push(target.clone());
            self.places = places;
        }
        let plan = self.plan()?;
        Self::check_terminals(&plan)?;
        let remote = plan.sources.iter().chain([&plan.target]).any(|one| endpoint(one).is_some());
        self.bind.checked_for(remote)?;
        let printer = Printer { to_stderr: self.to_stdout() };
        let progress = Arc::new(CopyProgress::default());
        let _throttle = Throttle::start(progress.clone()).map_err(|e| Coded::new(exit::HOST, e))?;
        let bar = CopyBar::start(progress.clone(), self.quiet || self.json || self.json_stream);
        let events = self.json_stream.then(|| Events::start(progress.clone(), printer));
        let copied = self.copy(&plan, &progress, printer, interrupt.flag()).map(|result| {
            let verdict = copy_verdict(&result);
            CopyResult {
                verdict,
                invocation: Some(invocation(begun.elapsed())),
                sources: plan.sources.iter().map(Location::to_string).collect(),
                target: plan.target.to_string(),
                ..result
            }
        });
        bar.finish();
        let streamed = events.map_or(Ok(()), |events| events.finish(copied.as_ref().ok()));
        let result = match copied {
            Ok(result) => result,
            Err(error) => {
                return Err(match interrupt.exit_code() {
                    Some(code) => Coded { code, error: interrupted(&plan, &progress) },
                    None => error,
                });
            }
        };
        report(&result);
        let recursive = self.recursive || self.archive;
        if !recursive && result.failures.iter().any(|failed| Path::new(&failed.path).is_dir()) {
            print_message("give -r to copy directories");
        }
        let printed = if self.json_stream { streamed } else { self.print(&result, printer) };
        after_printing(exit_code(&result), printed)
    }

    /// Prints the result in the chosen form.
    fn print(&self, result: &CopyResult, printer: Printer) -> Result<(), Coded> {
        if self.json {
            printer.document(result)
        } else if self.quiet {
            Ok(())
        } else if self.stats {
            printer.text(&format!("{}\n{}", copy_stats(result), copy_text(result)))
        } else {
            printer.text(&copy_text(result))
        }
    }

    /// Returns an opener of sessions with `far`.
    fn connector<'a>(
        &self,
        far: &Endpoint,
        addresses: Option<Addresses>,
        stop: &'a Arc<AtomicBool>,
    ) -> Result<Connector<'a>, Coded> {
        let ssh = SshOptions { via_ssh: self.via_ssh, ..self.ssh.clone() };
        let local = self.bind.checked(Family::Any)?;
        let access = Access { ssh: &ssh, accept_new: self.accept_new, local };
        Connector::new(far, access, addresses, stop)
    }

    /// Prints that a connection was lost.
    fn note_lost(&self, error: &EngineError, printer: Printer) {
        let reason = failure_text(error);
        print_message(format_args!("{reason}; reconnecting"));
        if self.json_stream {
            Events::lost(printer, &reason);
        }
    }

    fn copy(
        &self,
        plan: &CopyPlan,
        progress: &CopyProgress,
        printer: Printer,
        stop: &Arc<AtomicBool>,
    ) -> Result<CopyResult, Coded> {
        let options = &plan.options;
        let connector = |far: &Endpoint, addresses| self.connector(far, addresses, stop);
        let secret = CopySecret::of_user();
        let rates = PastRates::of_user();
        let past = Some(&rates);
        let lost = |error: &EngineError| self.note_lost(error, printer);
        let run = CopyRun { options, progress, stop };
        let give_up = self.give_up;
        let addresses = self.addresses.clone();
        Ok(match Route::of(plan)? {
            Route::Push { source, far, target } => {
                if matches!(far, Endpoint::Local) && plan.target != Location::Null {
                    check_apart(&source, &target, options)
                        .map_err(|error| Coded::new(exit::USAGE, error))?;
                }
                let mut connector = connector(&far, addresses)?;
                let connect: &mut dyn FnMut() -> _ = &mut || connector.open();
                let line = Reconnect { connect, give_up, lost: &lost, secret: &secret, past };
                let result = push(line, &source, &target, run);
                connector.finish();
                result?
            }
            Route::Pull { far, paths, names, target } => {
                let mut connector = connector(&far, addresses)?;
                let connect: &mut dyn FnMut() -> _ = &mut || connector.open();
                let line = Reconnect { connect, give_up, lost: &lost, secret: &secret, past };
                let files = RemoteFiles { paths: &paths, names: names.as_deref() };
                let outlet;
                let landing = match &target {
                    Target::Path(path) => FetchTarget::Path(path),
                    Target::Output => {
                        outlet = open_output()?;
                        FetchTarget::Outlet(&outlet)
                    }
                };
                let result = pull(line, files, landing, run);
                connector.finish();
                result?
            }
            Route::Between { from, paths, names, to, target } => {
                let (mut source, mut sink) = (connector(&from, None)?, connector(&to, addresses)?);
                let connect: &mut dyn FnMut() -> _ = &mut || sink.open();
                let line = Reconnect { connect, give_up, lost: &lost, secret: &secret, past };
                let notice = |reason: &str| note_relayed(&from, reason);
                let files = RemoteFiles { paths: &paths, names: names.as_deref() };
                let ends = ThirdPartyEnds { source: &mut || source.open(), files, target: &target };
                let result = between(line, ends, run, &notice);
                source.finish();
                sink.finish();
                result?
            }
        })
    }
}

/// Restricts this thread, and the threads that it starts, to `cpus`.
fn run_on(cpus: &CpuList) -> Result<(), EngineError> {
    let failed = |source| EngineError::System { operation: "choose the CPUs", source };
    let allowed = cpu::allowed().map_err(failed)?;
    match cpus.cpus().iter().find(|cpu| !allowed.contains(cpu)) {
        Some(&cpu) => Err(EngineError::NoCpu { cpu }),
        None => cpu::bind_thread(cpus.cpus()).map_err(failed),
    }
}

/// Prints that a source cannot reach the sink.
fn note_relayed(source: &Endpoint, reason: &str) {
    print_message(format_args!("{source}: {reason}; the data pass through this host"));
}

/// Opens standard output as a target.
fn open_output() -> Result<Arc<Outlet>, Coded> {
    let output = raw_output().map_err(|error| Coded::new(exit::HOST, error))?;
    Ok(Arc::new(Outlet::new(output)))
}

/// Returns the exit code of a copy that ended with a result.
fn exit_code(result: &CopyResult) -> u8 {
    let summary = &result.summary;
    let listed = if summary.dry_run { result.actions.len() as u64 } else { summary.deleted };
    let done = summary.files + summary.unchanged_files + listed;
    match (result.failures.is_empty(), result.not_kept.is_empty()) {
        (true, true) => exit::OK,
        (false, _) if done == 0 => exit::FILES,
        _ => exit::PARTIAL,
    }
}

/// Returns the error of a copy that a signal ended, with the bytes that a resumed copy keeps.
fn interrupted(plan: &CopyPlan, progress: &CopyProgress) -> anyhow::Error {
    let kept = progress.kept();
    let complete = progress.listed() && progress.files() >= progress.total_files().max(1);
    let resumable = !matches!(plan.target, Location::Null | Location::Standard)
        && !plan.sources.contains(&Location::Standard);
    match kept.get() {
        _ if !resumable => anyhow!("interrupted"),
        _ if complete => {
            anyhow!("interrupted after all files were copied; run the same command to finish")
        }
        0 => anyhow!("interrupted; run the same command to resume"),
        _ => anyhow!("interrupted; about {kept} kept, run the same command to resume"),
    }
}

/// Prints failures, lost attributes and skipped files on standard error.
fn report(result: &CopyResult) {
    const SHOWN: usize = 20;
    for failure in result.failures.iter().take(SHOWN) {
        print_message(format_args!("{}: {}", failure.path, failure.reason));
    }
    if result.failures.len() > SHOWN {
        print_message(format_args!(
            "and {} more (--json lists them)",
            result.failures.len() - SHOWN
        ));
    }
    for NotKept { what, count, example, reason } in &result.not_kept {
        let what = what.as_str();
        let things = if *count == 1 { "path" } else { "paths" };
        print_message(format_args!(
            "{what} not preserved for {count} {things}, such as {example}: {reason}"
        ));
    }
    for skipped in result.skipped.iter().take(SHOWN) {
        print_message(format_args!("{}: skipped: {}", skipped.path, skipped.reason));
    }
}
