//! A client of SMTP (RFC 5321) that submits one message per connection, with STARTTLS (RFC 3207)
//! and AUTH (RFC 4954).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::ClientConfig;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::DeliveryError;
use crate::trust::{Wire, secured};

/// The maximum number of bytes of a line of a reply; RFC 5321 permits 512.
const LINE_BYTES: u64 = 2048;
/// The maximum number of lines of a reply.
const REPLY_LINES: usize = 100;

/// The protection of a connection to a mail server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailSecurity {
    /// No encryption: `smtp://`.
    None,
    /// TLS after STARTTLS, which the server must offer: `smtp+starttls://`.
    StartTls,
    /// TLS from the start: `smtps://`.
    Tls,
}

/// A mail server that accepts the messages of the hub.
#[derive(Clone, PartialEq, Eq)]
pub struct MailServer {
    host: String,
    port: u16,
    security: MailSecurity,
    user: Option<String>,
    password: Option<String>,
}

impl fmt::Debug for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MailServer({}:{})", self.host, self.port)
    }
}

impl MailServer {
    /// Returns the server of a URL: `smtps://[USER@]HOST[:PORT]`, `smtp+starttls://…` or
    /// `smtp://…`. The ports are by default 465, 587 and 25. `None` if the URL is malformed.
    pub fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (security, port) = match scheme {
            "smtps" => (MailSecurity::Tls, 465),
            "smtp+starttls" => (MailSecurity::StartTls, 587),
            "smtp" => (MailSecurity::None, 25),
            _ => return None,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // A user name can be an email address.
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let place: axum::http::uri::Authority = place.parse().ok()?;
        let port = match place.as_str().rsplit_once("]").map_or(place.as_str(), |two| two.1) {
            text if text.contains(':') => place.port_u16()?,
            _ => port,
        };
        let host = place.host().trim_matches(['[', ']']).to_owned();
        let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
        let fits = plain(&host) && user.is_none_or(plain) && port != 0;
        let user = user.map(str::to_owned);
        fits.then_some(MailServer { host, port, security, user, password: None })
    }

    /// Sets the password of the user of the URL.
    #[must_use]
    pub fn with_password(self, password: String) -> Self {
        MailServer { password: Some(password), ..self }
    }

    /// Returns the protection of connections.
    pub fn security(&self) -> MailSecurity {
        self.security
    }

    /// Returns whether the URL has a user.
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// Submits a message, whose lines end with CR LF, from one address to another. The caller
    /// limits the time.
    pub(super) async fn submit(
        &self,
        tls: &Arc<ClientConfig>,
        (from, to): (&str, &str),
        message: &str,
    ) -> Result<(), DeliveryError> {
        let mut session = self.open(tls).await?;
        session.command(&format!("MAIL FROM:<{from}>"), 250).await?;
        session.command(&format!("RCPT TO:<{to}>"), 250).await?;
        session.command("DATA", 354).await?;
        // A line with a single dot ends the message, so a dot at the start of a line is doubled.
        let stuffed = message.replace("\r\n.", "\r\n..");
        session.command(&format!("{stuffed}\r\n."), 250).await?;
        // The message is accepted, whatever follows.
        let _ = session.command("QUIT", 221).await;
        Ok(())
    }

    /// Connects, encrypts and authenticates.
    async fn open(&self, tls: &Arc<ClientConfig>) -> Result<MailSession, DeliveryError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(DeliveryError::for_now)?;
        let stream: Box<dyn Wire> = match self.security {
            MailSecurity::Tls => {
                secured(stream, &self.host, tls).await.map_err(DeliveryError::for_now)?
            }
            _ => Box::new(stream),
        };
        let mut session = MailSession { stream: BufReader::new(stream) };
        session.reply(220).await?;
        let mut offers = session.hello().await?;
        if self.security == MailSecurity::StartTls {
            session.command("STARTTLS", 220).await?;
            if !session.stream.buffer().is_empty() {
                // An attacker on the path could have added commands before the encryption.
                return Err(DeliveryError::for_now("the server sent data before TLS"));
            }
            let plain = session.stream.into_inner();
            let stream = secured(plain, &self.host, tls).await.map_err(DeliveryError::for_now)?;
            session = MailSession { stream: BufReader::new(stream) };
            offers = session.hello().await?;
        }
        if let (Some(user), Some(password)) = (&self.user, &self.password) {
            session.log_in(&offers, user, password).await?;
        }
        Ok(session)
    }
}

