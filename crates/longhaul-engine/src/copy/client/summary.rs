//! The result of a copy over all of its sessions.

use std::time::{Duration, Instant};

use longhaul_core::plan::{CopyOptions, Protection};
use longhaul_core::result::{COPY_SCHEMA, CopyResult, CopySummary};
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::copy::SinkReport;
use longhaul_sys::tcp::TcpInfo;

use crate::copy::progress::CopyProgress;
use crate::copy::reports::FileReports;
use crate::copy::streams::Channels;
use crate::copy::verdict::{CopyFacts, TransferReports, limit};

/// The sessions of one copy.
pub(super) struct CopySessions {
    start: Instant,
    end: Option<Instant>,
    pub(super) same_host: Option<f64>,
    /// The time until the first session was open.
    connecting: Option<Duration>,
    /// Sessions that were lost.
    reconnects: u32,
    /// The bytes that existed when the first session began, if it was lost.
    resumed: Option<Bytes>,
}

impl CopySessions {
    pub(super) fn begin(options: &CopyOptions, progress: &CopyProgress) -> Self {
        progress.set_limit(options.rate_bps);
        if options.nice {
            // Without the privilege it has no effect.
            let _ = longhaul_sys::cpu::yield_to_others();
        }
        CopySessions {
            start: Instant::now(),
            end: None,
            same_host: None,
            connecting: None,
            reconnects: 0,
            resumed: None,
        }
    }

    pub(super) fn note_host(&mut self, link: &Channels) {
        self.same_host = same_host(link);
        self.connecting.get_or_insert(self.start.elapsed());
    }

    pub(super) fn lost(&mut self, progress: &CopyProgress) {
        self.reconnects += 1;
        progress.note_lost();
        if progress.moved().get() > 0 {
            self.resumed.get_or_insert(progress.resumed());
        }
    }

    /// Returns the circumstances of the copy when it ended.
    pub(super) fn circumstances(&self, progress: &CopyProgress) -> CopyFacts {
        CopyFacts {
            cores: self.same_host,
            rate_limit: progress.limit(),
            connecting: self.connecting.unwrap_or_default(),
            outage: progress.outage(),
        }
    }

    pub(super) fn end(&mut self, at: Instant) {
        self.end = Some(at);
    }

    pub(super) fn summarize(
        &self,
        options: &CopyOptions,
        sink: &SinkReport,
        failed: bool,
        tcp: &[TcpInfo],
    ) -> CopySummary {
        let elapsed = self.end.unwrap_or_else(Instant::now).duration_since(self.start);
        // A copy without any file guarantees nothing.
        let any = !failed || sink.files + sink.unchanged_files > 0;
        // Bytes of an earlier session of this command are not resumed bytes.
        let resumed = self.resumed.unwrap_or(sink.resumed_bytes);
        let moved = Bytes::new(sink.bytes.get().saturating_sub(resumed.get()));
        CopySummary {
            throughput_bps: Rate::mean(moved, elapsed),
            bytes: sink.bytes,
            resumed_bytes: resumed,
            files: sink.files,
            seconds: elapsed.as_secs_f64(),
            verified: any && options.protection.verifies(),
            verification: (any && options.protection.verifies()).then_some(options.verify),
            encrypted: options.protection == Protection::Sealed,
            durable: any && sink.durable,
            streams: 0,
            reconnects: self.reconnects,
            resent_blocks: sink.resent_blocks,
            retransmits: None,
            outage_seconds: 0.0,
            rtt_ms: tcp.iter().map(|info| info.rtt.as_secs_f64() * 1e3).min_by(f64::total_cmp),
            dry_run: options.tree.dry_run,
            unchanged_files: sink.unchanged_files,
            deleted: sink.deleted,
            manifest: sink.manifest.as_ref().map(ToString::to_string),
        }
    }
}

pub(super) fn result(
    mut summary: CopySummary,
    transfer: TransferReports,
    circumstances: &CopyFacts,
    reports: FileReports,
) -> CopyResult {
    summary.outage_seconds = circumstances.outage.as_secs_f64();
    let limit = limit(&summary, &transfer, circumstances);
    let TransferReports { source, sink, path } = transfer;
    let FileReports { failures, skipped, not_kept, actions, digests, .. } = reports;
    let schema = COPY_SCHEMA.to_owned();
    CopyResult {
        schema,
        invocation: None,
        sources: Vec::new(),
        target: String::new(),
        summary,
        // The program words it.
        verdict: String::new(),
        limit,
        path,
        source,
        sink,
        failures,
        skipped,
        not_kept,
        actions,
        digests,
    }
}

/// Returns the number of cores of this host, if the server is on this host, too.
fn same_host(link: &Channels) -> Option<f64> {
    let cores = std::thread::available_parallelism().ok()?;
    link.streams.is_within_host().then_some(cores.get() as f64)
}
