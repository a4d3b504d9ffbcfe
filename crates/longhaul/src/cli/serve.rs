//! `longhaul serve`: the arguments and the start of the server for test, cp, path and diagnose.

mod confine;
mod guests;
mod hangup;
mod limits;
mod log;
mod offer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::units::MinFree;
use longhaul_engine::copy::Tree;
use longhaul_engine::serve::{ClientLimits, FileAccess, Listener, ServerKeys, Services, Serving};
use longhaul_engine::session::{AuthorizedKeys, ConfigDir, DEFAULT_PORT, Identity, Rights};
use longhaul_engine::{EngineError, Result as EngineResult};

use self::confine::ConfineArgs;
use self::guests::GuestArgs;
use self::limits::LimitArgs;
use self::log::LogArgs;
use self::offer::Offer;
use crate::exit::{self, Coded};
use crate::output::print_message;
use crate::passphrase::ask_for;
use crate::process;
use crate::remote::{relay, serve_stdio};
use crate::signals::Interrupt;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Anyone may run tests, within limits. Only authorized keys may copy files, and \
                  only with --root or a root= of the key. The key of this user and the keys in \
                  ~/.config/longhaul/authorized_keys are authorized (see 'longhaul key'). Options \
                  before a key, separated by commas, limit it: root=DIR, read-only, write-only, \
                  no-third-party, owners, from=\"CIDR,!CIDR\", \
                  expiry-time=\"YYYYMMDD[HHMM[SS]][Z]\", max-sessions=N, max-rate=RATE, quota=SIZE \
                  (with root=DIR). The server reloads the list when it changes and on SIGHUP. \
                  Sizes are 500M or 10GiB, rates 10G or 2.5Gb/s, times 10, 1.5s or 200ms. Exit \
                  codes: 0 ended by --one-off, 2 invalid arguments, 5 the directory of --root or \
                  the file of --stamp-key cannot be read, 6 the port, the keys or a privilege of \
                  this host is unavailable, 130 interrupted by Ctrl-C, 143 ended by SIGTERM."
)]
pub(super) struct Args {
    /// Listen on this address only [default: all, IPv6 and IPv4]
    #[arg(long, value_name = "ADDR")]
    bind: Option<IpAddr>,
    /// Listen on this port
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Offer the files in this directory to authorized keys
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Allow clients only to read files
    #[arg(long, conflicts_with = "write_only")]
    read_only: bool,
    /// Allow clients only to add new files; they cannot read, list, replace or delete files
    #[arg(long)]
    write_only: bool,
    /// Keep this much of each file system free; the server refuses or stops copies that would use it [default: 5%,
    /// at most 1 GiB]
    #[arg(long, value_name = "SHARE|SIZE")]
    min_free: Option<MinFree>,
    /// Do not send to other servers on behalf of a client
    #[arg(long)]
    no_third_party: bool,
    /// Exit after one client
    #[arg(long)]
    one_off: bool,
    #[command(flatten)]
    guests: GuestArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    confine: ConfineArgs,
    // 'longhaul cp' starts the server this way over ssh.
    #[arg(long, hide = true, conflicts_with_all = ["bind", "port", "root", "one_off"])]
    stdio: bool,
    // With --via-ssh the data connections use ssh, too.
    #[arg(long, hide = true, requires = "stdio")]
    loopback: bool,
    #[arg(long, hide = true, conflicts_with_all = ["bind", "port", "root", "one_off", "stdio"])]
    relay: Option<u16>,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        if self.stdio || self.relay.is_some() {
            return self.run_over_ssh(&interrupt).map(|()| exit::OK);
        }
        let terminal = hangup::terminal();
        let account = self.confine.account()?;
        let config = ConfigDir::of_user()?;
        let config = account.as_ref().map_or(config.clone(), |user| config.trusting(user.uid()));
        let identity = Identity::of_server(&config, &mut |path| ask_for(path))?;
        let listener = self.listen()?;
        let pool = self.limits.pool();
        let guests = self.guests.bind(self.bind, self.limits.tiers(&pool).of(false))?;
        // Before any thread starts. The rest runs as the final user.
        self.confine.become_user(account.as_ref())?;
        let files = self.files()?;
        let authorized = AuthorizedKeys::load(&config, identity.public());
        let authorized = self.confine.as_user(authorized)?;
        if self.confine.confines() {
            self.log.check_apart_from(&config.file(""))?;
        }
        let log = self.log.open()?;
        let reach = self.reach(&config, &authorized);
        let warning = self.confine.confine(&reach)?;
        self.confine.limit_root(reach.owners)?;
        let key_roots = authorized.has_roots();
        let offers = if files.is_some() || key_roots { "tests and files" } else { "tests" };
        print_message(format_args!("serving {offers} on {}", listener.address()));
        if let Some(warning) = warning {
            print_message(warning);
        }
        offer::warn_of(&authorized.ignored());
        let host = Arc::new(ServerKeys { identity, authorized });
        let log = Arc::new(log.start(listener.address())?);
        let services = Offer {
            files,
            rights: self.rights(),
            min_free: self.min_free.unwrap_or(MinFree::OF_SERVER),
            no_third_party: self.no_third_party,
            tiers: self.limits.tiers(&pool),
            host: host.clone(),
            config,
            keys_only: self.limits.keys_only,
            stop: interrupt.flag().clone(),
            log: log.clone(),
        };
        let services: Arc<dyn Services> = Arc::new(services);
        let reload = hangup::watch(terminal, interrupt.flag().clone());
        let reload = reload.map_err(|error| Coded::new(exit::HOST, error))?;
        let logged = services.clone();
        let _watch = host.authorized.watch(reload, move |event| logged.log(event.into()))?;
        let clients = ClientLimits { one_off: self.one_off, ..self.limits.clients(&pool) };
        // If the kernel refuses, the limits on connections fit the present limit.
        let _ = longhaul_sys::process::raise_descriptor_limit();
        process::notify("READY=1");
        let serving = Serving { host, services, clients, guests };
        listener.run_with_guests(serving, interrupt.flag());
        process::notify("STOPPING=1");
        log.finish();
        Ok(interrupt.exit_code().unwrap_or(exit::OK))
    }

    /// Serves the copy that started this process over ssh.
    fn run_over_ssh(&self, interrupt: &Interrupt) -> Result<(), Coded> {
        let Some(port) = self.relay else {
            return Ok(serve_stdio(self.loopback, interrupt.flag().clone())?);
        };
        let failed = |error| anyhow::Error::from(error).context("the data connection failed");
        relay(port).map_err(|error| Coded::new(exit::UNREACHABLE, failed(error)))
    }

    /// Opens the directory of `--root`.
    fn files(&self) -> Result<Option<Tree>, Coded> {
        let open = |root| Tree::beneath(root).map_err(EngineError::file("open", root));
        self.root.as_deref().map(|root| self.confine.as_user(open(root))).transpose()
    }

    fn rights(&self) -> Rights {
        match (self.read_only, self.write_only) {
            (true, _) => Rights::ReadOnly,
            (false, true) => Rights::WriteOnly,
            (false, false) => Rights::Full,
        }
    }

    /// Returns the files and directories that the server needs while it runs.
    fn reach(&self, config: &ConfigDir, keys: &AuthorizedKeys) -> FileAccess {
        let mut roots = keys.roots();
        roots.extend(self.root.clone());
        FileAccess {
            roots,
            read_only: self.read_only,
            config: config.file(""),
            log: self.log.directory(),
            root_user: rustix::process::geteuid().is_root(),
            owners: keys.has_owners(),
        }
    }

    fn listen(&self) -> EngineResult<Listener> {
        let everywhere = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), self.port);
        match self.bind {
            Some(bind) => Listener::bind(SocketAddr::new(bind, self.port)),
            // A host without IPv6 has no wildcard for both.
            None => Listener::bind(everywhere).or_else(|error| {
                Listener::bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.port))
                    .map_err(|_| error)
            }),
        }
    }
}
