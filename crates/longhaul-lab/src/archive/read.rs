use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde::de::DeserializeOwned;

use super::write::failed;
use super::{Archive, Contents, FILE_NAME, Header, Tool, schema};
use crate::LabError;

impl Archive {
    /// Opens the archive in `dir`.
    ///
    /// # Errors
    /// There is none, it is damaged, or a later version wrote it.
    pub fn open(dir: &Path) -> Result<Self, LabError> {
        let path = dir.join(FILE_NAME);
        if !path.is_file() {
            return Err(LabError::NoArchive { path: dir.to_owned() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(failed("open", &path))?;
        schema::check(&connection, &path)?;
        Ok(Archive { dir: dir.to_owned(), connection })
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

    /// The numbers of the runs that are kept.
    ///
    /// # Errors
    /// The database's.
    pub fn finished(&self) -> Result<Vec<u32>, LabError> {
        self.rows("SELECT sequence FROM run ORDER BY sequence", |row| row.get(0))
    }

    /// Everything, for a report.
    ///
    /// # Errors
    /// The database's, or a document of a later version.
    pub fn contents(&self) -> Result<Contents, LabError> {
        let tools = self.rows("SELECT name, version, missing FROM tool ORDER BY name", |row| {
            Ok(Tool { name: row.get(0)?, version: row.get(1)?, missing: row.get(2)? })
        })?;
        let records: Vec<String> =
            self.rows("SELECT record_json FROM run ORDER BY sequence", |row| row.get(0))?;
        let runs = records.iter().map(|json| self.document("run", json));
        let runs = runs.collect::<Result<_, _>>()?;
        Ok(Contents { header: self.header()?, tools, runs })
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
