//! Lists that a document may also write as a single element: `tool = "scp"`.

use serde::{Deserialize, Deserializer};

use crate::plan::link::Scalar;

#[derive(Deserialize)]
#[serde(untagged, expecting = "a value of the kind that belongs here, or a list of such")]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// Deserializes a list, for `#[serde(deserialize_with = "list::of")]`.
pub(super) fn of<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    Ok(match OneOrMany::deserialize(d)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

/// Deserializes a list of texts, in which numbers are accepted too.
pub(super) fn of_scalars<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    Ok(of::<Scalar, D>(d)?.into_iter().map(Scalar::text).collect())
}
