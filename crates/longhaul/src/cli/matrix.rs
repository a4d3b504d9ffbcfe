//! `longhaul matrix`: checks the arguments, runs the matrix and prints its results; lists and prints
//! plans.

mod args;
mod cost;
mod live;
mod progress;
mod setup;

use std::collections::HashSet;
use std::{env, fs};

use anyhow::Context;
use longhaul_core::result::Outcome;
use longhaul_core::text::escape;
use longhaul_emu::acquire_privileges;
use longhaul_lab::archive::Contents;
use longhaul_lab::data::sources;
use longhaul_lab::drivers::{self, Detected, Driver};
use longhaul_lab::plan::{SHIPPED, Shipped};
use longhaul_lab::report;
use longhaul_lab::runner::{Cost, Ended, Matrix, Setup};
use longhaul_lab::table::Table;

pub(super) use self::args::MatrixArgs;
use self::progress::ProgressPrinter;
use self::setup::plan_of;
pub(super) use self::setup::{certificate, coded};
use super::cache;
use crate::exit::{self, Coded};
use crate::lab_path;
use crate::output::{
    after_printing, list_row, print_json, print_message, print_result, text_columns,
};
use crate::signals::Interrupt;

/// Runs the matrix, writes the report, prints the table, and returns the exit code.
pub(super) fn run(args: MatrixArgs) -> Result<u8, Coded> {
    let program = env::current_exe().context("cannot find the path of this program")?;
    let drivers = drivers::all(&program);
    if args.list_tools {
        print_result(&list_tools(&drivers))?;
        return Ok(exit::OK);
    }
    if args.list_plans || args.show_plan {
        let text =
            if args.list_plans { list_plans(&drivers)? } else { show_plan(&args, &drivers)? };
        print_result(&text)?;
        return Ok(exit::OK);
    }
    let mut checked = setup::check(&args, &drivers)?;
    let given = args.certificate.as_deref().map(certificate).transpose()?;
    // Only a process with one thread may enter a user namespace.
    acquire_privileges().map_err(|error| Coded::new(exit::HOST, error))?;
    let interrupt = Interrupt::install().context("cannot handle signals")?;
    let mut network = lab_path::network(&checked.plan);
    checked.check_far_room(&mut *network)?;
    let mut archive = checked.archive(&*network)?;

    if let Some(given) = &given {
        archive.keep_certificate(given).map_err(coded)?;
    }

    let mut progress = ProgressPrinter::new(&checked.plan, &archive.runs().map_err(coded)?);
    let mut show = |event: longhaul_lab::runner::MatrixEvent<'_>| progress.event(&event);
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
    // The terminal is restored before an error is printed.
    progress.finish();
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return Err(checked.undo(archive, error)),
    };

    let contents = archive.contents().map_err(coded)?;
    let table = Table::fold(&contents);
    let html = report::write(&checked.out, &contents, &table).map_err(coded)?;
    let printed = print(&contents, &table, args.json);
    print_message(format_args!("report: {}", html.display()));
    cache::announce();
    if ended == Ended::Interrupted {
        let out = checked.out.display();
        print_message(format_args!(
            "interrupted; continue with: longhaul matrix --resume --out {out}"
        ));
        return Ok(interrupt.exit_code().unwrap_or(exit::FAILED));
    }
    after_printing(code(&contents), printed)
}

/// Prints the table, or the JSON document, on standard output.
fn print(contents: &Contents, table: &Table, as_json: bool) -> Result<(), Coded> {
    if as_json {
        print_json(&report::json(contents, table))
    } else {
        print_result(&report::text(contents, table))
    }
}

/// Returns the exit code: success if every run was valid, at least after a retry.
fn code(contents: &Contents) -> u8 {
    let places: HashSet<u32> = contents.runs.iter().map(|run| run.sequence).collect();
    let counted = contents.runs.iter().filter(|run| run.outcome == Outcome::Ok);
    let counted: HashSet<u32> = counted.map(|run| run.sequence).collect();
    if counted == places { exit::OK } else { exit::PARTIAL }
}

/// Returns a line per tool: its name, the version on this host or the missing program, and the
/// reason why its driver is untried.
fn list_tools(drivers: &[Box<dyn Driver>]) -> String {
    let mut text = String::new();
    for driver in drivers {
        let found = match driver.detect() {
            Detected::Installed { version } => version,
            Detected::Missing { program } => format!("not installed: {program} not found"),
        };
        let untried = driver.untried().map_or(String::new(), |why| format!("; untried: {why}"));
        let found = format!("{found}{untried}");
        text.push_str(&list_row(driver.name(), 20, &escape(&found), text_columns()));
    }
    text
}

/// Returns a paragraph per shipped plan: its name, purpose and cost on this host.
fn list_plans(drivers: &[Box<dyn Driver>]) -> Result<String, Coded> {
    let mut text = String::new();
    for shipped in &SHIPPED {
        let plan = shipped.plan(drivers).map_err(coded)?;
        let about = plan.about.as_deref().unwrap_or_default();
        let sources = sources(&plan, None).map_err(coded)?;
        let takes =
            cost::words(&Cost::of(&plan, drivers, &sources, &cost::is_installed(drivers, &plan)));
        text.push_str(&list_row(shipped.name, 16, about, text_columns()));
        text.push_str(&list_row("", 16, &takes, text_columns()));
    }
    Ok(text)
}

/// Returns the text of the plan, with its cost as a comment.
fn show_plan(args: &MatrixArgs, drivers: &[Box<dyn Driver>]) -> Result<String, Coded> {
    let plan = plan_of(args, drivers)?;
    let sources = sources(&plan, None).map_err(coded)?;
    let takes =
        cost::words(&Cost::of(&plan, drivers, &sources, &cost::is_installed(drivers, &plan)));
    let text = match &args.plan {
        Some(file) if Shipped::named(&file.to_string_lossy()).is_none() => {
            fs::read_to_string(file).map_err(anyhow::Error::from)?
        }
        Some(name) => text_of(&name.to_string_lossy()),
        None => text_of(args.shipped()),
    };
    Ok(format!("# Cost with these arguments: {takes}\n{text}"))
}

fn text_of(name: &str) -> String {
    Shipped::named(name).map_or_else(String::new, |shipped| shipped.text.to_owned())
}
