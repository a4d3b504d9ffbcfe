//! Driver of wget through a squid cache.

use std::path::Path;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;
use longhaul_core::text::shell_quoted;

use super::{Detected, Driver, Job, ServerCommand, detect, http, sshd};
use crate::LabError;

const NAME: &str = "wget through squid";
const PORT: u16 = 3128;

/// wget from a squid in front of nginx, both at the far end. The memory of the cache serves
/// repeated requests of many clients, as for calibration data (Frontier).
pub(super) struct WgetSquid;

impl Driver for WgetSquid {
    fn name(&self) -> &'static str {
        NAME
    }

    fn workload(&self) -> Workload {
        Workload::Disk
    }

    fn trees(&self) -> bool {
        false
    }

    fn many_clients(&self) -> bool {
        true
    }

    fn guarantees(&self, _options: &[String]) -> Guarantees {
        Guarantees::default()
    }

    fn detect(&self) -> Detected {
        detect::detect(&["wget", "squid", http::NGINX], "--version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let origin = http::nginx(job, NAME)?;
        let file = job.private.join("squid.conf");
        sshd::write(&file, &configuration())?;
        // One command starts both servers, nginx first: squid needs it only at the first request.
        let words = |command: &Command| {
            let all = std::iter::once(command.get_program()).chain(command.get_args());
            all.map(|word| shell_quoted(&word.to_string_lossy()).into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let mut squid = Command::new(detect::program("squid"));
        squid.args(["-N", "-f"]).arg(file);
        // The first request fills the cache before the clients start: the published measurements
        // had all data in memory.
        let mut fill = Command::new(detect::program("wget"));
        fill.args(["--no-config", "--no-proxy", "--quiet", "-O", "/dev/null"]);
        fill.arg(url(job, "127.0.0.1")?);
        let ready = job.private.join("cache-is-full");
        let script = format!(
            "{} & origin=$!; {} & cache=$!; trap 'kill $origin $cache; wait; exit' TERM\n\
             until {}; do sleep 0.1; done\ntouch {}\nwait $cache",
            words(&origin.command),
            words(&squid),
            words(&fill),
            shell_quoted(&ready.to_string_lossy())
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        Ok(Some(ServerCommand { ready: Some(ready), ..ServerCommand::new(command, PORT) }))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.single_file(NAME)?;
        let mut command = Command::new(detect::program("wget"));
        command.args(["--no-config", "--no-proxy", "--quiet"]).args(job.options);
        command.arg("-O").arg(task.destination).arg(url(job, job.far)?);
        Ok(command)
    }
}

/// Returns the URL of the source through the cache on `host`.
fn url(job: &Job<'_>, host: &str) -> Result<String, LabError> {
    let task = job.single_file(NAME)?;
    let name = Path::new(task.source.file_name().unwrap_or_default());
    Ok(format!("http://{host}:{PORT}/{}", super::globus::url_path(name)))
}

/// Returns the configuration of a cache that keeps everything in memory and writes no log.
fn configuration() -> String {
    let user =
        if rustix::process::geteuid().is_root() { "cache_effective_user nobody\n" } else { "" };
    format!(
        "http_port {PORT} accel defaultsite=localhost no-vhost\n\
         cache_peer 127.0.0.1 parent {} 0 no-query originserver name=origin\n\
         cache_peer_access origin allow all\nhttp_access allow all\n\
         cache_mem 512 MB\nmaximum_object_size_in_memory 512 MB\n\
         refresh_pattern . 1440 100% 1440 override-expire override-lastmod\n\
         collapsed_forwarding on\ncache_log /dev/null\naccess_log none\n\
         pid_filename none\nvisible_hostname far\nshutdown_lifetime 0 seconds\n{user}",
        http::PORT
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::disk_job;

    #[test]
    fn client_and_filler_use_one_url_of_the_cache() {
        let client = disk_job(&[], |job| WgetSquid.client(job)).unwrap();
        let last = client.get_args().last().unwrap().to_string_lossy().into_owned();
        assert_eq!(last, "http://far:3128/a%20b");
        let filled = disk_job(&[], |job| url(job, "127.0.0.1")).unwrap();
        assert_eq!(filled, "http://127.0.0.1:3128/a%20b");
        // Without virtual hosts the two names are one object.
        assert!(configuration().contains("no-vhost"));
    }
}
