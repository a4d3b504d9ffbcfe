//! The terminal of the display: its modes, its size and its keys.

use std::fs::File;
use std::io::{self, BufWriter};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::state::{WatchKey, WatchView};
use crate::output::raw_output;

/// The terminal on standard output, in the alternate screen. Dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct WatchTerminal {
    terminal: Terminal<CrosstermBackend<BufWriter<File>>>,
}

impl WatchTerminal {
    /// Switches the terminal to the display.
    ///
    /// # Errors
    /// Standard output is not a terminal, or does not take the sequences.
    pub(crate) fn open() -> io::Result<Self> {
        let mut output = BufWriter::new(raw_output()?);
        enable_raw_mode()?;
        let opened = execute!(output, EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(output)));
        if opened.is_err() {
            let _ = disable_raw_mode();
        }
        Ok(WatchTerminal { terminal: opened? })
    }

    /// Draws the view.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn draw(&mut self, view: &WatchView) -> io::Result<()> {
        self.terminal.draw(|frame| view.draw(frame)).map(|_| ())
    }

    /// Waits for a key or a change of the size for at most `limit`. Returns the key if the display knows
    /// it, and whether anything happened.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn wait(&mut self, limit: Duration) -> io::Result<(Option<WatchKey>, bool)> {
        match event::poll(limit) {
            Ok(false) => return Ok((None, false)),
            Ok(true) => {}
            // A signal ends the wait.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok((None, false)),
            Err(error) => return Err(error),
        }
        let Event::Key(key) = event::read()? else { return Ok((None, true)) };
        if key.kind == KeyEventKind::Release {
            return Ok((None, false));
        }
        Ok((meaning(key.code, key.modifiers), true))
    }
}

impl Drop for WatchTerminal {
    fn drop(&mut self) {
        let _ = execute!(self.terminal.backend_mut(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Returns the meaning of a key.
fn meaning(code: KeyCode, modifiers: KeyModifiers) -> Option<WatchKey> {
    Some(match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => WatchKey::Quit,
        KeyCode::Char('q') | KeyCode::Esc => WatchKey::Quit,
        KeyCode::Up | KeyCode::Char('k') => WatchKey::Up,
        KeyCode::Down | KeyCode::Char('j') => WatchKey::Down,
        KeyCode::Char('s') => WatchKey::Sort,
        KeyCode::Char('r') => WatchKey::Reverse,
        KeyCode::Tab | KeyCode::BackTab => WatchKey::OtherTable,
        KeyCode::Char('a') => WatchKey::All,
        KeyCode::Char(' ' | 'p') => WatchKey::Pause,
        KeyCode::Char('?' | 'h') => WatchKey::Help,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_meanings() {
        let plain = |code| meaning(code, KeyModifiers::NONE);
        assert_eq!(plain(KeyCode::Char('q')), Some(WatchKey::Quit));
        assert_eq!(meaning(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(WatchKey::Quit));
        assert_eq!(plain(KeyCode::Char('c')), None);
        assert_eq!(plain(KeyCode::Tab), Some(WatchKey::OtherTable));
    }
}
