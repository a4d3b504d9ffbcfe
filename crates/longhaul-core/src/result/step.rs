//! The steps of a diagnosis: each measures one part of a copy, or the whole.

use serde::{Deserialize, Serialize};

use super::{CopyLimit, CopyPathReport, EndReport, Reason, StageTimes, TransferEnd};
use crate::stats::median;
use crate::units::{Bytes, Rate};

/// One step of a diagnosis: one part of a copy, measured separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosisStep {
    /// The source's files, read and discarded on the source's host.
    Read,
    /// Memory to memory over the path with one connection, like `longhaul test`.
    MemoryOne,
    /// Memory to memory over the path with several connections.
    Memory,
    /// Memory to memory in the form of a copy: in blocks, encrypted or hashed, verified.
    Protected,
    /// The source's files to the sink's memory.
    ReadSend,
    /// Memory to files at the sink.
    SendWrite,
    /// Files written on the sink's host from its memory.
    Write,
    /// The whole copy.
    Whole,
}

impl DiagnosisStep {
    /// All steps, from the source to the whole copy.
    pub const ALL: [DiagnosisStep; 8] = [
        DiagnosisStep::Read,
        DiagnosisStep::MemoryOne,
        DiagnosisStep::Memory,
        DiagnosisStep::Protected,
        DiagnosisStep::ReadSend,
        DiagnosisStep::SendWrite,
        DiagnosisStep::Write,
        DiagnosisStep::Whole,
    ];

    /// Returns a short title; `streams` is the number of connections of [`Memory`](Self::Memory).
    pub fn title(self, streams: u32) -> String {
        let title = match self {
            DiagnosisStep::Read => "source read, no network",
            DiagnosisStep::MemoryOne => "memory to memory, 1 stream",
            DiagnosisStep::Memory => return format!("memory to memory, {streams} streams"),
            DiagnosisStep::Protected => "memory to memory, as cp",
            DiagnosisStep::ReadSend => "source to far memory",
            DiagnosisStep::SendWrite => "memory to far disk",
            DiagnosisStep::Write => "sink write, no network",
            DiagnosisStep::Whole => "the whole copy",
        };
        title.to_owned()
    }
}

/// The report of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The step.
    #[serde(rename = "rung")]
    pub step: DiagnosisStep,
    /// [`DiagnosisStep::title`].
    pub title: String,
    /// The median of the rounds, of an even number the mean of the middle two; `None` if none
    /// succeeded.
    pub throughput_bps: Option<Rate>,
    /// The median number of files per second, if files are copied.
    pub files_per_second: Option<f64>,
    /// The rounds of the measurement.
    pub rounds: Vec<StepRound>,
    /// The method of measurement, or the reason why there is no rate.
    pub note: String,
}

impl StepReport {
    /// Returns the round whose rate is the median or the next below it.
    pub fn median(&self) -> Option<&StepRound> {
        self.sorted().get(self.rounds.len().saturating_sub(1) / 2).copied()
    }

    /// Returns the median of the rates with the ramp-up; `None` if a round has none.
    pub fn median_mean(&self) -> Option<Rate> {
        let means: Option<Vec<f64>> =
            self.rounds.iter().map(|round| Some(round.mean_bps?.bps() as f64)).collect();
        Some(Rate::from_bps(median(&means?)? as u64))
    }

    fn sorted(&self) -> Vec<&StepRound> {
        let mut rounds: Vec<_> = self.rounds.iter().collect();
        rounds.sort_by_key(|round| round.throughput_bps);
        rounds
    }

    /// Returns the median rate of the rounds: of an even number the mean of the middle two.
    pub fn median_rate(&self) -> Option<Rate> {
        let rates = self.rounds.iter().map(|round| round.throughput_bps.bps() as f64);
        median(&rates.collect::<Vec<f64>>()).map(|bps| Rate::from_bps(bps.round() as u64))
    }

    /// Returns the median number of files per second of the rounds that moved several files.
    pub fn median_files_per_second(&self) -> Option<f64> {
        let several = self.rounds.iter().filter(|round| round.files > 1);
        let per_second = several.map(|round| {
            let mean = round.bytes.get() as f64 / round.files as f64;
            round.throughput_bps.bps() as f64 / 8.0 / mean.max(1.0)
        });
        median(&per_second.collect::<Vec<f64>>())
    }
}

