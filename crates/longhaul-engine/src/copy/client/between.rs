//! A copy between two servers: the client asks the source to send to the sink.
//!
//! The client has an authenticated control channel with each server. It gives the source the
//! secret of its session with the sink, which permits only data connections of that session. The
//! source connects to the sink, so the data do not pass through the client. The control messages
//! do: the client sees the progress, and the copy ends when the client ends.

use std::path::{Path, PathBuf};

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{CopyResult, EndReport};
use longhaul_core::wire::RefusalKind;
use longhaul_core::wire::copy::{CopyReply, CopyRequest, Introduction};

use super::key::KeyMaker;
use super::relay::{Pumps, Relay, RelayedReports};
use super::retry::{Reconnect, persist};
use super::summary::{CopySessions, result};
use super::{REPLY_TIMEOUT, RemoteFiles, check_rereads};
use crate::copy::name_list::{send_names, sent_path};
use crate::copy::progress::{CopyProgress, CopyRun};
use crate::copy::verdict::TransferReports;
use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, ControlSender, DataDialer, Session};

/// The ends of a copy between two others.
pub struct ThirdPartyEnds<'a> {
    /// Opens a session with the source.
    pub source: &'a mut dyn FnMut() -> Result<Session>,
    /// The files at the source.
    pub files: RemoteFiles<'a>,
    /// The path at the sink.
    pub target: &'a Path,
}

/// Copies between `ends`; `line` connects to the sink. `notice` receives the reason if the data
/// have to go through this host.
///
/// # Errors
/// As for [`push`](super::push).
pub fn between(
    line: Reconnect<'_>,
    ends: ThirdPartyEnds<'_>,
    run: CopyRun<'_>,
    notice: &dyn Fn(&str),
) -> Result<CopyResult> {
    let CopyRun { options, progress, stop } = run;
    let ThirdPartyEnds { source, files, target } = ends;
    let mut sessions = CopySessions::begin(options, progress);
    let top = files.top();
    let wired: Vec<_> = files.paths.iter().map(|path| sent_path(path)).collect::<Result<_>>()?;
    let wired_target = sent_path(target)?;
    let secret = line.secret;
    let reports = persist(line, run, |sink| {
        let from = source()?;
        let key = KeyMaker::new(secret, "between").server(from.peer()).server(sink.peer());
        let key = key.files(&files).to(target);
        let (target, sent_options) = (wired_target.clone(), options.clone());
        let request = CopyRequest::Receive { key: key.clone(), target, top, options: sent_options };
        let sink = ask(sink, &request, None)?;
        check_rereads(sink.sender.peer(), sink.rereads, options)?;
        let request = |to| CopyRequest::Forward {
            paths: wired.clone(),
            asks: sink.wanted_first,
            listed: files.names.is_some(),
            key: Some(key.clone()),
            options: options.clone(),
            to,
        };
        let (from, is_direct) = SourceRequest { request: &request, names: files.names, notice }
            .make(from, &mut *source, &sink.dialer)?;
        let pumps =
            if is_direct { None } else { Some(Pumps::start(from.dialer, sink.dialer, options)?) };
        let relay = Relay::new(from.sender, sink.sender, options, progress);
        let relayed = relay.run(from.receiver, sink.receiver, pumps, stop);
        relayed.inspect_err(|_| sessions.lost(progress))
    })?;
    outcome(&sessions, reports, options, progress)
}

/// Returns the result of a copy whose reports have passed through the client.
fn outcome(
    sessions: &CopySessions,
    reports: RelayedReports,
    options: &CopyOptions,
    progress: &CopyProgress,
) -> Result<CopyResult> {
    let RelayedReports { sink, source, reports, .. } = reports;
    let Some(sink) = sink else { return Err(EngineError::Interrupted) };
    let mut summary = sessions.summarize(options, &sink, !reports.failures.is_empty(), &[]);
    let source = source.unwrap_or_default();
    summary.retransmits = Some(source.retransmits);
    summary.streams = source.path.streams;
    let reports = reports.with_not_kept(sink.not_kept);
    let sink = EndReport { end: sink.end, stages: sink.stages };
    let path = source.path;
    let source = EndReport { end: source.end, stages: source.stages };
    let transfer = TransferReports { source, sink, path };
    Ok(result(summary, transfer, &sessions.circumstances(progress), reports))
}

/// The request of a copy to its source.
struct SourceRequest<'a> {
    /// Returns the request with the introduction to the sink.
    request: &'a dyn Fn(Introduction) -> CopyRequest,
    names: Option<&'a [PathBuf]>,
    /// Receives the reason if the data have to go through this host.
    notice: &'a dyn Fn(&str),
}

impl SourceRequest<'_> {
    /// Makes the request over `session`, or over another one of `source` if the source cannot reach
    /// the sink of `dialer`. Also returns whether the source opens the data connections to the sink.
    fn make(
        &self,
        session: Session,
        source: &mut dyn FnMut() -> Result<Session>,
        dialer: &DataDialer,
    ) -> Result<(Accepted, bool)> {
        let lent = dialer.introduction();
        let is_direct = !lent.addresses.is_empty();
        match ask(session, &(self.request)(lent.clone()), self.names) {
            Ok(accepted) => Ok((accepted, is_direct)),
            Err(EngineError::Refused { kind: RefusalKind::Unreachable, reason, .. }) => {
                (self.notice)(&reason);
                let without = Introduction::new(&[], *lent.keying());
                Ok((ask(source()?, &(self.request)(without), self.names)?, false))
            }
            Err(error) => Err(error),
        }
    }
}

/// A session whose server has accepted the request.
struct Accepted {
    sender: ControlSender,
    receiver: ControlReceiver,
    dialer: DataDialer,
    /// True if the source waits for decisions of the sink.
    wanted_first: bool,
    /// True if the server can read files back.
    rereads: bool,
}

/// Makes a request of a server and waits for its answer.
fn ask(session: Session, request: &CopyRequest, names: Option<&[PathBuf]>) -> Result<Accepted> {
    let (sender, mut receiver, dialer) = session.welcomed()?.split();
    sender.send(request)?;
    if let Some(names) = names {
        send_names(&sender, names)?;
    }
    receiver.set_timeout(Some(REPLY_TIMEOUT))?;
    match receiver.receive()? {
        CopyReply::Ready { asks: wanted_first, rereads } => {
            Ok(Accepted { sender, receiver, dialer, wanted_first, rereads })
        }
        CopyReply::Refused { kind, reason } => {
            Err(EngineError::Refused { peer: receiver.peer().to_owned(), kind, reason })
        }
    }
}
