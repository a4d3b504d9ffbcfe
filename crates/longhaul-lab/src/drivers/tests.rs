//! Tests of both halves of every driver: the server with its files, and the client.

use std::fs;
use std::path::Path;
use std::process::Command;

use longhaul_core::plan::Workload;

use super::*;

/// The parts of the two commands of a driver. The text of a server contains its configuration.
struct Halves {
    tool: &'static str,
    port: u16,
    server: &'static [&'static str],
    client: &'static [&'static str],
}

const fn halves(
    tool: &'static str,
    port: u16,
    server: &'static [&'static str],
    client: &'static [&'static str],
) -> Halves {
    Halves { tool, port, server, client }
}

/// The parts of the private sshd, its configuration and its key.
const SSHD: &[&str] = &["sshd -D -e -f J/sshd_config", "Port 2222", "J/host_key", "ssh-ed25519 "];
const NGINX: &[&str] = &["nginx -c J/nginx.conf", "listen 8080;", "root \"S\""];

const ALL: [Halves; 46] = [
    halves("longhaul test", 5210, &["lh serve --port 5210"], &["lh test far -p 5210 -t 2 -O 1"]),
    halves("iperf3", 5201, &["iperf3 -s -p 5201"], &["iperf3 -c far -p 5201 -J -t 2 -O 1"]),
    halves("iperf", 5001, &["iperf -s -p 5001 -i 1 -y C"], &["iperf -c far -p 5001 -t 3"]),
    halves("nuttcp", 5000, &["nuttcp -S --nofork -P5000"], &["nuttcp -P5000 -T3 -i1", " far"]),
    halves(
        "longhaul cp",
        5210,
        &["lh serve --port 5210 --root D"],
        &["lh cp --json S/file lh://far:5210/copy"],
    ),
    halves(
        "longhaul test (iperf3 server)",
        5201,
        &["iperf3 -s"],
        &["lh test", "test iperf3://far"],
    ),
    halves("iperf3 (longhaul server)", 5201, &["lh serve", "--iperf3=5201"], &["iperf3 -c far"]),
    halves(
        "longhaul test (nuttcp server)",
        5000,
        &["nuttcp -S"],
        &["lh test", "test nuttcp://far"],
    ),
    halves("nuttcp (longhaul server)", 5000, &["lh serve", "--nuttcp=5000"], &["nuttcp -P5000"]),
    halves("scp", 2222, SSHD, &["scp -F none", "Port=2222", "S/file USER@far:D/copy"]),
    halves("sftp", 2222, SSHD, &["sftp", "Port=2222", "USER@far"]),
    halves("tar over ssh", 2222, SSHD, &["tar -cf -", "Port=2222", "USER@far"]),
    halves("rsync", 2222, SSHD, &["rsync -a", "Port=2222", "S/file USER@far:D/copy"]),
    halves(
        "rsync daemon",
        873,
        &["rsync --daemon --no-detach --port 873", "[scratch]", "path = D", "read only = no"],
        &["rsync -a", "S/file rsync://far:873/scratch/copy"],
    ),
    halves("rclone", 2222, SSHD, &["rclone", "--sftp-host far --sftp-port 2222", ":sftp:D/copy"]),
    halves(
        "lftp",
        2121,
        &["vsftpd J/vsftpd.conf", "listen_port=2121", "anon_root=/", "write_enable=YES"],
        &["lftp --norc", "open ftp://far:2121", "put \"S/file\" -o \"D/copy\""],
    ),
    halves(
        "globus-url-copy",
        2811,
        &["globus-gridftp-server -aa -p 2811"],
        &["globus-url-copy file://S/file ftp://far:2811D/copy"],
    ),
    halves(
        "xrdcp",
        1094,
        &["xrootd -n longhaul -c J/xrootd.cfg", "xrd.port 1094", "all.export D"],
        &["xrdcp --nopbar --force S/file root://far:1094/D/copy"],
    ),
    halves("curl", 8080, NGINX, &["curl", "--output D/copy http://far:8080/file"]),
    halves("wget", 8080, NGINX, &["wget", "-O D/copy http://far:8080/file"]),
    halves("aria2c", 8080, NGINX, &["aria2c", "--dir D --out copy http://far:8080/file"]),
    halves(
        "wget through squid",
        3128,
        &["nginx", "squid", "-N", "http://127.0.0.1:3128/file", "http_port 3128", "root \"S\""],
        &["wget", "-O D/copy http://far:3128/file"],
    ),
    halves("bbcp", 2222, SSHD, &["bbcp -f", "S/file USER@far:D/copy"]),
    halves("bbftp", 2222, SSHD, &["bbftp -S", "put S/file D/copy far"]),
    halves("mscp", 2222, SSHD, &["mscp -i J/user_key", "-P 2222 S/file USER@far:D/copy"]),
    halves(
        "hpn-ssh",
        2222,
        &["hpnsshd -D -e -f J/sshd_config", "Port 2222"],
        &["hpnscp -S hpnssh", "Port=2222", "S/file USER@far:D/copy"],
    ),
    halves("escp", 2222, SSHD, &["escp S/file USER@far:D/copy"]),
    halves("qcp", 2222, SSHD, &["qcp S/file USER@far:D/copy"]),
    halves("udr", 2222, SSHD, &["udr -c udr rsync -a S/file USER@far:D/copy"]),
    halves("aspera", 2222, SSHD, &["ascp -q -P 2222 -i J/user_key S/file USER@far:D/copy"]),
    halves("fdt", 54321, &["fdt -p 54321"], &["fdt -c far -p 54321", "-d D J/source/copy"]),
    halves("wdt", 22356, &["wdt -directory D"], &["wdt -destination far", "-directory J/source"]),
    halves("tsunami", 46224, &["tsunamid --port=46224"], &["tsunami set port 46224 connect far"]),
    halves(
        "xdd",
        40010,
        &["D/copy -op write -e2e isdest -e2e dest far:40010,4"],
        &["S/file -op read -e2e issrc -e2e dest far:40010,4"],
    ),
    halves("irods", 1247, &["irodsServer -u"], &["iput -f -p D/copy S/file copy"]),
    halves(
        "nfs",
        2049,
        &["'*:'D", "rpc.mountd -N 3", "rpc.nfsd -N 3 8", "v4_end_grace", "touch J/nfs-ready"],
        &["mount -t nfs4 -o vers=4.2,", "far:/ J/mount", "cp -r S/file J/mount/copy"],
    ),
    halves(
        "perftest",
        18515,
        &["ib_write_bw -p 18515 -D 2"],
        &["ib_write_bw -p 18515 -D 2", " far"],
    ),
    halves("sshfs", 2222, SSHD, &["sshfs USER@far:D", "of=J/mount/copy/copy"]),
    halves("sshfs read", 2222, SSHD, &["sshfs USER@far:S", "if=J/mount/copy/file of=D/copy"]),
    halves(
        "nfs-ganesha",
        2049,
        &["ganesha.nfsd -F", "rpcbind -f", "NFS_Port = 2049", "Path = \"D\""],
        &["nfs-cp S/file nfs://farD/copy?version=3&nfsport=2049"],
    ),
    halves(
        "nfs-ganesha read",
        2049,
        &["ganesha.nfsd -F", "rpcbind -f", "NFS_Port = 2049", "Path = \"S\""],
        &["nfs-cp nfs://farS/file?version=3&nfsport=2049", " D/copy"],
    ),
    halves(
        "webdav",
        8081,
        &["rclone serve webdav --addr :8081 D"],
        &["rclone mount", "http://far:8081", "if=S/file of=J/mount/copy/copy"],
    ),
    halves(
        "webdav read",
        8081,
        &["rclone serve webdav --addr :8081 S"],
        &["rclone mount", "http://far:8081", "if=J/mount/copy/file of=D/copy"],
    ),
    halves(
        "xrootdfs",
        1094,
        &["xrd.port 1094", "all.export D"],
        &["xrootdfs -o rdr=root://far:1094/D", "if=S/file of=J/mount/copy/copy"],
    ),
    halves(
        "xrootdfs read",
        1094,
        &["xrd.port 1094", "all.export S"],
        &["xrootdfs -o rdr=root://far:1094/S", "if=J/mount/copy/file of=D/copy"],
    ),
    halves("uftp", 1044, &["uftpd -d -p 1044 -D D"], &["uftp -p 1044 -M far", "-D copy S/file"]),
];

