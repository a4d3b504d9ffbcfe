//! Documents of the first version must always read; see docs/design/results.md.

use std::collections::BTreeSet;
use std::fmt::Debug;

use longhaul_core::doctor::RULES;
use longhaul_core::result::{
    COPY_SCHEMA, CopyResult, Diagnosis, DiagnosisStep, DoctorReport, FindingVerdict, PATH_SCHEMA,
    PathResult, STAMP_RECORD_SCHEMA, STAMP_SCHEMA, StampNumbering, StampRecord, StampResult,
    TEST_SCHEMA, TargetSource, TestResult, TopologyReport,
};
use longhaul_core::units::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

#[test]
fn a_copy_of_the_first_version_reads() {
    let result: CopyResult = serde_json::from_str(include_str!("fixtures/cp-1.json")).unwrap();
    assert_eq!(result.schema, COPY_SCHEMA);
    assert_eq!(result.summary.bytes, Bytes::mib(64));
    assert!(result.summary.verified && result.summary.encrypted && result.summary.durable);
    assert!(result.source.stages.read.is_some() && result.sink.stages.write.is_some());
}

#[test]
fn a_test_of_the_first_version_reads() {
    let result: TestResult = serde_json::from_str(include_str!("fixtures/test-1.json")).unwrap();
    assert_eq!(result.schema, TEST_SCHEMA);
    assert!(result.summary.throughput_bps.bps() > 0);
    assert_eq!(result.streams.len(), 2);
}

#[test]
fn stamp_documents_of_the_first_version_read() {
    let result: StampResult = serde_json::from_str(include_str!("fixtures/stamp-1.json")).unwrap();
    assert_eq!(result.schema, STAMP_SCHEMA);
    assert_eq!(result.reflector.numbering, StampNumbering::Stateful);
    let found = &result.figures;
    let lost = [&found.forward, &found.reverse].map(|way| way.lost.unwrap().count);
    assert_eq!((found.sent, found.answered, lost), (200, 195, [2, 3]));
    let text = include_str!("fixtures/stamp-record-1.json");
    let record: StampRecord = serde_json::from_str(text).unwrap();
    assert_eq!(record.schema, STAMP_RECORD_SCHEMA);
    let packets: u64 = record.histograms.rtt.iter().map(|(_, packets)| packets).sum();
    assert_eq!((packets, record.figures.answered), (71, 71));
}

#[test]
fn a_topology_of_the_first_version_reads() {
    let text = include_str!("fixtures/topology-1.json");
    let report: TopologyReport = serde_json::from_str(text).unwrap();
    assert_eq!(report.schema, TopologyReport::SCHEMA);
    assert_eq!(report.sites.len(), 2);
    let link = &report.links[0];
    assert_eq!((&*link.name, &*link.near, &*link.far), ("left-right", "left", "right"));
    assert_eq!(link.link.up.impairments.lost.segments, 3);
    assert!(link.link.up.is_conserved() && link.link.down.is_conserved());
}

#[test]
fn an_examination_of_the_first_version_reads() {
    let text = include_str!("fixtures/doctor-1.json");
    let report: DoctorReport = serde_json::from_str(text).unwrap();
    assert_eq!(report.schema, DoctorReport::SCHEMA);
    assert_eq!(report.target.rate_from, TargetSource::Interface);
    assert!(report.has_problems());
    let [problem] = report.of(FindingVerdict::Problem).collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    assert_eq!((&*problem.rule, &*problem.subject), ("pcie_rate", "enp134s0f0np0"));
    assert_eq!(report.of(FindingVerdict::Unseen).count(), 1);
    assert_eq!(report.measurements[1].throughput_bps, None);
}

#[test]
fn a_path_result_of_the_first_version_reads_with_old_and_new_field_names() {
    let read = |text| serde_json::from_str::<PathResult>(text).unwrap();
    let first = read(include_str!("fixtures/path-1.json"));
    assert_eq!(first, read(include_str!("fixtures/path-1-renamed.json")));
    assert_eq!(first.schema, PATH_SCHEMA);
    assert_eq!(first.forward.hops.as_ref().unwrap().list[0].min_ms, Some(20.23));
    assert_eq!((first.forward.mtu_bytes(), first.reverse.mtu_bytes()), (Some(1500), Some(1500)));
    assert!(first.is_complete() && !first.is_empty());
    assert_eq!(first.reverse.probes.unwrap().sent, 2000);
    assert!(first.forward.capacity.unwrap().estimate_bps.is_some());
}

/// Returns `value` with one more field in every object.
fn with_unknown_fields(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let inner = object.iter().map(|(key, value)| (key.clone(), with_unknown_fields(value)));
            let mut object: Map<String, Value> = inner.collect();
            // The name of a variant is the only key of its object.
            if object.len() > 1 {
                object.insert("added_by_a_later_version".to_owned(), serde_json::json!({"x": [1]}));
            }
            Value::Object(object)
        }
        Value::Array(array) => array.iter().map(with_unknown_fields).collect(),
        other => other.clone(),
    }
}

#[test]
fn unknown_fields_of_result_documents_are_ignored() {
    fn check<T: DeserializeOwned + PartialEq + Debug>(text: &str) {
        let document: Value = serde_json::from_str(text).unwrap();
        let extended = with_unknown_fields(&document);
        assert_ne!(extended, document);
        let read: T = serde_json::from_value(extended).unwrap();
        assert_eq!(read, serde_json::from_value(document).unwrap());
    }
    check::<CopyResult>(include_str!("fixtures/cp-1.json"));
    check::<TestResult>(include_str!("fixtures/test-1.json"));
    check::<TopologyReport>(include_str!("fixtures/topology-1.json"));
    check::<DoctorReport>(include_str!("fixtures/doctor-1.json"));
    check::<PathResult>(include_str!("fixtures/path-1.json"));
    check::<StampResult>(include_str!("fixtures/stamp-1.json"));
    check::<StampRecord>(include_str!("fixtures/stamp-record-1.json"));
    check::<Diagnosis>(include_str!("fixtures/diagnoses/link-rate.json"));
}

#[test]
fn a_diagnosis_of_the_first_version_reads() {
    let text = include_str!("fixtures/diagnoses/link-rate.json");
    let diagnosis: Diagnosis = serde_json::from_str(text).unwrap();
    assert_eq!(diagnosis.schema, Diagnosis::SCHEMA);
    assert_eq!(diagnosis.steps.iter().map(|one| one.step).collect::<Vec<_>>(), DiagnosisStep::ALL);
    let whole = diagnosis.step(DiagnosisStep::Whole).unwrap();
    assert!(whole.rounds.iter().all(|round| round.source_host.is_some()));
    assert!(diagnosis.ends.source.is_some() && diagnosis.rtt_ms.is_some());
}

#[test]
fn the_rules_of_the_doctor_have_unique_names_and_are_in_the_guide() {
    let guide = include_str!("../../../docs/guide/doctor.md");
    let names: BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(names.len(), RULES.len());
    let missing: Vec<_> =
        names.iter().filter(|name| !guide.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/guide/doctor.md does not contain {missing:?}");
}
