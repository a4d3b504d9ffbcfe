//! The login to a hub, the tokens of agents and their revocation.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use longhaul_agent::{HubClient, HubUrl, Trust, write_private};
use longhaul_core::units::parse_span;
use longhaul_engine::session::{ConfigDir, secret_text};
use longhaul_fleet::api::{
    LOCAL_LOGIN_FILE, LocalLogin, LoginRequest, LoginResponse, NewToken, RevokedDocument,
    TokenDocument,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cli::hub_directory::hub_directory;
use crate::exit::{self, Coded};
use crate::output::{fleet_revoked_text, print_document, print_message, print_result};
use crate::passphrase::{NO_PASSWORD, Password, password};

/// A login, in `fleet.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Login {
    hub: String,
    pin: Option<String>,
    ca: Option<PathBuf>,
    token: String,
}

impl From<LocalLogin> for Login {
    fn from(local: LocalLogin) -> Self {
        Login { hub: local.hub, pin: Some(local.pin), ca: None, token: local.token }
    }
}

const FILE: &str = "fleet.json";

/// A hub, and the header with the user's token.
pub(super) struct Connection {
    client: HubClient,
    origin: Origin,
    authorization: String,
}

impl Connection {
    /// Connects with the stored login, or else with that of the hub of this user on this host.
    pub(super) fn of_user() -> Result<Self, Coded> {
        Self::find()?.ok_or_else(|| {
            let text = "there is no login to a hub: run 'longhaul fleet login https://HUB' first, or \
                        run this command on the hub's host as the hub's user";
            Coded::new(exit::USAGE, anyhow!(text))
        })
    }

    /// Connects as [`of_user`](Self::of_user); `None` if there is no login.
    pub(super) fn find() -> Result<Option<Self>, Coded> {
        let Some((path, origin)) = login_path()? else { return Ok(None) };
        let text = secret_text(&path)?;
        let login = match origin {
            Origin::Stored => serde_json::from_str::<Login>(&text),
            Origin::ThisHost => serde_json::from_str::<LocalLogin>(&text).map(Login::from),
        };
        let login = login
            .with_context(|| format!("{} is damaged: {}", path.display(), origin.remedy()))
            .map_err(|error| Coded::new(exit::HOST, error))?;
        let hub = login.hub.parse::<HubUrl>().map_err(|error| Coded::new(exit::HOST, error))?;
        let trust = Trust::of(login.pin.as_deref(), login.ca.as_deref());
        let authorization = format!("Bearer {}", login.token);
        let client = match origin {
            Origin::Stored => HubClient::new(hub, &trust)?,
            Origin::ThisHost => HubClient::on_this_host(hub, &trust)?,
        };
        Ok(Some(Connection { client, origin, authorization }))
    }

    /// Returns true if the login is that of a hub on this host.
    pub(super) fn is_on_this_host(&self) -> bool {
        self.origin == Origin::ThisHost
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Coded> {
        Ok(self.client.get(path, &[("authorization", self.authorization.as_str())])?)
    }

    pub(super) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Coded> {
        Ok(self.client.post(path, &[("authorization", self.authorization.as_str())], body)?)
    }
}

/// Returns the file of the stored login, or else that of the hub with the default directory of this user.
fn login_path() -> Result<Option<(PathBuf, Origin)>, Coded> {
    let stored = ConfigDir::of_user()?.file(FILE);
    if stored.try_exists().unwrap_or(true) {
        return Ok(Some((stored, Origin::Stored)));
    }
    let local = hub_directory().map(|data| data.join(LOCAL_LOGIN_FILE));
    let local = local.filter(|path| path.try_exists().unwrap_or(false));
    Ok(local.map(|path| (path, Origin::ThisHost)))
}

/// The origin of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// `longhaul fleet login` stored it.
    Stored,
    /// The hub on this host wrote it.
    ThisHost,
}

