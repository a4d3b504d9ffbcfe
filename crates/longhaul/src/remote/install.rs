//! Installs this program on another host: `longhaul cp --install-far [user@]host`.

use std::fs::File;
use std::io::{BufRead, IsTerminal, Stdin, Write};

use anyhow::{Context, anyhow, bail};
use longhaul_core::text::shell_quoted;

use super::ssh::{SshOptions, remote_output_with, remote_shell};
use crate::exit::{self, Coded};
use crate::output::{print_message, print_result, raw_error};

/// The path of the installed program, relative to the home directory.
const PLACE: &str = ".local/bin/longhaul";

/// Copies this program to `~/.local/bin` of `destination`, after a question unless `yes`.
///
/// # Errors
/// The host is unreachable or has another architecture, the user refuses, or the program does not
/// run there.
pub(crate) fn install_far(destination: &str, ssh: &SshOptions, yes: bool) -> Result<u8, Coded> {
    let failed = |error| Coded::new(exit::FILES, error);
    let input = std::io::stdin();
    if !yes && !input.is_terminal() {
        let error = anyhow!(
            "cannot ask whether to install longhaul on {destination}, because standard input is not \
             a terminal; add --yes to install it without the question"
        );
        return Err(Coded::new(exit::USAGE, error));
    }
    if destination.starts_with('-') {
        return Err(Coded::new(exit::USAGE, anyhow!("invalid host '{destination}'")));
    }
    let machine = remote_shell(destination, ssh, "uname -sm")?;
    check_machine(destination, &String::from_utf8_lossy(&machine))?;
    if !yes && !agreed(destination, &input).map_err(failed)? {
        print_message("nothing was installed");
        return Ok(exit::OK);
    }
    let version = install(destination, ssh).map_err(failed)?;
    print_result(&format!("{version} is installed as ~/{PLACE} on {destination}\n"))?;
    Ok(exit::OK)
}

/// Returns an error unless the output of `uname -sm` is that of this host.
fn check_machine(destination: &str, output: &str) -> anyhow::Result<()> {
    let words: Vec<&str> = output.split_whitespace().collect();
    match words[..] {
        ["Linux", machine] if machine == std::env::consts::ARCH => Ok(()),
        [system, machine] => bail!(
            "{destination} runs {system} on {machine}, and this program is for Linux on {}; \
             install longhaul there from its package or its sources",
            std::env::consts::ARCH
        ),
        _ => {
            bail!("cannot read the architecture of {destination}; check 'ssh {destination} uname'")
        }
    }
}

/// Asks the user on the terminal.
fn agreed(destination: &str, input: &Stdin) -> anyhow::Result<bool> {
    let mut screen = File::from(raw_error()?);
    write!(screen, "install longhaul as ~/{PLACE} on {destination}? [y/N] ")?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Copies the program, runs it, and gives it its final name. Returns its version.
fn install(destination: &str, ssh: &SshOptions) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let file = File::open(&program)
        .with_context(|| format!("cannot read this program, {}", program.display()))?;
    // The name changes only after the new program has run.
    let script = format!(
        "set -e; mkdir -p ~/.local/bin; new=$(mktemp ~/{PLACE}.XXXXXX); \
         trap 'rm -f \"$new\"' EXIT; cat > \"$new\"; chmod 755 \"$new\"; \"$new\" --version; \
         mv -f \"$new\" ~/{PLACE}; trap - EXIT"
    );
    let (succeeded, output) =
        remote_output_with(destination, ssh, &format!("sh -c {}", shell_quoted(&script)), file)?;
    let text = String::from_utf8_lossy(&output).trim().to_owned();
    if !succeeded || !text.starts_with("longhaul ") {
        bail!("cannot install longhaul on {destination}; the previous version, if any, remains");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_architecture_is_accepted() {
        let same = format!("Linux {}\n", std::env::consts::ARCH);
        assert!(check_machine("far", &same).is_ok());
        for other in ["Linux riscv64\n", "Darwin arm64\n", "", "a b c"] {
            assert!(check_machine("far", other).is_err(), "{other}");
        }
    }
}
