use longhaul_core::result::{EndReport, StageTimes};

/// From this share of its time on, a stage counts as never idle.
const SATURATED: f64 = 0.85;
/// CPU seconds per second and core from which the processors count as used up.
const CPU_SATURATED: f64 = 0.85;

/// One sentence on what limited a copy, from where its threads spent their time.
///
/// A stage that never waits for another is the one that limits. Sending includes the wait for the
/// socket: when it is saturated, it is what lies between the ends. Receiving says nothing by itself,
/// since it waits for a slow source as it waits for a slow path.
pub(super) fn verdict(source: &EndReport, sink: &EndReport, one_host_cores: Option<f64>) -> String {
    let StageTimes { read, send, .. } = source.stages;
    let StageTimes { receive, write, sync, .. } = sink.stages;
    let saturated = |share: Option<f64>| share.is_some_and(|share| share >= SATURATED);
    let percent = |share: Option<f64>| format!("{:.0} %", 100.0 * share.unwrap_or(0.0));
    if saturated(write) {
        return format!(
            "limited by the sink's disk: its writers were busy {} of the time",
            percent(write)
        );
    }
    if saturated(sync) {
        return format!(
            "limited by syncing at the sink: {} of the time went to making files durable",
            percent(sync)
        );
    }
    if saturated(read) && !saturated(send) {
        return format!(
            "limited by the source's disk: its readers were busy {} of the time and the senders {}",
            percent(read),
            percent(send)
        );
    }
    let cores = one_host_cores.unwrap_or(f64::INFINITY);
    let cpu = (source.end.cpu_percent + sink.end.cpu_percent) / 100.0;
    if cpu >= CPU_SATURATED * cores {
        return format!(
            "limited by the processors: both ends are on this host and used {cpu:.1} of its \
             {cores:.0} cores"
        );
    }
    if saturated(send) {
        return format!(
            "limited by the path: the senders were busy {} of the time, readers {} and writers {}",
            percent(send),
            percent(read),
            percent(write)
        );
    }
    format!(
        "nothing stands out: readers were busy {} of the time, senders {}, receivers {}, writers {}",
        percent(read),
        percent(send),
        percent(receive),
        percent(write)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(stages: StageTimes, cpu_percent: f64) -> EndReport {
        let end = longhaul_core::result::TransferEnd { cpu_percent, ..Default::default() };
        EndReport { end, stages }
    }

    #[test]
    fn names_the_stage_that_never_waits() {
        let source = |read, send| {
            let stages = StageTimes { read: Some(read), send: Some(send), ..Default::default() };
            end(stages, 50.0)
        };
        let sink = |receive, write| {
            let stages =
                StageTimes { receive: Some(receive), write: Some(write), ..Default::default() };
            end(stages, 50.0)
        };
        let says = |source: &EndReport, sink: &EndReport, word: &str| {
            let verdict = verdict(source, sink, None);
            assert!(verdict.contains(word), "{verdict}");
        };
        says(&source(0.3, 0.95), &sink(0.5, 0.97), "sink's disk");
        says(&source(0.99, 0.2), &sink(0.9, 0.2), "source's disk");
        says(&source(0.1, 0.99), &sink(0.99, 0.1), "path");
        says(&source(0.2, 0.2), &sink(0.2, 0.2), "nothing stands out");
        let busy = verdict(&source(0.2, 0.99), &end(StageTimes::default(), 140.0), Some(2.0));
        assert!(busy.contains("processors"), "{busy}");
    }
}
