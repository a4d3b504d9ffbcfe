//! Remedies for errors of the engine, in the words of the command line.

use std::error::Error;
use std::fmt;

use longhaul_engine::{EngineError, TurnedAway};

/// An error with a remedy, which is printed before its causes.
#[derive(Debug)]
struct Advised {
    error: EngineError,
    remedy: &'static str,
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.error, self.remedy)
    }
}

impl Error for Advised {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Returns `error` with its remedy, if there is one.
pub(crate) fn advised(error: EngineError) -> anyhow::Error {
    match remedy(&error) {
        Some(remedy) => Advised { error, remedy }.into(),
        None => error.into(),
    }
}

fn remedy(error: &EngineError) -> Option<&'static str> {
    Some(match error {
        EngineError::Connect { .. } => "is 'longhaul serve' running there?",
        EngineError::Handshake { .. } => "is it 'longhaul serve'?",
        EngineError::KeyUnknown { .. } => {
            "if 'longhaul key' prints that key there, use --accept-new once to record it"
        }
        EngineError::NoNextKey(_) => "make it with 'longhaul key --rotate'",
        EngineError::NoCpu { .. } => {
            "choose another one (-A); 'taskset -p $$' prints those allowed"
        }
        EngineError::Stalled { .. } => "--give-up sets another time",
        EngineError::NoSpace { keeps, .. } if keeps.get() > 0 => "--min-free sets the reserve",
        EngineError::TurnedAway { reason: TurnedAway::Crowded, .. } => {
            "'longhaul serve --max-startups' there sets the limit"
        }
        EngineError::TurnedAway { reason: TurnedAway::Penalty, .. } => {
            "'longhaul serve --no-penalties' there turns this off"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_stands_between_an_error_and_its_cause() {
        let source = std::io::ErrorKind::ConnectionRefused.into();
        let error = EngineError::Connect { address: "far:5210".to_owned(), source };
        assert_eq!(
            format!("{:#}", advised(error)),
            "cannot connect to far:5210; is 'longhaul serve' running there?: connection refused"
        );
        assert_eq!(format!("{:#}", advised(EngineError::Interrupted)), "interrupted");
    }
}
