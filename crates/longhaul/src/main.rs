//! longhaul: measures, moves and emulates wide-area data transfer.

use std::process::ExitCode;

fn main() -> ExitCode {
    longhaul::run(std::env::args_os())
}
