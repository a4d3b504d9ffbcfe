//! Signatures by an ssh-agent, which keeps the private key (RFC-to-be draft-ietf-sshm-ssh-agent).
//!
//! Ed25519 keys only. A client with `ssh-add -c` keys may be asked by its agent at each session.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::public_key::PublicKey;

const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGNATURE: u8 = 14;
const ALGORITHM: &[u8] = b"ssh-ed25519";
/// The longest message, as in OpenSSH (`AGENT_MAX_LEN`).
const MESSAGE_LIMIT: usize = 256 << 10;
/// The wait for an answer, for which the agent may ask its user.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// An agent that listens on a socket.
#[derive(Debug, Clone)]
pub(super) struct Agent(PathBuf);

impl Agent {
    /// Returns the agent that `SSH_AUTH_SOCK` names.
    pub(super) fn of_user() -> Option<Self> {
        let path = std::env::var_os("SSH_AUTH_SOCK").filter(|path| !path.is_empty())?;
        Some(Agent(path.into()))
    }

    /// Returns the agent that listens at `path`.
    #[cfg(test)]
    pub(super) fn at(path: impl Into<PathBuf>) -> Self {
        Agent(path.into())
    }

    /// Returns whether the agent has the private half of `key`.
    pub(super) fn holds(&self, key: PublicKey) -> io::Result<bool> {
        let answer = self.ask(REQUEST_IDENTITIES, &[], IDENTITIES)?;
        let mut fields = Fields(&answer);
        for _ in 0..fields.number()? {
            let (blob, _comment) = (fields.string()?, fields.string()?);
            if blob == encode_key(key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the signature of `message` by `key`.
    pub(super) fn sign(&self, key: PublicKey, message: &[u8]) -> io::Result<[u8; 64]> {
        let mut request = Vec::new();
        put_string(&mut request, &encode_key(key));
        put_string(&mut request, message);
        request.extend([0; 4]);
        let answer = self.ask(SIGN_REQUEST, &request, SIGNATURE)?;
        let blob = Fields(&answer).string()?;
        let mut fields = Fields(blob);
        let (algorithm, signature) = (fields.string()?, fields.string()?);
        match (algorithm == ALGORITHM, signature.try_into()) {
            (true, Ok(signature)) => Ok(signature),
            _ => Err(nonsense()),
        }
    }

    /// Sends a message and returns the contents of the answer, which must be of type `wanted`.
    fn ask(&self, kind: u8, contents: &[u8], wanted: u8) -> io::Result<Vec<u8>> {
        let mut socket = UnixStream::connect(&self.0)?;
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        socket.set_write_timeout(Some(ANSWER_LIMIT))?;
        let mut message = Vec::with_capacity(contents.len() + 5);
        put_string(&mut message, &[&[kind], contents].concat());
        socket.write_all(&message)?;
        let mut length = [0; 4];
        socket.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > MESSAGE_LIMIT {
            return Err(nonsense());
        }
        let mut answer = vec![0; length];
        socket.read_exact(&mut answer)?;
        match answer.remove(0) {
            got if got == wanted => Ok(answer),
            _ => Err(io::Error::other("the ssh-agent refused to sign with this key")),
        }
    }
}

/// Returns a key in the wire format of ssh.
fn encode_key(key: PublicKey) -> Vec<u8> {
    let mut blob = Vec::new();
    put_string(&mut blob, ALGORITHM);
    put_string(&mut blob, key.bytes());
    blob
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the ssh-agent's answer cannot be read")
}

/// The unread fields of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> io::Result<u32> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(nonsense)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*number))
    }

    fn string(&mut self) -> io::Result<&'a [u8]> {
        let length = self.number()? as usize;
        let (string, rest) = self.0.split_at_checked(length).ok_or_else(nonsense)?;
        self.0 = rest;
        Ok(string)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::session::Identity;

    /// Returns an agent that sends one answer.
    fn answer(answer: Vec<u8>) -> (tempfile::TempDir, Agent) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.read(&mut [0; 1024]);
            let _ = socket.write_all(&answer);
        });
        (dir, Agent::at(path))
    }

    #[test]
    fn a_malformed_answer_of_an_agent_is_an_error() {
        let key = Identity::generate().public();
        let mut list = vec![0, 0, 0, 9, IDENTITIES, 0, 0, 0, 200, 0xff, 0xff, 0xff, 0xff];
        for bytes in [
            vec![],
            vec![0, 0, 0, 0],
            vec![0xff, 0xff, 0xff, 0xff],
            vec![0, 0, 0, 1, 5],
            std::mem::take(&mut list),
        ] {
            let (_dir, agent) = answer(bytes.clone());
            assert!(agent.holds(key).is_err(), "{bytes:?}");
        }
        let (_dir, agent) = answer(vec![0, 0, 0, 9, SIGNATURE, 0, 0, 0, 4, 0, 0, 0, 0]);
        assert!(agent.sign(key, b"text").is_err());
    }
}