/// A connection to a mail server.
struct MailSession {
    stream: BufReader<Box<dyn Wire>>,
}

impl MailSession {
    /// Greets the server, and returns its extensions.
    async fn hello(&mut self) -> Result<Vec<String>, DeliveryError> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        let host = if !host.is_empty() && host.chars().all(plain) { &host } else { "localhost" };
        self.command(&format!("EHLO {host}"), 250).await
    }

    async fn log_in(
        &mut self,
        offers: &[String],
        user: &str,
        password: &str,
    ) -> Result<(), DeliveryError> {
        let offered = |mechanism: &str| {
            offers.iter().any(|line| {
                let mut words = line.split([' ', '=']);
                words.next().is_some_and(|word| word.eq_ignore_ascii_case("AUTH"))
                    && words.any(|word| word.eq_ignore_ascii_case(mechanism))
            })
        };
        if offered("PLAIN") {
            let text = STANDARD.encode(format!("\0{user}\0{password}"));
            self.command(&format!("AUTH PLAIN {text}"), 235).await?;
        } else if offered("LOGIN") {
            self.command("AUTH LOGIN", 334).await?;
            self.command(&STANDARD.encode(user), 334).await?;
            self.command(&STANDARD.encode(password), 235).await?;
        } else {
            return Err(DeliveryError::for_now("the mail server offers no login by password"));
        }
        Ok(())
    }

    /// Sends a command, and returns the lines of the reply, which must have the code `expected`.
    async fn command(&mut self, text: &str, expected: u16) -> Result<Vec<String>, DeliveryError> {
        let line = format!("{text}\r\n");
        self.stream.write_all(line.as_bytes()).await.map_err(DeliveryError::for_now)?;
        self.stream.flush().await.map_err(DeliveryError::for_now)?;
        self.reply(expected).await
    }

    async fn reply(&mut self, expected: u16) -> Result<Vec<String>, DeliveryError> {
        let malformed = || DeliveryError::for_now("the mail server sent a malformed reply");
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            let mut part = (&mut self.stream).take(LINE_BYTES);
            part.read_until(b'\n', &mut line).await.map_err(DeliveryError::for_now)?;
            let line = String::from_utf8_lossy(&line);
            let Some(line) = line.strip_suffix('\n') else { return Err(malformed()) };
            let line = line.trim_end_matches('\r');
            let (code, rest) = line.split_at_checked(3).ok_or_else(malformed)?;
            let code: u16 = code.parse().map_err(|_| malformed())?;
            lines.push(rest.get(1..).unwrap_or_default().to_owned());
            if rest.starts_with('-') {
                if lines.len() >= REPLY_LINES {
                    return Err(malformed());
                }
                continue;
            }
            if code == expected || (code == 251 && expected == 250) {
                return Ok(lines);
            }
            let text: String = lines.join(" ").chars().take(200).collect();
            let reason = format!("the mail server answered {code} {text}");
            return Err(DeliveryError { permanent: (500..600).contains(&code), reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_a_scheme_and_a_host() {
        let server = MailServer::parse("smtps://hub@example.net@mail.example.net").unwrap();
        assert_eq!((server.host.as_str(), server.port), ("mail.example.net", 465));
        assert_eq!(server.user.as_deref(), Some("hub@example.net"));
        let server = MailServer::parse("smtp+starttls://[::1]:2525").unwrap();
        assert_eq!((server.host.as_str(), server.port), ("::1", 2525));
        assert_eq!(server.security(), MailSecurity::StartTls);
        assert_eq!(MailServer::parse("smtp://[::1]").unwrap().port, 25);
        for bad in [
            "mail.example.net",
            "http://mail",
            "smtp://",
            "smtp://a b",
            "smtp://h:0",
            "smtp://h:x",
            "smtps://@h",
        ] {
            assert!(MailServer::parse(bad).is_none(), "{bad}");
        }
    }
}
