use std::path::Path;

use longhaul_core::result::{RunRecord, RunSample};
use longhaul_core::units::Rate;
use rusqlite::{Connection, OpenFlags};
use serde::de::DeserializeOwned;

use super::write::failed;
use super::{Archive, Contents, FILE_NAME, Header, Tool, schema};
use crate::LabError;

impl Archive {
    /// Opens the archive in `dir` to read it; one of an earlier schema stays as it is.
    ///
    /// # Errors
    /// There is none, it is damaged, or a later version wrote it.
    pub fn open(dir: &Path) -> Result<Self, LabError> {
        Self::open_with(dir, OpenFlags::SQLITE_OPEN_READ_ONLY).map(|(archive, _)| archive)
    }

    /// Opens the archive in `dir` to keep further runs in it; one of an earlier schema is brought
    /// to the present one first, wholly or not at all.
    ///
    /// # Errors
    /// Those of [`Archive::open`], and the disk's.
    pub fn open_to_continue(dir: &Path) -> Result<Self, LabError> {
        let (archive, version) = Self::open_with(dir, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        schema::advance(&archive.connection, version)
            .map_err(failed("bring to the present version", &archive.path()))?;
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

    /// What the matrix is.
    ///
    /// # Errors
    /// The database's, or a header of a later version.
    pub fn header(&self) -> Result<Header, LabError> {
        let json: String = self
            .connection
            .query_row("SELECT header_json FROM matrix", [], |row| row.get(0))
            .map_err(failed("read", &self.path()))?;
        self.document("header", &json)
    }

    /// Everything, for a report.
    ///
    /// # Errors
    /// The database's, or a document of a later version.
    pub fn contents(&self) -> Result<Contents, LabError> {
        // An archive of an earlier schema has no digests.
        let columns = match self.has_column("tool", "digest")? {
            true => "name, version, missing, program, digest",
            false => "name, version, missing, NULL, NULL",
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
        Ok(Contents { header: self.header()?, tools, runs: self.runs()? })
    }

    /// The runs that are kept, in the order of their places and attempts.
    ///
    /// # Errors
    /// The database's, or a document of a later version.
    pub fn runs(&self) -> Result<Vec<RunRecord>, LabError> {
        // Rows were added in the order of attempts.
        let records: Vec<String> =
            self.rows("SELECT record_json FROM run ORDER BY sequence, rowid", |row| row.get(0))?;
        records.iter().map(|json| self.document("run", json)).collect()
    }

    /// What the path of a run carried over time; nothing in archives that do not tell.
    ///
    /// # Errors
    /// The database's.
    pub fn samples(&self, sequence: u32, attempt: u32) -> Result<Vec<RunSample>, LabError> {
        if !self.has_column("sample", "seconds")? {
            return Ok(Vec::new());
        }
        let query = format!(
            "SELECT seconds, throughput_bps FROM sample \
             WHERE sequence = {sequence} AND attempt = {attempt} ORDER BY seconds"
        );
        self.rows(&query, |row| {
            let bps: i64 = row.get(1)?;
            Ok(RunSample { seconds: row.get(0)?, throughput_bps: Rate::from_bps(bps as u64) })
        })
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

    fn document<T: DeserializeOwned>(&self, what: &'static str, json: &str) -> Result<T, LabError> {
        serde_json::from_str(json).map_err(|source| LabError::ArchiveDocument {
            path: self.path(),
            what,
            source,
        })
    }
}
