use std::env;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use longhaul_core::result::Outcome;
use longhaul_emu::acquire_privileges;
use longhaul_lab::archive::Contents;
use longhaul_lab::runner::{Ended, Matrix, Setup};
use longhaul_lab::table::Table;
use longhaul_lab::{drivers, report};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::MatrixArgs;
use super::progress::Bar;
use super::setup::{self, Prepared, coded};
use crate::exit::{self, Coded};
use crate::lab_path::EmulatedNetwork;

/// Runs the matrix, writes the report, prints the table, and returns the exit code.
pub(in crate::cli) fn run(args: MatrixArgs) -> Result<u8, Coded> {
    // First of all, while this process has one thread: a user namespace can only then be entered.
    acquire_privileges().map_err(|error| Coded::new(exit::HOST, error))?;
    let program = env::current_exe().context("cannot find this program's own file")?;
    let drivers = drivers::all(&program);
    let mut network = EmulatedNetwork;
    let Prepared { plan, out, mut archive, sources, scratch } =
        setup::prepare(&args, &drivers, &network)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot handle signals")?;
    }
    // Ours alone, wherever the user wants the copies, and gone with this value.
    let scratch = tempfile::Builder::new()
        .prefix("longhaul-scratch-")
        .tempdir_in(&scratch)
        .with_context(|| format!("cannot create a directory in {}", scratch.display()))
        .map_err(|error| Coded { code: exit::FILES, error })?;

    let mut bar = Bar::new();
    let mut show = |event: longhaul_lab::runner::Event<'_>| bar.show(&event);
    let setup = Setup {
        plan: &plan,
        drivers: &drivers,
        sources: &sources,
        scratch: &scratch.path().join("far"),
        stop: &stop,
    };
    let ended = Matrix::prepare(setup, &mut archive, &mut network, &mut show)
        .and_then(|mut matrix| matrix.run(&mut show))
        .map_err(coded)?;
    bar.finish();

    let contents = archive.contents().map_err(coded)?;
    let table = Table::fold(&contents);
    let html = report::write(&out, &contents, &table).map_err(coded)?;
    print(&contents, &table, args.json)?;
    eprintln!("longhaul: report: {}", html.display());
    if ended == Ended::Interrupted {
        let out = out.display();
        eprintln!("longhaul: interrupted; continue with: longhaul matrix --resume --out {out}");
        return Ok(exit::SIGNAL_BASE + SIGINT as u8);
    }
    Ok(code(&contents))
}

/// The table, or the JSON document, on standard output.
pub(in crate::cli) fn print(contents: &Contents, table: &Table, json: bool) -> Result<(), Coded> {
    let text = if json { report::json(contents, table) } else { report::text(contents, table) };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot print")?;
    Ok(())
}

/// Whether every run counts.
fn code(contents: &Contents) -> u8 {
    let all = contents.runs.iter().all(|run| run.outcome == Outcome::Ok);
    if all { exit::OK } else { exit::PARTIAL }
}
