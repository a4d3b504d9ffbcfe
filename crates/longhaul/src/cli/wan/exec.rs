//! `longhaul wan exec`: runs a command at a site of a topology.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::{Child, Command};

use anyhow::{Context, bail};
use clap::Args;
use longhaul_emu::GuestShell;
use longhaul_sys::namespace;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::control::{self, Reply, Request};
use super::ends::{code_of, pass_on};
use super::requests::user_namespace;
use super::runtime::{RuntimeFiles, split_name};
use crate::exit::{self, Coded};

/// Run a command at a site of a topology
///
/// CMD inherits the terminal, the environment and the current directory. LONGHAUL_SITE has the name of its site. The
/// names of the other sites resolve, and LONGHAUL_NAME and LONGHAUL_NAME_IPV6 have their addresses.
/// longhaul forwards signals to CMD. Processes that CMD leaves at the site run until 'wan down', or until
/// the command of 'wan run --name' ends.
///
/// The exit code is that of CMD, or 128 plus the number of the signal that ended it; 125 if
/// longhaul failed, 126 if CMD could not be executed, 127 if CMD was not found.
#[derive(Debug, Args)]
pub(super) struct ExecArgs {
    /// Name of the topology, if several are up
    #[arg(long)]
    name: Option<String>,
    /// The site, or NAME/SITE with the name of the topology
    site: String,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(super) fn run(args: ExecArgs) -> Result<u8, Coded> {
    // Without a thread: only a process with one thread may enter a user namespace.
    let signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2]);
    let mut signals = signals.context("cannot handle signals").map_err(own)?;
    let (name, site) = split_name(args.name.as_deref(), &args.site).map_err(own)?;
    let (environment, guest) = enter(name, site).map_err(own)?;
    let (program, arguments) =
        args.command.split_first().context("no command to run").map_err(own)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(environment);
    if let Some(shell) = guest {
        let here = std::env::current_dir().unwrap_or_default();
        // The command gets a terminal in the guest if this process has one.
        let is_terminal = rustix::termios::isatty(rustix::stdio::stdin())
            && rustix::termios::isatty(rustix::stdio::stdout());
        command = shell.wrap(&command, here.as_os_str(), is_terminal);
    }
    let child = command.spawn().map_err(|source| {
        let code = match source.kind() {
            std::io::ErrorKind::NotFound => exit::NOT_FOUND,
            _ => exit::NOT_EXECUTABLE,
        };
        let what = format!("cannot run '{}' at {}", program.display(), args.site);
        Coded { code, error: anyhow::Error::from(source).context(what) }
    })?;
    wait(child, &mut signals).map_err(own)
}

/// Returns an error of longhaul with its exit code.
fn own(error: anyhow::Error) -> Coded {
    Coded { code: exit::WAN, error }
}

/// The environment variables of a site, and the shell of a virtual machine.
type Entered = (Vec<(String, String)>, Option<GuestShell>);

/// Moves this process into a site.
fn enter(topology: Option<&str>, site: &str) -> anyhow::Result<Entered> {
    let files = RuntimeFiles::of_running(topology)?;
    let mut stream = files.connect()?;
    let request = Request::Enter { site: site.to_owned() };
    let reply = control::ask(&mut stream, &request)?;
    let Reply::Enter { environment, user_namespace: theirs, guest_shell } = reply else {
        return Err(control::unexpected());
    };
    let process = control::receive_descriptor(&stream)
        .with_context(|| format!("the topology sent no descriptor of {site}"))?;
    let directory = std::env::current_dir().context("cannot find the current directory")?;
    namespace::join(process.as_fd(), theirs != user_namespace()?).with_context(|| {
        format!(
            "cannot enter {site}; 'wan exec' works only outside of sites and while the first \
             process of the site runs"
        )
    })?;
    std::env::set_current_dir(&directory)
        .with_context(|| format!("{}: no such directory at {site}", directory.display()))?;
    Ok((environment, GuestShell::from_words(guest_shell)))
}

/// Waits for the command, passing signals on, and returns its exit code.
fn wait(mut child: Child, signals: &mut Signals) -> anyhow::Result<u8> {
    for signal in signals.forever() {
        if signal == SIGCHLD {
            if let Some(status) = child.try_wait().context("cannot wait for the command")? {
                return Ok(code_of(status));
            }
        } else {
            pass_on(&child, signal);
        }
    }
    bail!("cannot wait for the command: no more signals")
}
