use std::collections::HashSet;
use std::env;

use anyhow::Context;
use longhaul_core::result::Outcome;
use longhaul_emu::acquire_privileges;
use longhaul_lab::archive::Contents;
use longhaul_lab::runner::{Ended, Matrix, Setup};
use longhaul_lab::table::Table;
use longhaul_lab::{drivers, report};

use super::MatrixArgs;
use super::progress::Show;
use super::setup::{self, certificate, coded};
use super::shipped;
use crate::exit::{self, Coded};
use crate::interrupt::Interrupt;
use crate::lab_path;
use crate::output::{after_printing, answer, json, say};

/// Runs the matrix, writes the report, prints the table, and returns the exit code.
pub(in crate::cli) fn run(args: MatrixArgs) -> Result<u8, Coded> {
    let program = env::current_exe().context("cannot find this program's own file")?;
    let drivers = drivers::all(&program);
    if args.list_plans || args.show_plan {
        let text = match args.list_plans {
            true => shipped::list(&drivers)?,
            false => shipped::show(&args, &drivers)?,
        };
        answer(&text)?;
        return Ok(exit::OK);
    }
    let mut checked = setup::check(&args, &drivers)?;
    let proof = args.certificate.as_deref().map(certificate).transpose()?;
    // While this process has one thread: a user namespace can only then be entered.
    acquire_privileges().map_err(|error| Coded::new(exit::HOST, error))?;
    let interrupt = Interrupt::install().context("cannot handle signals")?;
    let mut network = lab_path::network(&checked.plan);
    checked.check_far_room(&mut *network)?;
    let mut archive = checked.archive(&*network)?;

    if let Some(proof) = &proof {
        archive.keep_certificate(proof).map_err(coded)?;
    }

    let mut progress = Show::new(&checked.plan, &archive.runs().map_err(coded)?);
    let mut show = |event: longhaul_lab::runner::Event<'_>| progress.event(&event);
    let setup = Setup {
        plan: &checked.plan,
        drivers: &drivers,
        tools: &checked.tools,
        sources: &checked.sources,
        scratch: &checked.scratch,
        memory: checked.memory_scratch.as_deref(),
        path_program: Some(&program),
        retry_failed: args.retry_failed,
        stop: interrupt.flag(),
    };
    let ended = Matrix::prepare(setup, &mut archive, &mut *network, &mut show)
        .and_then(|mut matrix| matrix.run(&mut show));
    // The terminal is put in order before an error is told.
    progress.finish();
    let ended = ended.map_err(coded)?;

    let contents = archive.contents().map_err(coded)?;
    let table = Table::fold(&contents);
    let html = report::write(&checked.out, &contents, &table).map_err(coded)?;
    let printed = print(&contents, &table, args.json);
    say(format_args!("report: {}", html.display()));
    if ended == Ended::Interrupted {
        let out = checked.out.display();
        say(format_args!("interrupted; continue with: longhaul matrix --resume --out {out}"));
        return Ok(interrupt.exit_code().unwrap_or(exit::FAILED));
    }
    after_printing(code(&contents), printed)
}

/// The table, or the JSON document, on standard output.
fn print(contents: &Contents, table: &Table, as_json: bool) -> Result<(), Coded> {
    match as_json {
        true => json(&report::json(contents, table)),
        false => answer(&report::text(contents, table)),
    }
}

/// Whether every place of the matrix that was run has a run that counts.
fn code(contents: &Contents) -> u8 {
    let places: HashSet<u32> = contents.runs.iter().map(|run| run.sequence).collect();
    let counted = contents.runs.iter().filter(|run| run.outcome == Outcome::Ok);
    let counted: HashSet<u32> = counted.map(|run| run.sequence).collect();
    if counted == places { exit::OK } else { exit::PARTIAL }
}
