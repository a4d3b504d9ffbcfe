//! Documents of the first version must always read; see docs/design/results.md.

use longhaul_core::result::{COPY_SCHEMA, CopyResult, FLOW_SCHEMA, FlowResult, TopologyReport};
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