impl Origin {
    /// Returns what to do if the file of the login is damaged.
    fn remedy(self) -> &'static str {
        match self {
            Origin::Stored => "run 'longhaul fleet login' again",
            Origin::ThisHost => "restart the hub, which writes it again",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct LoginArgs {
    /// Address of the hub: https://HOST or https://HOST:PORT
    #[arg(value_name = "URL")]
    hub: HubUrl,
    /// Name of the user
    #[arg(long, default_value = "admin")]
    user: String,
    /// Pin of the hub's key, which the hub prints when it starts
    #[arg(long, conflicts_with = "ca", allow_hyphen_values = true)]
    pin: Option<String>,
    /// Verify the hub with the certificates in this file (PEM) instead of those of this host
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl LoginArgs {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let trust = Trust::of(self.pin.as_deref(), self.ca.as_deref());
        let client = HubClient::new(self.hub.clone(), &trust)?;
        let password = read_password(&self.user)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let label = format!("longhaul fleet on {host}");
        let request = LoginRequest { user: self.user, password, label };
        let response: LoginResponse = client.post("/api/v1/login", &[], &request)?;
        let ca = self.ca.map(std::path::absolute).transpose();
        let ca = ca.map_err(|error| Coded::new(exit::HOST, error))?;
        let login = Login { hub: self.hub.to_string(), pin: self.pin, ca, token: response.token };
        let config = ConfigDir::of_user()?;
        config.create()?;
        let text = serde_json::to_vec_pretty(&login).map_err(anyhow::Error::from)?;
        write_private(&config.file(FILE), &text)
            .with_context(|| format!("cannot write {}", config.file(FILE).display()))
            .map_err(|error| Coded::new(exit::HOST, error))?;
        print_message(format_args!("logged in to {}", self.hub));
        Ok(exit::OK)
    }
}

fn read_password(user: &str) -> Result<String, Coded> {
    let read = password(&format!("Password of {user}: "));
    match read.map_err(|error| Coded::new(exit::HOST, error))? {
        Some(Password::Piped(password) | Password::Typed(password)) => Ok(password),
        None => Err(Coded::new(exit::USAGE, anyhow!(NO_PASSWORD))),
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct TokenArgs {
    /// Name of the host
    host: String,
    /// Time for which the token is valid
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_span)]
    valid: Duration,
    /// Print one JSON document, "longhaul.fleet-token/1"
    #[arg(long)]
    json: bool,
}

impl TokenArgs {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let valid_seconds = u32::try_from(self.valid.as_secs()).unwrap_or(u32::MAX);
        let request = NewToken { host: self.host, valid_seconds };
        let token: TokenDocument = Connection::of_user()?.post("/api/v1/tokens", &request)?;
        if self.json {
            print_document(&token)?;
        } else {
            print_result(&format!("{}\n", token.token))?;
        }
        Ok(exit::OK)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct RevokeArgs {
    /// Name of the host, or id of its agent
    host: String,
    /// Print one JSON document, "longhaul.fleet-revoked/1"
    #[arg(long)]
    json: bool,
}

impl RevokeArgs {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let path = format!("/api/v1/agents/{}/revoke", plain(&self.host)?);
        // The request has no parameters besides its path.
        let nothing = serde_json::json!({});
        let revoked: RevokedDocument = Connection::of_user()?.post(&path, &nothing)?;
        if self.json {
            print_document(&revoked)?;
        } else {
            print_result(&fleet_revoked_text(&revoked))?;
        }
        Ok(exit::OK)
    }
}

/// Returns a name that needs no escapes in a URL.
pub(super) fn plain(name: &str) -> Result<&str, Coded> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // "." and ".." are parts of a path.
    if name.bytes().all(good) && name.bytes().any(|byte| byte != b'.') {
        Ok(name)
    } else {
        Err(Coded::new(
            exit::USAGE,
            anyhow!(
                "'{name}' is not a valid name: use letters, digits, hyphens, underscores and dots"
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_a_path() {
        for name in ["west", "a-1_b.c", "..a"] {
            assert_eq!(plain(name).unwrap(), name);
        }
        for name in ["", ".", "..", "a/b", "a b", "\u{e9}", "a%2f", "a?b"] {
            assert_eq!(plain(name).unwrap_err().code, exit::USAGE, "{name}");
        }
    }
}
