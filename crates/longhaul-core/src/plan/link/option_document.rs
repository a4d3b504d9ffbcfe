//! Link options in documents: a table of names and values.

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::LinkOptions;

impl Serialize for LinkOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.all())
    }
}

impl<'de> Deserialize<'de> for LinkOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OptionTable)
    }
}

struct OptionTable;

impl<'de> Visitor<'de> for OptionTable {
    type Value = LinkOptions;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a table of link options")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LinkOptions, A::Error> {
        let mut options = LinkOptions::default();
        while let Some((name, value)) = map.next_entry::<String, Scalar>()? {
            options.set(&name, value.text()).map_err(A::Error::custom)?;
        }
        Ok(options)
    }
}

/// A value of an option in a document: a number or a text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the value of a link option is a text or a number")]
pub(in crate::plan) enum Scalar {
    Whole(u64),
    Number(f64),
    Text(String),
}

impl Scalar {
    pub(in crate::plan) fn text(self) -> String {
        match self {
            Scalar::Whole(number) => number.to_string(),
            Scalar::Number(number) => number.to_string(),
            Scalar::Text(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LinkPlan, LinkPlanError, RateSchedule, ReadFile};
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Result<LinkOptions, LinkPlanError> {
        let mut options = LinkOptions::default();
        pairs.iter().try_for_each(|(name, value)| options.set(name, *value))?;
        Ok(options)
    }

    #[test]
    fn a_document_has_options_by_name_and_a_plan_reads_back_with_all_of_them() {
        let text = r#"{"rtt": "90ms", "loss": 0.001, "loss-burst": 3, "up-rate-trace": "rate.txt",
            "down-rate": "1G", "down-aqm": "pie:20ms", "cross": "5M:64KiB", "rate-layer": "wire",
            "jitter": "1ms:pareto:reorder", "reorder": "0.01:5ms", "corrupt": 1e-5,
            "corrupt-silent": "1e-6", "duplicate": "0.1%", "mark": 0.5, "outage": "1s+2s/10s,5s+1s",
            "ber": 1e-12, "police": "2G:1MiB", "slot": "1ms-3ms:32:64KiB", "down-queue": "1000p",
            "queue": "1MB", "mtu": 1500, "seed": 7}"#;
        let read: ReadFile = &|_| Ok(Box::new(&b"0 10M\n5s 20M\n"[..]));
        let options: LinkOptions = serde_json::from_str(text).unwrap();
        let plan = options.plan(read).unwrap();
        let document = serde_json::to_string(&plan).unwrap();
        let mut again: LinkPlan = serde_json::from_str(&document).unwrap();
        assert!(again.validate().unwrap_err().to_string().contains("is not loaded"));
        again.load(read).unwrap();
        assert_eq!(again, plan);
        let trace = plan.up.rate_trace.as_ref().and_then(|file| file.content().cloned()).unwrap();
        assert!(matches!(&*trace, RateSchedule::Steps(_)));
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<LinkOptions>(&text).unwrap(), options);
    }

    #[test]
    fn files_are_kept_by_name_in_documents() {
        let files = [("loss-trace", "loss.txt"), ("up-jitter", "file:jitter.txt:reorder")];
        let read: ReadFile =
            &|path| Ok(Box::new(if path == "loss.txt" { &b"01"[..] } else { b"1ms" }));
        let plan = options(&files).unwrap().plan(read).unwrap();
        let document = serde_json::to_string(&plan).unwrap();
        assert!(document.contains(r#""kind":"trace","file":"loss.txt","xxh3":"#), "{document}");
        let mut again: LinkPlan = serde_json::from_str(&document).unwrap();
        again.load(read).unwrap();
        assert_eq!(again, plan);
    }
}
