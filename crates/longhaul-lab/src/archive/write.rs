//! Creates an archive and adds runs to it.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use longhaul_core::result::{Certificate, LinkReport, Outcome, RunRecord, ToolOutput};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::schema::failed;
use super::{Archive, FILE_NAME, MatrixHeader, PathRecord, Tool, schema};
use crate::LabError;
use crate::plan::fingerprint;

/// The bytes of a command's standard error that the database keeps; the JSON document has all of
/// it.
const TAIL: usize = 2048;

impl Archive {
    /// Creates a new archive in `dir`, which must be empty or missing.
    ///
    /// # Errors
    /// The directory is not empty or cannot be written.
    pub fn create(dir: &Path, header: &MatrixHeader) -> Result<Self, LabError> {
        fs::create_dir_all(dir.join("runs")).map_err(LabError::file("create", dir))?;
        let path = dir.join(FILE_NAME);
        // An existing file with this name is never overwritten, even if it is damaged.
        File::create_new(&path).map_err(LabError::file("create", &path))?;
        let connection = Connection::open(&path).map_err(failed("create", &path))?;
        schema::create(&connection).map_err(failed("create", &path))?;
        let archive = Archive { dir: dir.to_owned(), connection };
        archive.keep_header(header)?;
        Ok(archive)
    }

    /// Removes an archive without runs that [`create`](Self::create) has made: the files of the
    /// database, and `runs` and `scratch` if they are empty; also the directory if `whole` and
    /// nothing else is in it. Other files remain.
    ///
    /// # Errors
    /// A file or directory cannot be removed.
    pub fn discard(self, whole: bool) -> Result<(), LabError> {
        let Archive { dir, connection } = self;
        drop(connection);
        // SQLite adds these suffixes to the name of a database (https://sqlite.org/tempfiles.html).
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let path = dir.join(format!("{FILE_NAME}{suffix}"));
            unless_foreign(fs::remove_file(&path)).map_err(LabError::file("remove", &path))?;
        }
        let directories = [dir.join("runs"), dir.join("scratch")];
        for path in directories.iter().chain(whole.then_some(&dir)) {
            unless_foreign(fs::remove_dir(path)).map_err(LabError::file("remove", path))?;
        }
        Ok(())
    }

    fn keep_header(&self, header: &MatrixHeader) -> Result<(), LabError> {
        let json = to_json(header);
        let insert = |connection: &Connection| {
            connection.execute(
                "INSERT INTO matrix VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    header.plan.name,
                    fingerprint(&header.plan),
                    header.started_at,
                    header.program_version,
                    json,
                    header.program_digest,
                    schema::of_text(&json)
                ],
            )?;
            for (name, value) in &header.facts {
                connection.execute(
                    "INSERT OR REPLACE INTO host_fact VALUES (?1, ?2)",
                    params![name, value],
                )?;
            }
            Ok(())
        };
        insert(&self.connection).map_err(failed("write", &self.path()))
    }

    /// Stores a tool; a later call replaces an earlier one.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn keep_tool(&mut self, tool: &Tool) -> Result<(), LabError> {
        self.connection
            .execute(
                "INSERT OR REPLACE INTO tool VALUES (?1, ?2, ?3, ?4, ?5)",
                params![tool.name, tool.version, tool.missing, tool.program, tool.digest],
            )
            .map_err(failed("write", &self.path()))?;
        Ok(())
    }

    /// Stores a run: first its document, then its row, so that a row always has a document.
    ///
    /// # Errors
    /// The disk cannot be written.
    pub fn keep(&mut self, run: &RunRecord) -> Result<(), LabError> {
        let document = self.dir.join("runs").join(document_name(run));
        let mut json = serde_json::to_vec_pretty(run).unwrap_or_default();
        json.push(b'\n');
        fs::write(&document, json).map_err(LabError::file("write", &document))?;
        // The run and its samples are stored in one transaction.
        let kept = self.connection.unchecked_transaction().and_then(|transaction| {
            self.insert(run)?;
            self.insert_samples(run)?;
            transaction.commit()
        });
        kept.map_err(failed("write", &self.path()))
    }

    fn insert_samples(&self, run: &RunRecord) -> rusqlite::Result<()> {
        let mut statement = self
            .connection
            .prepare_cached("INSERT OR REPLACE INTO sample VALUES (?1, ?2, ?3, ?4)")?;
        for sample in &run.samples {
            let rate = sample.throughput_bps.bps() as i64;
            statement.execute(params![run.sequence, run.attempt, sample.seconds, rate])?;
        }
        Ok(())
    }

    fn insert(&self, run: &RunRecord) -> rusqlite::Result<()> {
        let (status, reason) = match &run.outcome {
            Outcome::Ok => ("ok", None),
            Outcome::Failed { reason } => ("failed", Some(reason)),
            Outcome::Invalid { reason } => ("invalid", Some(reason)),
        };
        let work = run.work.as_ref();
        let link = LinkCounters::of(run);
        let json = to_json(&cut(run));
        self.connection.execute(
            "INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, \
             ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, \
             ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40)",
            params![
                run.sequence,
                run.attempt,
                run.repeat,
                run.tool,
                run.label,
                run.workload.name(),
                run.condition.rtt.as_nanos() as f64 / 1e6,
                run.condition.rate.map(|rate| rate.bps() as i64),
                status,
                reason,
                run.throughput_bps.map(|rate| rate.bps() as i64),
                run.tool_throughput_bps.map(|rate| rate.bps() as i64),
                run.bytes.map(|bytes| bytes.get() as i64),
                run.seconds,
                run.durable_seconds,
                run.guarantees.encrypted,
                run.guarantees.verified,
                run.guarantees.synced,
                run.host.map(|host| host.busy_share),
                run.host.map(|host| host.steal_share),
                run.started_at,
                run.tool_version,
                run.near_command,
                run.far_command,
                json,
                run.condition.label(),
                run.condition.loss(),
                to_json(&run.condition.options),
                work.map(|work| &work.name),
                work.and_then(|work| work.files).map(|files| files as i64),
                work.and_then(|work| work.file_bytes).map(|bytes| bytes.get() as i64),
                run.streams,
                run.window_bytes.map(|bytes| bytes.get() as i64),
                run.clients.unwrap_or(1),
                run.seed.map(|seed| seed as i64),
                run.cpu.map(|cpu| cpu.near_seconds),
                run.cpu.and_then(|cpu| cpu.far_seconds),
                link.lost_segments,
                link.late_p999_ms,
                schema::of_run(&json, &run.samples),
            ],
        )?;
        Ok(())
    }

    /// Stores the measurement of a path; a later call replaces an earlier one.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn keep_path_record(&mut self, record: &PathRecord) -> Result<(), LabError> {
        let json = to_json(record);
        let ([small, full], [there, back]) = (record.rtt_ms(), record.mtu_bytes());
        let (probes, lost) = record.loss().unzip();
        let whole = |count: Option<u64>| count.and_then(|count| i64::try_from(count).ok());
        self.connection
            .execute(
                "INSERT OR REPLACE INTO path VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                params![
                    record.path,
                    record.measured_at,
                    small,
                    full,
                    there,
                    back,
                    whole(probes),
                    whole(lost),
                    record.failure,
                    json,
                    schema::of_text(&json)
                ],
            )
            .map_err(failed("write", &self.path()))?;
        Ok(())
    }

    /// Stores the certificate of the emulator on this machine; a later call replaces an earlier
    /// one.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn keep_certificate(&mut self, certificate: &Certificate) -> Result<(), LabError> {
        let json = to_json(certificate);
        let seal = schema::of_text(&json);
        self.connection
            .execute("INSERT OR REPLACE INTO certificate VALUES (1, ?1, ?2)", params![json, seal])
            .map_err(failed("write", &self.path()))?;
        Ok(())
    }

    pub(super) fn path(&self) -> std::path::PathBuf {
        self.dir.join(FILE_NAME)
    }
}

