//! The occupied times of resources, and the earliest free time of several.

/// The occupied half-open intervals of each resource, in ms, sorted and disjoint unless the caller
/// occupies a resource twice.
#[derive(Debug, Clone)]
pub(super) struct Book(Vec<Vec<(i64, i64)>>);

impl Book {
    pub(super) fn new(resources: usize) -> Self {
        Book(vec![Vec::new(); resources])
    }

    /// Occupies `resource` from `start` to `end`.
    pub(super) fn occupy(&mut self, resource: usize, start: i64, end: i64) {
        let intervals = &mut self.0[resource];
        let at = intervals.partition_point(|interval| *interval < (start, end));
        intervals.insert(at, (start, end));
    }

    /// Returns the earliest start from `ready` on at which all `resources` are free for `length`.
    pub(super) fn earliest(&self, resources: &[usize], ready: i64, length: i64) -> i64 {
        let mut start = ready;
        loop {
            let before = start;
            for resource in resources {
                start = earliest_of(&self.0[*resource], start, length);
            }
            if start == before {
                return start;
            }
        }
    }
}

fn earliest_of(intervals: &[(i64, i64)], ready: i64, length: i64) -> i64 {
    let mut start = ready;
    for (from, to) in intervals {
        if *to > start {
            if *from >= start + length {
                break;
            }
            start = *to;
        }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_fits_all_resources_is_found() {
        let mut book = Book::new(2);
        book.occupy(0, 10, 20);
        book.occupy(0, 0, 5);
        book.occupy(1, 24, 30);
        assert_eq!(book.earliest(&[0], 0, 5), 5);
        assert_eq!(book.earliest(&[0], 0, 6), 20);
        assert_eq!(book.earliest(&[0, 1], 6, 5), 30);
        assert_eq!(book.earliest(&[0, 1], 6, 4), 6);
        assert_eq!(book.earliest(&[], 7, 100), 7);
    }
}
