//! The words for the lines of `authorized_keys`.

use longhaul_engine::session::{IgnoredLines, OptionFault};

/// Returns the fault of an option of a key, and the remedy.
pub(super) fn option_words(option: &str, fault: OptionFault) -> String {
    match fault {
        OptionFault::Unknown if option.is_empty() => {
            "one of the options is empty; remove the comma at the start or end of the options, or \
             one of two adjacent commas"
                .to_owned()
        }
        OptionFault::Unknown => {
            format!("unknown option '{option}'; 'longhaul serve --help' lists the options of keys")
        }
        OptionFault::Value => {
            let name = option.split_once('=').map_or(option, |(name, _)| name);
            format!("invalid option '{option}'; the value must be {}", expected(name))
        }
        OptionFault::Repeated => format!("'{option}' repeats an option; remove one of them"),
        OptionFault::Conflict => {
            "read-only and write-only together permit nothing; remove one of them".to_owned()
        }
        OptionFault::Unterminated => format!("the value of '{option}' has no closing quote"),
        OptionFault::NoRoot => format!("'{option}' needs root=DIR in the same line"),
        OptionFault::Space => format!(
            "'{option}' has a space; separate options by commas only, and put a value with a \
             space in double quotes"
        ),
    }
}

/// Returns the form of the value of an option.
fn expected(name: &str) -> &'static str {
    match name {
        "expiry-time" => {
            "YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, with a final Z if the time is UTC"
        }
        "from" => {
            "addresses and networks separated by commas, in double quotes, such as \
             \"192.0.2.0/24,!192.0.2.9\""
        }
        "max-rate" => "a rate of 10M (10 Mb/s) or more",
        "max-sessions" => "a number above zero",
        "quota" => "a size above zero, such as 500G",
        _ => "an absolute path",
    }
}

/// Returns the warning about lines without a valid key; `None` if there are none.
pub(crate) fn ignored_lines(ignored: &IgnoredLines) -> Option<String> {
    let numbers: Vec<String> = ignored.first.iter().map(usize::to_string).collect();
    let more = ignored.count.saturating_sub(numbers.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let lines = if ignored.count == 1 { "line" } else { "lines" };
    let has = if ignored.count == 1 { "has" } else { "have" };
    (ignored.count > 0).then(|| {
        format!(
            "{lines} {}{more} of authorized_keys {has} no valid key of longhaul and grant nothing; \
             a line is the output of 'longhaul key', perhaps after options",
            numbers.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_the_expected_value() {
        let words = |option| option_words(option, OptionFault::Value);
        assert!(words("expiry-time=2027").contains("YYYYMMDD"));
        assert!(words("max-rate=5M").contains("10M"));
        assert!(words("root=a").ends_with("an absolute path"));
    }

    #[test]
    fn an_empty_option_names_the_commas_around_it() {
        let words = option_words("", OptionFault::Unknown);
        assert!(words.starts_with("one of the options is empty; remove the comma"), "{words}");
    }

    #[test]
    fn ignored_lines_are_counted() {
        let words =
            |first: &[usize], count| ignored_lines(&IgnoredLines { first: first.to_vec(), count });
        assert_eq!(words(&[], 0), None);
        assert!(words(&[3], 1).unwrap().starts_with("line 3 of authorized_keys has no"));
        let many = words(&[1, 2, 3, 4, 5, 6, 7, 8], 20).unwrap();
        assert!(many.starts_with("lines 1, 2, 3, 4, 5, 6, 7, 8 and 12 more of"), "{many}");
    }
}
