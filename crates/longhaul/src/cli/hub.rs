//! `longhaul hub`: the arguments of the hub, and the administration of its users.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Subcommand, ValueEnum};
use longhaul_engine::session::secret_text;
use longhaul_fleet::api::UserRole;
use longhaul_fleet::protocol::DEFAULT_HUB_PORT;
use longhaul_hub::{
    Channel, FirstPassword, HubConfig, HubError, MailSecurity, MailServer, RunningHub, UserChange,
};

use rustix::io::Errno;

use super::hub_directory::hub_directory;
use crate::exit::{self, Coded};
use crate::output::{hub_failure, print_document, print_message, print_result};
use crate::passphrase::{NO_PASSWORD, Password, ask, password};
use crate::process;
use crate::signals::Interrupt;

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The first start adds the user 'admin' and prints its password once. To add a host: \
                  run 'longhaul fleet token HOST' and, on the host, 'longhaul agent' with that \
                  token. The data are in SQLite in --data, or with --database in PostgreSQL 15 or \
                  later, which any number of hubs share. Exit codes: 2 invalid arguments, 3 the \
                  server of --database is unreachable, 5 the data cannot be used, 6 an address \
                  cannot be used, 130 interrupted by Ctrl-C, 143 ended by SIGTERM."
)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Listen on this address and port [default: [::]:5280, and 0.0.0.0:5280 on a host without IPv6]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<SocketAddr>,
    /// Use this certificate chain (PEM) instead of a self-signed one
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key (PEM) of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let anyone read the pages without a login
    #[arg(long)]
    public: bool,
    /// Start this program for each warning, error and recovery, with the event as JSON on its input
    #[arg(long, value_name = "PROGRAM")]
    notify_exec: Vec<PathBuf>,
    /// Post the event of each warning, error and recovery as JSON to this address
    #[arg(long, value_name = "https://HOST/PATH")]
    notify_url: Vec<String>,
    /// Send each warning, error and recovery by mail to this address; needs --mail-server
    #[arg(long, value_name = "ADDRESS", requires = "mail_server")]
    notify_mail: Vec<String>,
    /// Send mail through this server: smtps://[USER@]HOST, smtp+starttls://[USER@]HOST or
    /// smtp://HOST
    #[arg(long, value_name = "URL", requires = "mail_from")]
    mail_server: Option<String>,
    /// The address from which mail is sent
    #[arg(long, value_name = "ADDRESS", requires = "mail_server")]
    mail_from: Option<String>,
    /// The file with the password of the user of --mail-server
    #[arg(long, value_name = "FILE", requires = "mail_server")]
    mail_password: Option<PathBuf>,
    /// Send samples and results to this receiver of Prometheus remote write
    #[arg(long, value_name = "URL")]
    remote_write: Option<String>,
    /// Also trust these certificates (PEM) for webhooks, mail and remote write
    #[arg(long, value_name = "FILE")]
    outgoing_ca: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<HubCommand>,
}

#[derive(Debug, Clone, clap::Args)]
struct DataArgs {
    /// Keep the data in this directory [default: $STATE_DIRECTORY, or ~/.local/share/longhaul/hub]
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// Keep the data in this PostgreSQL database, such as postgres://hub@db/fleet
    #[arg(
        long,
        value_name = "URL",
        global = true,
        env = "LONGHAUL_HUB_DATABASE",
        hide_env_values = true
    )]
    database: Option<String>,
}

#[derive(Debug, Subcommand)]
enum HubCommand {
    /// Add users, change passwords, list users
    User {
        #[command(subcommand)]
        command: UserCommand,
    },
}

