//! Uploads of earlier versions of the agent, which a hub still accepts.

use longhaul_fleet::protocol::SyncRequest;
use serde_json::Value;

#[test]
fn an_upload_of_an_agent_that_samples_interfaces_only_is_read() {
    let text = include_str!("fixtures/upload-interfaces-only.json");
    let upload: SyncRequest = serde_json::from_str(text).unwrap();
    assert_eq!((upload.samples.len(), upload.results.len(), upload.stamp.len()), (2, 1, 1));
    assert_eq!(upload.samples[0].rows[1].out_errors, 3);
    assert!(upload.samples.iter().all(|one| one.queue.is_empty() && one.host.is_empty()));
    assert_eq!(upload.snapshot, None);
    // What such a hub can read has not changed, so an agent of this version can also talk to it.
    let again: Value = serde_json::to_value(&upload).unwrap();
    assert_eq!(again, serde_json::from_str::<Value>(text).unwrap());
}