/// One round of one step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepRound {
    /// The number of the round, from 1.
    pub number: u32,
    /// The steady goodput after the ramp-up, or `mean_bps` if the round was too short for one.
    pub throughput_bps: Rate,
    /// The goodput with the ramp-up, in a step over the path; `None` in documents of earlier
    /// versions.
    #[serde(default)]
    pub mean_bps: Option<Rate>,
    /// The duration of the ramp-up in seconds; `None` if the round was too short for a steady rate.
    #[serde(default)]
    pub ramp_up_seconds: Option<f64>,
    /// The number of bytes moved.
    pub bytes: Bytes,
    /// The number of files moved.
    #[serde(default)]
    pub files: u64,
    /// The duration in seconds.
    pub seconds: f64,
    /// True if the time limit ended the round before everything was copied.
    #[serde(default)]
    pub cut: bool,
    /// The load of the source's host during the round.
    #[serde(default)]
    pub source_host: Option<HostUse>,
    /// The load of the sink's host during the round.
    #[serde(default)]
    pub sink_host: Option<HostUse>,
    /// The reason for the rate, in a test.
    #[serde(default)]
    pub reason: Option<Box<Reason>>,
    /// The percentage of segments retransmitted in the second half of a test, which excludes losses
    /// of the first burst at a full queue.
    #[serde(default)]
    pub late_loss_percent: Option<f64>,
    /// The highest queueing delay of an interval of a test in ms, including the ramp-up; `None` in
    /// documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_queue_ms: Option<f64>,
    /// The report of the copy, in a step that copies.
    #[serde(default)]
    pub copy: Option<Box<CopyEvidence>>,
    /// The report of an end that read or wrote separately, in such a step.
    #[serde(rename = "alone", default)]
    pub disk: Option<DiskStepReport>,
}

/// The report of a copy about itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CopyEvidence {
    /// The limit that the copy names.
    pub limit: Option<CopyLimit>,
    /// The TCP statistics.
    pub path: CopyPathReport,
    /// The source's end.
    pub source: EndReport,
    /// The sink's end.
    pub sink: EndReport,
}

/// The report of one end that read or wrote separately.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DiskStepReport {
    /// The number of bytes read or written.
    pub bytes: Bytes,
    /// The number of files, or of passes over the same files.
    pub files: u64,
    /// The duration in seconds, including the sync.
    pub seconds: f64,
    /// The resources that the end used.
    pub end: TransferEnd,
    /// The time that its threads spent in each stage.
    pub stages: StageTimes,
    /// The rate of overwriting allocated blocks, for large files only.
    #[serde(default)]
    pub overwrite_bps: Option<Rate>,
    /// The method that kept the page cache out of the measurement.
    pub how: String,
}

/// The load of a host's processors during a round; shares of the time, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HostUse {
    /// The use of all processors together by all programs.
    pub busy: f64,
    /// The share that the hypervisor took.
    pub stolen: f64,
    /// The number of the processor with the most interrupts.
    pub interrupts_core: u32,
    /// The share of that processor's time in interrupts.
    pub interrupts: f64,
    /// The share of time in which the CPU quota of its control group throttled the process.
    pub throttled: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_an_even_number_of_rounds_is_between_the_middle_two() {
        let round = |mbps: u64, files| StepRound {
            throughput_bps: Rate::from_bps(mbps * 1_000_000),
            bytes: Bytes::new(1_000_000),
            files,
            ..StepRound::default()
        };
        let mut report = StepReport {
            step: DiagnosisStep::Read,
            title: String::new(),
            throughput_bps: None,
            files_per_second: None,
            rounds: vec![round(100, 10), round(300, 10)],
            note: String::new(),
        };
        assert_eq!(report.median_rate(), Some(Rate::from_bps(200_000_000)));
        assert_eq!(report.median_files_per_second(), Some(250.0));
        report.rounds.push(round(900, 1));
        assert_eq!(report.median_rate(), Some(Rate::from_bps(300_000_000)));
        assert_eq!(report.median().map(|round| round.throughput_bps.bps()), Some(300_000_000));
        report.rounds.clear();
        assert_eq!(report.median_rate(), None);
    }

    #[test]
    fn the_median_of_two_rounds_is_their_mean() {
        let report = |rates: &[u64]| StepReport {
            step: DiagnosisStep::Whole,
            title: String::new(),
            throughput_bps: None,
            files_per_second: None,
            rounds: rates
                .iter()
                .map(|rate| StepRound {
                    throughput_bps: Rate::from_bps(*rate),
                    ..Default::default()
                })
                .collect(),
            note: String::new(),
        };
        for (rates, median, round) in [
            (&[1_600, 3_000][..], 2_300, 1_600),
            (&[9, 1, 5], 5, 5),
            (&[7], 7, 7),
            (&[4, 1, 2, 8], 3, 2),
        ] {
            let report = report(rates);
            assert_eq!(report.median_rate(), Some(Rate::from_bps(median)), "{rates:?}");
            let found = report.median().unwrap().throughput_bps;
            assert_eq!(found, Rate::from_bps(round), "{rates:?}");
        }
        assert_eq!(report(&[]).median_rate(), None);
    }
}