#[derive(Debug, Subcommand)]
enum UserCommand {
    /// Add a user; reads the password from the terminal or from standard input
    Add {
        /// The name of the user
        name: String,
        /// The rights of the user
        #[arg(long, value_enum, default_value_t = RoleName::Viewer)]
        role: RoleName,
    },
    /// Change a password, and end the sessions and tokens of the user
    Passwd {
        /// The name of the user
        name: String,
    },
    /// List the users
    List {
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleName {
    /// Reads everything except secrets
    Viewer,
    /// Acknowledges events and cancels runs
    Operator,
    /// Applies meshes, creates tokens, revokes agents
    Admin,
}

impl RoleName {
    fn role(self) -> UserRole {
        match self {
            RoleName::Viewer => UserRole::Viewer,
            RoleName::Operator => UserRole::Operator,
            RoleName::Admin => UserRole::Admin,
        }
    }
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let config = self.config()?;
        if let Some(HubCommand::User { command }) = self.command {
            return users(&config, command);
        }
        let interrupt = Interrupt::install().map_err(|error| Coded::new(exit::HOST, error))?;
        // One descriptor per connection. If the kernel refuses, fewer agents can wait.
        let _ = longhaul_sys::process::raise_descriptor_limit();
        let ready = |started: &RunningHub| {
            announce(started);
            process::notify("READY=1");
        };
        let mut ended = longhaul_hub::run(&config, interrupt.flag(), ready);
        if self.listen.is_empty() && ended.as_ref().is_err_and(lacks_ipv6) {
            let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), DEFAULT_HUB_PORT);
            let config = HubConfig { listen: vec![everywhere], ..config };
            ended = longhaul_hub::run(&config, interrupt.flag(), ready);
        }
        process::notify("STOPPING=1");
        ended.map_err(hub_failure)?;
        Ok(interrupt.exit_code().unwrap_or(exit::OK))
    }

    fn config(&self) -> Result<HubConfig, Coded> {
        let everywhere: IpAddr = Ipv6Addr::UNSPECIFIED.into();
        let listen = match self.listen.as_slice() {
            [] => vec![SocketAddr::new(everywhere, DEFAULT_HUB_PORT)],
            listen => listen.to_vec(),
        };
        if let Some(url) = &self.remote_write
            && !longhaul_hub::is_url(url, &["https", "http"])
        {
            let error =
                anyhow!("--remote-write {url} is not https://HOST/PATH or http://HOST/PATH");
            return Err(Coded::new(exit::USAGE, error));
        }
        Ok(HubConfig {
            listen,
            data: self.data.directory()?,
            database: self.data.database.clone(),
            tls: self.tls_cert.clone().zip(self.tls_key.clone()),
            public: self.public,
            channels: self.channels()?,
            remote_write: self.remote_write.clone(),
            outgoing_ca: self.outgoing_ca.clone(),
            log: |line| print_message(line),
            first_password: print_password,
        })
    }

    fn channels(&self) -> Result<Vec<Channel>, Coded> {
        let refused = |text: String| Coded::new(exit::USAGE, anyhow!("{text}"));
        let program = |program: &PathBuf| Channel::Exec { program: program.clone() };
        let mut channels: Vec<Channel> = self.notify_exec.iter().map(program).collect();
        for url in &self.notify_url {
            let channel = Channel::webhook(url);
            let text = || refused(format!("--notify-url {url} is not https://HOST/PATH"));
            channels.push(channel.ok_or_else(text)?);
        }
        if let (Some(url), Some(from)) = (&self.mail_server, &self.mail_from) {
            let server = self.mail_server(url)?;
            for to in &self.notify_mail {
                let channel = Channel::mail(server.clone(), from, to);
                let text = || refused(format!("'{from}' or '{to}' is not a mail address"));
                channels.push(channel.ok_or_else(text)?);
            }
        }
        Ok(channels)
    }

    /// Returns the mail server with its password.
    fn mail_server(&self, url: &str) -> Result<MailServer, Coded> {
        let refused = |text: &str| Coded::new(exit::USAGE, anyhow!("--mail-server {url}: {text}"));
        let server = MailServer::parse(url).ok_or_else(|| {
            refused("use smtps://[USER@]HOST, smtp+starttls://[USER@]HOST or smtp://HOST")
        })?;
        match (&self.mail_password, server.has_user()) {
            (None, false) => Ok(server),
            (None, true) => Err(refused("the user needs --mail-password FILE")),
            (Some(_), false) => Err(refused("--mail-password needs a user: smtps://USER@HOST")),
            (Some(_), true) if server.security() == MailSecurity::None => {
                Err(refused("a password needs smtps:// or smtp+starttls://"))
            }
            (Some(path), true) => {
                let password = secret_text(path)?;
                Ok(server.with_password(password.trim_end_matches(['\r', '\n']).to_owned()))
            }
        }
    }
}