/// The counters of a run's links, both directions together.
struct LinkCounters {
    /// The segments that did not arrive, for any reason.
    lost_segments: Option<i64>,
    /// The lateness in ms of the worse direction.
    late_p999_ms: Option<f64>,
}

impl LinkCounters {
    /// Returns the counters of the run's links; they are empty if the path is not emulated.
    fn of(run: &RunRecord) -> Self {
        // A path of several parallel links has a list of reports.
        let links = Vec::<LinkReport>::deserialize(&run.path)
            .or_else(|_| LinkReport::deserialize(&run.path).map(|link| vec![link]))
            .unwrap_or_default();
        let ways = || links.iter().flat_map(|link| [&link.up, &link.down]);
        LinkCounters {
            lost_segments: (!links.is_empty()).then(|| {
                ways().map(|way| (way.not_delivered().segments + way.interface_drops) as i64).sum()
            }),
            late_p999_ms: ways().map(|way| way.lateness.p999_ms).reduce(f64::max),
        }
    }
}

/// Returns the run without its output, except for the end of standard error, and without its
/// samples, which have their own table.
fn cut(run: &RunRecord) -> RunRecord {
    let shorter = |output: &ToolOutput| {
        let from = output.stderr.ceil_char_boundary(output.stderr.len().saturating_sub(TAIL));
        ToolOutput {
            exit_code: output.exit_code,
            stdout: String::new(),
            stderr: output.stderr[from..].to_owned(),
            truncated: output.truncated || from > 0 || !output.stdout.is_empty(),
        }
    };
    RunRecord {
        near_output: shorter(&run.near_output),
        far_output: run.far_output.as_ref().map(shorter),
        samples: Vec::new(),
        ..run.clone()
    }
}

/// Returns success for a removal that found nothing, a directory with the files of others, or a file of
/// others in place of a directory.
fn unless_foreign(removed: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound};
    removed.or_else(|error| match error.kind() {
        NotFound | DirectoryNotEmpty | NotADirectory => Ok(()),
        _ => Err(error),
    })
}

/// Returns the name of a run's document: `0007-scp-90ms.json`, or `0007-scp-90ms-2.json` for a
/// second attempt.
fn document_name(run: &RunRecord) -> String {
    let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "-");
    let rtt = longhaul_core::units::format_span(run.condition.rtt);
    let attempt = if run.attempt > 1 { format!("-{}", run.attempt) } else { String::new() };
    format!("{:04}-{}-{rtt}{attempt}.json", run.sequence, plain(&run.tool))
}

/// Serialization cannot fail: headers and runs consist of numbers, texts and lists of these.
fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
