//! Documents of the first version must always read; see docs/design/results.md.

use longhaul_core::result::{COPY_SCHEMA, CopyResult, FLOW_SCHEMA, FlowResult};
use longhaul_core::units::Bytes;

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
    let result: FlowResult = serde_json::from_str(include_str!("fixtures/test-1.json")).unwrap();
    assert_eq!(result.schema, FLOW_SCHEMA);
    assert!(result.summary.throughput_bps.bps() > 0);
    assert_eq!(result.streams.len(), 2);
}