#[test]
fn both_halves_of_every_driver_agree() {
    let drivers = all(Path::new("lh"));
    let named: Vec<&str> = drivers.iter().map(|driver| driver.name()).collect();
    for driver in &drivers {
        let expected = ALL.iter().find(|halves| halves.tool == driver.name());
        let expected = expected.unwrap_or_else(|| panic!("{} has no row", driver.name()));
        let (server, port, client) = commands(&**driver);
        assert_eq!(port, expected.port, "{}", driver.name());
        for part in expected.server {
            assert!(server.contains(part), "{}, server: {part} in {server}", driver.name());
        }
        for part in expected.client {
            assert!(client.contains(part), "{}, client: {part} in {client}", driver.name());
        }
    }
    assert_eq!(named.len(), ALL.len(), "{named:?}");
}

/// Returns the server's command and files, its port, and the client's command. Directories have
/// short names: J is private, S has the source, D receives the copy.
fn commands(driver: &dyn Driver) -> (String, u16, String) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["private", "source", "copies"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("source/file"), [7; 1000]).unwrap();
    let (source, destination, private) = (at("source/file"), at("copies/copy"), at("private"));
    let task = match driver.workload() {
        Workload::Memory => ToolTask::Memory(MemoryTask { seconds: 2, omit_seconds: 1 }),
        _ => ToolTask::Disk(DiskTask { source: &source, tree: false, destination: &destination }),
    };
    let job = Job { near: "near", far: "far", ssh: None, options: &[], task, private: &private };
    let server = driver.server(&job).unwrap().unwrap();
    let mut text = words(&server.command);
    for file in fs::read_dir(&private).unwrap() {
        // Private keys and directories are of no interest.
        text.push_str(&fs::read_to_string(file.unwrap().path()).unwrap_or_default());
    }
    let user = sshd::user().unwrap();
    let short = |text: &str| {
        text.replace(&private.display().to_string(), "J")
            .replace(&at("source").display().to_string(), "S")
            .replace(&at("copies").display().to_string(), "D")
            .replace(&format!("{user}@"), "USER@")
    };
    (short(&text), server.port, short(&words(&driver.client(&job).unwrap())))
}

/// Returns the words of a command; the program without its directory.
fn words(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
