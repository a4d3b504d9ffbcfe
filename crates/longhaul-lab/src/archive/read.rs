//! Opens an archive and reads its contents.

use std::collections::HashMap;
use std::path::Path;

use longhaul_core::result::{Certificate, RunRecord, RunSample};
use longhaul_core::units::Rate;
use rusqlite::{Connection, OpenFlags};
use serde::de::DeserializeOwned;

use super::schema::failed;
use super::{Archive, Contents, FILE_NAME, MatrixHeader, PathRecord, Tool, schema};
use crate::LabError;

/// The key of a run: its sequence number and attempt.
type Place = (u32, u32);

impl Archive {
    /// Opens the archive in `dir` for reading. An archive with an earlier schema is not changed.
    ///
    /// # Errors
    /// There is no archive, it is damaged, or a later version wrote it.
    pub fn open(dir: &Path) -> Result<Self, LabError> {
        Self::open_with(dir, OpenFlags::SQLITE_OPEN_READ_ONLY).map(|(archive, _)| archive)
    }

    /// Opens the archive in `dir` for adding runs. An archive with an earlier schema is migrated to
    /// the current one in one transaction.
    ///
    /// # Errors
    /// As for [`Archive::open`]; also if the disk cannot be written.
    pub fn open_to_continue(dir: &Path) -> Result<Self, LabError> {
        let (archive, version) = Self::open_with(dir, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        schema::advance(&archive.connection, version)
            .map_err(failed("migrate to the current schema", &archive.path()))?;
        Ok(archive)
    }

    fn open_with(dir: &Path, mode: OpenFlags) -> Result<(Self, i64), LabError> {
        let path = dir.join(FILE_NAME);
        if !path.is_file() {
            return Err(LabError::NoArchive { path: dir.to_owned() });
        }
        let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(failed("open", &path))?;
        let version = schema::check(&connection, &path)?;
        Ok((Archive { dir: dir.to_owned(), connection }, version))
    }

    /// Returns the facts about the matrix.
    ///
    /// # Errors
    /// The database cannot be read, is damaged, or has the header of a later version.
    pub fn header(&self) -> Result<MatrixHeader, LabError> {
        let seal = if self.is_sealed()? { "seal" } else { "NULL" };
        let query = format!("SELECT header_json, {seal} FROM matrix");
        let all: Vec<(String, Option<String>)> =
            self.rows(&query, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let [(json, seal)] = &all[..] else {
            return Err(LabError::damaged(self.path(), "it has no header"));
        };
        self.unseal("header", json, seal.as_deref(), &[])
    }

    /// Reads everything that a report needs.
    ///
    /// # Errors
    /// The database cannot be read, is damaged, or has a document of a later version.
    pub fn contents(&self) -> Result<Contents, LabError> {
        // Archives with an earlier schema have no digests.
        let columns = if self.has_column("tool", "digest")? {
            "name, version, missing, program, digest"
        } else {
            "name, version, missing, NULL, NULL"
        };
        let tools = self.rows(&format!("SELECT {columns} FROM tool ORDER BY name"), |row| {
            Ok(Tool {
                name: row.get(0)?,
                version: row.get(1)?,
                missing: row.get(2)?,
                program: row.get(3)?,
                digest: row.get(4)?,
            })
        })?;
        let (header, runs) = (self.header()?, self.runs()?);
        let (path_records, certificate) = (self.path_records()?, self.certificate()?);
        Ok(Contents { header, tools, runs, path_records, certificate })
    }

    /// Reads the runs with their samples, in the order of sequence number and attempt.
    ///
    /// # Errors
    /// The database cannot be read, is damaged, or has a document of a later version.
    pub fn runs(&self) -> Result<Vec<RunRecord>, LabError> {
        let mut samples = self.samples()?;
        let seal = if self.is_sealed()? { "seal" } else { "NULL" };
        // Rows were added in the order of attempts. Schema 1 has neither attempts nor samples.
        let attempt = if self.has_column("run", "attempt")? { "attempt" } else { "1" };
        let query = format!(
            "SELECT sequence, {attempt}, record_json, {seal} FROM run ORDER BY sequence, rowid"
        );
        let rows: Vec<(Place, String, Option<String>)> =
            self.rows(&query, |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?, row.get(3)?)))?;
        let records = rows.into_iter().map(|(place, json, seal)| {
            let samples = samples.remove(&place).unwrap_or_default();
            let run: RunRecord = self.unseal("run", &json, seal.as_deref(), &samples)?;
            Ok(RunRecord { samples, ..run })
        });
        records.collect()
    }

    /// Reads the throughput over time of all runs; empty for archives that do not record it.
    fn samples(&self) -> Result<HashMap<Place, Vec<RunSample>>, LabError> {
        let mut all: HashMap<Place, Vec<RunSample>> = HashMap::new();
        if self.has_column("sample", "seconds")? {
            let query = "SELECT sequence, attempt, seconds, throughput_bps FROM sample \
                         ORDER BY sequence, attempt, seconds";
            let rows: Vec<(Place, f64, i64)> =
                self.rows(query, |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?, row.get(3)?)))?;
            for (place, seconds, bps) in rows {
                let throughput_bps = Rate::from_bps(bps as u64);
                all.entry(place).or_default().push(RunSample { seconds, throughput_bps });
            }
        }
        Ok(all)
    }

    /// Reads the measurements of each path before its first run; empty for archives without them.
    ///
    /// # Errors
    /// The database cannot be read, is damaged, or has a document of a later version.
    pub fn path_records(&self) -> Result<Vec<PathRecord>, LabError> {
        if !self.has_column("path", "seal")? {
            return Ok(Vec::new());
        }
        let query = "SELECT document_json, seal FROM path ORDER BY rowid";
        let all: Vec<(String, String)> = self.rows(query, |row| Ok((row.get(0)?, row.get(1)?)))?;
        all.iter().map(|(json, seal)| self.unseal("survey", json, Some(seal), &[])).collect()
    }

    fn certificate(&self) -> Result<Option<Certificate>, LabError> {
        if !self.has_column("certificate", "seal")? {
            return Ok(None);
        }
        let query = "SELECT document_json, seal FROM certificate";
        let all: Vec<(String, String)> = self.rows(query, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let read =
            |(json, seal): &(String, String)| self.unseal("certificate", json, Some(seal), &[]);
        all.first().map(read).transpose()
    }

    fn is_sealed(&self) -> Result<bool, LabError> {
        self.has_column("run", "seal")
    }

    fn has_column(&self, table: &str, column: &str) -> Result<bool, LabError> {
        let query = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
        let count: i64 = self
            .connection
            .query_row(query, [table, column], |row| row.get(0))
            .map_err(failed("read", &self.path()))?;
        Ok(count > 0)
    }

    fn rows<T>(
        &self,
        query: &str,
        read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, LabError> {
        let rows = || -> rusqlite::Result<Vec<T>> {
            let mut statement = self.connection.prepare(query)?;
            statement.query_map([], read)?.collect()
        };
        rows().map_err(failed("read", &self.path()))
    }

    /// Parses a document if its seal matches.
    fn unseal<T: DeserializeOwned>(
        &self,
        what: &'static str,
        json: &str,
        seal: Option<&str>,
        samples: &[RunSample],
    ) -> Result<T, LabError> {
        if seal.is_some_and(|seal| seal != schema::of_run(json, samples)) {
            return Err(LabError::damaged(
                self.path(),
                format!("the seal of a {what} does not match"),
            ));
        }
        serde_json::from_str(json).map_err(|source| LabError::ArchiveDocument {
            path: self.path(),
            what,
            source,
        })
    }
}
