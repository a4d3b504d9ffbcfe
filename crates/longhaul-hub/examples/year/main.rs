//! Fills a store with a year of a mesh, through the store's own functions.
//!
//! ```text
//! year --data DIR | --database ADDRESS [--hosts 24] [--days 365] [--every-hours 6] [--sample-hours 48]
//! ```
//!
//! The year has the runs of all directed pairs with documents, STAMP of all pairs, the traffic of two
//! interfaces per host, events, facts and agents. Samples of the last hours are stored and consolidated as
//! those of agents; older intervals are stored as buckets of the levels that a hub still keeps. The
//! example prints one JSON document. `bench/hub-pages.py` runs it and measures the pages.
#![allow(clippy::print_stdout, clippy::print_stderr)] // The output of an example.

mod fleet;
mod history;
mod model;

use std::collections::HashMap;
use std::error::Error;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_hub::records::counts::store_days;
use longhaul_hub::records::forecast::StoreUsage;
use longhaul_hub::records::series::remove_old;
use longhaul_hub::store::{Sql, Store, StoreError};
use serde_json::json;

/// An hour in ms.
pub(crate) const HOUR: i64 = 3_600_000;
/// A day in ms.
pub(crate) const DAY: i64 = 24 * HOUR;

/// The number of attempts of a write before the last one, and the time between them.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_secs(10);

/// The extent of the year.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) now: i64,
    pub(crate) hosts: usize,
    pub(crate) days: i64,
    /// The time between two runs of a pair in ms.
    pub(crate) every_ms: i64,
    /// The time before `now` of which samples are stored, in ms.
    pub(crate) samples_ms: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let pairs: HashMap<&str, &str> =
        words.chunks_exact(2).map(|two| (two[0].as_str(), two[1].as_str())).collect();
    let number =
        |name: &str, default: i64| pairs.get(name).map_or(Ok(default), |text| text.parse::<i64>());
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis().try_into()?;
    let extent = Extent {
        now,
        hosts: number("--hosts", 24)?.clamp(2, 24).try_into()?,
        days: number("--days", 365)?,
        every_ms: number("--every-hours", 6)? * HOUR,
        samples_ms: number("--sample-hours", 48)? * HOUR,
    };
    let store = match (pairs.get("--data"), pairs.get("--database")) {
        (Some(dir), None) => sqlite(Path::new(dir)).await?,
        (None, Some(address)) => Store::postgres(address).await?,
        _ => return Err("either --data or --database is necessary".into()),
    };
    let begun = Instant::now();
    let mut parts = Vec::new();
    let mut size = store.read(|sql| sql.size_bytes()).await?;
    fleet::fill(&store, extent).await?;
    for part in ["samples", "buckets", "runs", "events"] {
        let rows = match part {
            "samples" => history::samples(&store, extent).await?,
            "buckets" => history::buckets(&store, extent).await?,
            "runs" => fleet::runs(&store, extent).await?,
            _ => fleet::events(&store, extent).await?,
        };
        let after = store.read(|sql| sql.size_bytes()).await?;
        eprintln!(
            "{:5.0} s: {part}: {rows} rows, {} MB",
            begun.elapsed().as_secs_f64(),
            (after - size) / 1_000_000
        );
        parts.push(json!({"part": part, "rows": rows, "bytes": after - size}));
        size = after;
    }
    write(&store, move |sql| remove_old(sql, now)).await?;
    while write(&store, move |sql| store_days(sql, now)).await? {}
    let size = store.read(|sql| sql.size_bytes()).await?;
    let spent = begun.elapsed().as_secs_f64();
    let per_day = (extent.hosts * (extent.hosts - 1)) as f64 * DAY as f64 / extent.every_ms as f64;
    let age = extent.days * DAY;
    let forecast = move |sql: &mut dyn Sql| Ok(StoreUsage::of(sql, per_day)?.forecast(sql, age));
    let forecast = store.read(forecast).await?;
    let of_parts = json!({"samples": forecast.samples, "buckets": forecast.buckets,
        "runs": forecast.runs});
    println!(
        "{:#}",
        json!({"parts": parts, "bytes": size, "forecast": forecast.total(),
            "forecast_of_parts": of_parts, "seconds": spent})
    );
    Ok(())
}

/// Stores what `work` writes. Repeats a failed write, because a statement on a busy host can exceed the time limit
/// of the hub.
pub(crate) async fn write<T: Send + 'static>(
    store: &Store,
    work: impl FnMut(&mut dyn Sql) -> Result<T, StoreError> + Clone + Send + 'static,
) -> Result<T, StoreError> {
    for _ in 0..ATTEMPTS {
        match store.write(work.clone()).await {
            Ok(value) => return Ok(value),
            Err(error) => eprintln!("a write is repeated: {error}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
    store.write(work).await
}

/// Opens the database of a hub's directory, which only this user can read.
async fn sqlite(dir: &Path) -> Result<Store, Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join("hub.db");
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    Ok(Store::sqlite(&path).await?)
}
