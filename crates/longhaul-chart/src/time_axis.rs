//! Ticks of a time axis at round local times.

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan, Zoned};

/// The distance between two ticks in local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Minutes(i64),
    Hours(i64),
    Days(i64),
    Weeks(i64),
    Months(i64),
    Years(i64),
}

const STEPS: [Step; 22] = [
    Step::Minutes(1),
    Step::Minutes(2),
    Step::Minutes(5),
    Step::Minutes(10),
    Step::Minutes(15),
    Step::Minutes(30),
    Step::Hours(1),
    Step::Hours(2),
    Step::Hours(3),
    Step::Hours(4),
    Step::Hours(6),
    Step::Hours(12),
    Step::Days(1),
    Step::Days(2),
    Step::Weeks(1),
    Step::Weeks(2),
    Step::Months(1),
    Step::Months(2),
    Step::Months(3),
    Step::Months(6),
    Step::Years(1),
    Step::Years(2),
];

impl Step {
    /// Returns the mean length in seconds.
    fn seconds(self) -> i64 {
        match self {
            Step::Minutes(count) => count * 60,
            Step::Hours(count) => count * 3600,
            Step::Days(count) => count * 86_400,
            Step::Weeks(count) => count * 7 * 86_400,
            Step::Months(count) => count * 2_629_746,
            Step::Years(count) => count * 31_556_952,
        }
    }

    fn span(self) -> Span {
        match self {
            Step::Minutes(count) => count.minutes(),
            Step::Hours(count) => count.hours(),
            Step::Days(count) => count.days(),
            Step::Weeks(count) => count.weeks(),
            Step::Months(count) => count.months(),
            Step::Years(count) => count.years(),
        }
    }

    /// Returns the last tick at or before `time`, or the start of its day.
    fn floor(self, time: DateTime) -> Option<DateTime> {
        let day = time.date();
        let first = match self {
            Step::Minutes(_) | Step::Hours(_) => day,
            Step::Days(count) => day.checked_sub((i64::from(day.day() - 1) % count).days()).ok()?,
            Step::Weeks(_) => {
                day.checked_sub(i64::from(day.weekday().since(Weekday::Monday)).days()).ok()?
            }
            Step::Months(count) => {
                let month = i64::from(day.month() - 1) / count * count + 1;
                Date::new(day.year(), i8::try_from(month).ok()?, 1).ok()?
            }
            Step::Years(_) => day.first_of_year(),
        };
        Some(first.to_datetime(Time::midnight()))
    }

    /// Returns the tick after `time`. Steps of several days restart on the first day of a month.
    fn next(self, time: DateTime) -> Result<DateTime, jiff::Error> {
        let next = time.checked_add(self.span())?;
        match self {
            Step::Days(_) if next.month() != time.month() => Ok(next.first_of_month()),
            _ => Ok(next),
        }
    }

    fn text(self, time: &Zoned) -> String {
        let format = match self {
            Step::Minutes(_) | Step::Hours(_) if time.hour() == 0 && time.minute() == 0 => "%a %-d",
            Step::Minutes(_) | Step::Hours(_) => "%H:%M",
            Step::Days(_) => "%a %-d",
            Step::Weeks(_) => "%-d %b",
            Step::Months(_) if time.month() > 1 => "%b",
            Step::Months(_) | Step::Years(_) => "%Y",
        };
        time.strftime(format).to_string()
    }
}

/// Returns at most `most` ticks with their texts between two Unix times in seconds. Ticks are at round
/// local times, also across a change of daylight saving time. No ticks are returned for an empty window
/// or for times that a calendar cannot express.
pub fn time_ticks((from, to): (i64, i64), zone: &TimeZone, most: usize) -> Vec<(i64, String)> {
    let window = to.saturating_sub(from);
    let fits = |step: &Step| window / step.seconds() < most as i64;
    let (Some(step), Ok(start)) = (STEPS.into_iter().find(fits), Timestamp::from_second(from))
    else {
        return Vec::new();
    };
    let Some(mut time) = step.floor(start.to_zoned(zone.clone()).datetime()) else {
        return Vec::new();
    };
    let mut found: Vec<(i64, String)> = Vec::new();
    // A day has at most 1500 minutes, so the first tick of a window is reached after that many steps.
    for _ in 0..1500 + most {
        // A local time that daylight saving time skips is moved behind the change.
        let Ok(zoned) = time.to_zoned(zone.clone()) else { break };
        let second = zoned.timestamp().as_second();
        if second > to || window <= 0 {
            break;
        }
        if second >= from && found.last().is_none_or(|(last, _)| *last < second) {
            found.push((second, step.text(&zoned)));
        }
        let Ok(next) = step.next(time) else { break };
        time = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(from: &str, hours: i64, zone: &str, most: usize) -> Vec<String> {
        let from: Timestamp = from.parse().unwrap();
        let from = from.as_second();
        let zone = TimeZone::get(zone).unwrap();
        time_ticks((from, from + hours * 3600), &zone, most)
            .into_iter()
            .map(|tick| tick.1)
            .collect()
    }

    #[test]
    fn ticks_are_at_round_local_times() {
        assert_eq!(
            texts("2026-11-22T20:10:00Z", 12, "UTC", 8),
            ["22:00", "Mon 23", "02:00", "04:00", "06:00", "08:00"]
        );
        assert_eq!(
            texts("2026-11-22T00:00:00Z", 24 * 8, "UTC", 10)[..3],
            ["Sun 22", "Mon 23", "Tue 24"]
        );
        assert_eq!(texts("2026-11-22T00:00:00Z", 24 * 33, "UTC", 8)[..2], ["23 Nov", "30 Nov"]);
        assert_eq!(texts("2025-11-22T00:00:00Z", 24 * 400, "UTC", 8)[..3], ["2026", "Mar", "May"]);
        assert!(texts("2026-11-22T00:00:00Z", 0, "UTC", 8).is_empty());
        assert!(time_ticks((i64::MIN, i64::MAX), &TimeZone::UTC, 8).is_empty());
    }

    #[test]
    fn daylight_saving_time_moves_no_later_tick() {
        // On 2026-10-25 at 03:00 clocks in Berlin went back to 02:00.
        let ticks = texts("2026-10-24T22:00:00Z", 26, "Europe/Berlin", 8);
        assert_eq!(ticks[0], "Sun 25");
        assert!(ticks.contains(&"Mon 26".to_owned()), "{ticks:?}");
        assert!(ticks[3..].contains(&"16:00".to_owned()), "{ticks:?}");
    }
}