impl DataArgs {
    fn directory(&self) -> Result<PathBuf, Coded> {
        self.data.clone().or_else(hub_directory).ok_or_else(|| {
            Coded::new(exit::USAGE, anyhow!("no directory for the data of the hub; use --data DIR"))
        })
    }
}

fn print_password(password: FirstPassword<'_>) {
    match password {
        FirstPassword::New(password) => {
            print_message(format_args!("log in as admin with the password {password}"));
        }
        FirstPassword::Unused => print_message(
            "another hub has just added the user admin: use the password that it printed, or set \
             one with 'longhaul hub user passwd admin'",
        ),
    }
}

/// Returns whether the host has no IPv6, so that the wildcard of both families cannot be used.
fn lacks_ipv6(error: &HubError) -> bool {
    let HubError::Listen { address, source } = error else { return false };
    let errors = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(|errno| errno.raw_os_error());
    address.is_ipv6() && source.raw_os_error().is_some_and(|errno| errors.contains(&errno))
}

fn announce(started: &RunningHub) {
    for address in &started.addresses {
        print_message(format_args!("hub on https://{address}"));
    }
    print_message(format_args!("the pin of the hub's key is {}", started.pin));
}

fn users(config: &HubConfig, command: UserCommand) -> Result<u8, Coded> {
    let (change, done, json) = match command {
        UserCommand::Add { name, role } => {
            let (done, password) = (format!("added the user {name}"), new_password(&name)?);
            (UserChange::Add { password, name, role: role.role() }, done, None)
        }
        UserCommand::Passwd { name } => {
            let done = format!("changed the password of {name}");
            (UserChange::Password { password: new_password(&name)?, name }, done, None)
        }
        UserCommand::List { json } => (UserChange::List, String::new(), Some(json)),
    };
    let people = longhaul_hub::change_users(config, change).map_err(hub_failure)?;
    match json {
        None => print_message(&done),
        Some(true) => {
            let rows =
                people.iter().map(|one| serde_json::json!({"name": one.name, "role": one.role}));
            let rows: Vec<_> = rows.collect();
            let schema = "longhaul.hub-users/1";
            print_document(&serde_json::json!({ "schema": schema, "users": rows }))?;
        }
        Some(false) => {
            let role = |role| longhaul_hub::records::people::role_name(role);
            let line = |one: &longhaul_hub::records::people::Person| {
                format!("{:<9} {}\n", role(one.role), one.name)
            };
            print_result(&people.iter().map(line).collect::<String>())?;
        }
    }
    Ok(exit::OK)
}

fn new_password(name: &str) -> Result<String, Coded> {
    let failed = |text: &str| Coded::new(exit::USAGE, anyhow!("{text}"));
    let read = password(&format!("New password of {name}: "));
    let new = read.map_err(|error| Coded::new(exit::HOST, error))?;
    let (Password::Piped(text) | Password::Typed(text)) =
        new.as_ref().ok_or_else(|| failed(NO_PASSWORD))?;
    let least = longhaul_hub::LEAST_CHARACTERS;
    if text.chars().count() < least {
        return Err(failed(&format!("the password has fewer than {least} characters")));
    }
    // A person may have made a typing error.
    if let Some(Password::Typed(typed)) = &new
        && ask("Repeat the new password: ").as_ref() != Some(typed)
    {
        return Err(failed("the passwords differ; nothing was changed"));
    }
    Ok(text.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_without_ipv6_uses_the_wildcard_of_ipv4() {
        let lacks = |address: &str, errno: Errno| {
            lacks_ipv6(&HubError::Listen {
                address: address.parse().unwrap(),
                source: errno.into(),
            })
        };
        assert!(lacks("[::]:5280", Errno::AFNOSUPPORT));
        // The error of a taken port names the address that was asked for.
        assert!(!lacks("[::]:5280", Errno::ADDRINUSE));
        assert!(!lacks("0.0.0.0:5280", Errno::AFNOSUPPORT));
    }
}
