//! The start of a hub, and the administration of its users.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_fleet::api::{LocalLogin, UserRole};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::clock::now_ms;
use crate::config::{FirstPassword, HubConfig, HubError};
use crate::hub::Hub;
use crate::local;
use crate::records::people::{Person, add_person, people, set_password};
use crate::secret;
use crate::secret::{LEAST_CHARACTERS, MOST_BYTES, hash_password};
use crate::store::Store;
use crate::{tls, trust, upkeep, web};

/// The facts about a hub that is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningHub {
    /// The addresses, with the ports that the kernel chose for port 0.
    pub addresses: Vec<SocketAddr>,
    /// The pin of the hub's key, which is part of enrollment tokens.
    pub pin: String,
    /// The password of the new user `admin`, if the hub had no users.
    pub first_password: Option<String>,
}

/// Runs a hub until `stop` is set. Calls `ready` when it answers requests.
///
/// # Errors
/// The database, the certificate or an address cannot be used.
pub fn run(
    config: &HubConfig,
    stop: &AtomicBool,
    ready: impl FnOnce(&RunningHub),
) -> Result<(), HubError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(HubError::Runtime)?;
    let ended = runtime.block_on(async {
        let (started, _tasks) = start(config).await?;
        ready(&started);
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    });
    // A running transaction may complete; connections are dropped.
    runtime.shutdown_timeout(Duration::from_secs(5));
    ended
}

/// Starts a hub on the present runtime. It ends when the returned set is dropped.
///
/// # Errors
/// As for [`run`].
pub async fn start(config: &HubConfig) -> Result<(RunningHub, JoinSet<()>), HubError> {
    let store = open_store(config).await?;
    let tls = tls::load(&config.data, config.tls.as_ref())?;
    let mut listeners = Vec::new();
    for address in &config.listen {
        let listener = bind(*address)?;
        listeners.push(TcpListener::from_std(listener).map_err(HubError::Runtime)?);
    }
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>();
    let addresses = addresses.map_err(HubError::Runtime)?;
    let outgoing_tls = trust::client(trust::roots(config.outgoing_ca.as_deref())?)?;
    // After all steps that the operator may have to repeat.
    let first_password = first_user(&store, config.first_password).await?;
    let started = RunningHub { addresses, pin: tls.pin.clone(), first_password };
    let hub = Arc::new(Hub::new(store, tls.pin, config, outgoing_tls));
    hub.refresh().await?;
    local_login(&hub, config, &started)?;
    let mut tasks = upkeep::start(&hub);
    let app = web::routes(hub.clone());
    for listener in listeners {
        let acceptor = TlsAcceptor::from(tls.server.clone());
        tasks.spawn(web::accept(listener, acceptor, app.clone(), hub.clone()));
    }
    Ok((started, tasks))
}

/// Lets the user of the hub use `longhaul fleet` on this host without a password. If the file cannot be
/// written, the hub still starts.
fn local_login(hub: &Hub, config: &HubConfig, started: &RunningHub) -> Result<(), HubError> {
    let Some(address) = started.addresses.first() else { return Ok(()) };
    let token = secret::secret()?;
    hub.permit_local(&token);
    let login = LocalLogin { hub: local::url(*address), pin: started.pin.clone(), token };
    if let Err(error) = local::write(&config.data, &login) {
        (config.log)(&format!(
            "{error}; 'longhaul fleet' needs 'longhaul fleet login' on this host, too"
        ));
    }
    Ok(())
}

/// Opens the store of a hub, and creates its directory.
async fn open_store(config: &HubConfig) -> Result<Store, HubError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.data)
        .map_err(HubError::file("create", &config.data))?;
    tls::check_directory(&config.data)?;
    match &config.database {
        Some(address) => Ok(Store::postgres(address).await?),
        None => {
            let path = config.data.join("hub.db");
            create_private(&path)?;
            Ok(Store::sqlite(&path).await?)
        }
    }
}

/// Creates an empty database file that only this user can read, or checks the present one.
fn create_private(path: &Path) -> Result<(), HubError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => tls::check_private(path),
        Err(error) => Err(HubError::file("create", path)(error)),
    }
}

fn bind(address: SocketAddr) -> Result<std::net::TcpListener, HubError> {
    let failed = |source| HubError::Listen { address, source };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Adds the user `admin` to a store without users, and returns the password. `print` gets the
/// password before the store does, so that no crash stores a password that nobody knows.
async fn first_user(
    store: &Store,
    print: fn(FirstPassword<'_>),
) -> Result<Option<String>, HubError> {
    if !store.read(people).await?.is_empty() {
        return Ok(None);
    }
    let password = secret::secret()?.chars().take(20).collect::<String>();
    let hash = hash_password(&password)?;
    let admin = Person { name: "admin".to_owned(), role: UserRole::Admin, created_ms: now_ms() };
    print(FirstPassword::New(&password));
    let added = store.write(move |sql| add_person(sql, &admin, &hash)).await?;
    if !added {
        print(FirstPassword::Unused);
    }
    Ok(added.then_some(password))
}

/// A change of the users.
#[derive(Clone, PartialEq, Eq)]
pub enum UserChange {
    /// Adds a user.
    Add {
        /// The name.
        name: String,
        /// The rights.
        role: UserRole,
        /// The password.
        password: String,
    },
    /// Changes a password, and ends the sessions and tokens of the user.
    Password {
        /// The name.
        name: String,
        /// The new password.
        password: String,
    },
    /// Changes nothing.
    List,
}

/// Changes the users of a hub, which may be running, and returns all users.
///
/// # Errors
/// The database cannot be used, or the name or password is invalid.
pub fn change_users(config: &HubConfig, change: UserChange) -> Result<Vec<Person>, HubError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(HubError::Runtime)?;
    runtime.block_on(async {
        let store = open_store(config).await?;
        match change {
            UserChange::List => {}
            UserChange::Add { name, role, password } => {
                check_user(&name, &password)?;
                let hash = hash_password(&password)?;
                let person = Person { name: name.clone(), role, created_ms: now_ms() };
                if !store.write(move |sql| add_person(sql, &person, &hash)).await? {
                    return Err(HubError::UserExists { name });
                }
            }
            UserChange::Password { name, password } => {
                check_user(&name, &password)?;
                let hash = hash_password(&password)?;
                let user = name.clone();
                if !store.write(move |sql| set_password(sql, &user, &hash)).await? {
                    return Err(HubError::NoUser { name });
                }
            }
        }
        Ok(store.read(people).await?)
    })
}

fn check_user(name: &str, password: &str) -> Result<(), HubError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let good_name = (1..=64).contains(&name.len()) && name.chars().all(plain);
    let characters = password.chars().count();
    if good_name && characters >= LEAST_CHARACTERS && password.len() <= MOST_BYTES {
        Ok(())
    } else {
        Err(HubError::BadUser)
    }
}
