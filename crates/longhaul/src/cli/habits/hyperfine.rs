//! The options of hyperfine for `matrix`.

use super::{Handled, Line, answer};

/// Translates an option of hyperfine.
pub(super) fn option(word: &str, line: &mut Line) -> Handled {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) if name.starts_with("--") => (name, Some(value)),
        _ => (word, None),
    };
    let format = match name {
        "-r" | "--runs" => {
            line.push("--repeats");
            let value = value.map_or_else(|| line.value(), Into::into);
            line.push(value);
            return Ok(true);
        }
        "-w" | "--warmup" => {
            return Err(answer(format!(
                "matrix has no {name}: omit_seconds of a plan omits the first seconds of each test, and \
                 copies read a source that is not cached"
            )));
        }
        "--export-json" => "json",
        "--export-csv" => "csv",
        "--export-markdown" => "markdown",
        _ => return Ok(false),
    };
    Err(answer(format!(
        "matrix has no {name}: it writes all results to a directory (--out DIR), from which 'longhaul \
         report DIR --format {format}' prints them"
    )))
}
