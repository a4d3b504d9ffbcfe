//! Threads that run transactions from a bounded queue, each on its own connection.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use tokio::sync::oneshot;

use super::{Sql, StoreError};

/// The largest number of waiting transactions; more are refused.
const QUEUE: usize = 4096;

/// The number of times that a transaction is repeated after a deadlock.
const REPEATS: usize = 5;

/// A connection with transactions.
pub(super) trait Link {
    fn begin(&mut self) -> Result<(), StoreError>;
    fn commit(&mut self) -> Result<(), StoreError>;
    fn rollback(&mut self);
    fn savepoint(&mut self) -> Result<(), StoreError>;
    fn release(&mut self, keep: bool) -> Result<(), StoreError>;
    /// True if the connection is lost.
    fn is_broken(&self) -> bool;
    fn sql(&mut self) -> &mut dyn Sql;
}

/// The statements of a transaction. They can run more than once.
pub(super) type Work = Box<dyn FnMut(&mut dyn Sql) -> Result<(), StoreError> + Send>;

struct Job {
    work: Work,
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// A queue of transactions and the threads that run them, which end when the queue is dropped.
#[derive(Clone)]
pub(super) struct Workers {
    jobs: Sender<Job>,
}

impl Workers {
    /// Starts `threads` threads. Each opens its connection with `open` when it is needed, and
    /// commits up to `together` waiting transactions at once.
    pub(super) fn start<L: Link>(
        threads: usize,
        together: usize,
        open: impl Fn() -> Result<L, StoreError> + Clone + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (jobs, waiting) = bounded::<Job>(QUEUE);
        for _ in 0..threads {
            let (waiting, open) = (waiting.clone(), open.clone());
            std::thread::Builder::new()
                .name("store".to_owned())
                .spawn(move || serve(&waiting, together, &open))
                .map_err(StoreError::Thread)?;
        }
        Ok(Workers { jobs })
    }

    /// Returns the number of transactions that no thread has taken.
    pub(super) fn waiting(&self) -> usize {
        self.jobs.len()
    }

    /// Queues a transaction and waits until it is committed or refused.
    pub(super) async fn run(&self, work: Work) -> Result<(), StoreError> {
        let (done, outcome) = oneshot::channel();
        self.jobs.try_send(Job { work, done }).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Busy,
            TrySendError::Disconnected(_) => StoreError::Closed,
        })?;
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }
}

fn serve<L: Link>(
    waiting: &Receiver<Job>,
    together: usize,
    open: &impl Fn() -> Result<L, StoreError>,
) {
    let mut link: Option<L> = None;
    while let Ok(first) = waiting.recv() {
        let mut jobs = vec![first];
        jobs.extend(waiting.try_iter().take(together.saturating_sub(1)));
        let connected = match link.take() {
            Some(link) if !link.is_broken() => Ok(link),
            _ => open(),
        };
        match connected {
            Ok(mut connected) => {
                let work = AssertUnwindSafe(|| match <[Job; 1]>::try_from(jobs) {
                    Ok([job]) => run_one(&mut connected, job),
                    Err(jobs) => run_together(&mut connected, jobs),
                });
                // After a panic the thread continues with another connection.
                link = catch_unwind(work).is_ok().then_some(connected);
            }
            Err(error) => {
                let mut error = Some(error);
                for job in jobs {
                    let _ = job.done.send(Err(error.take().unwrap_or(StoreError::Busy)));
                }
            }
        }
    }
}

fn run_one(link: &mut impl Link, mut job: Job) {
    let mut outcome = attempt(link, &mut job.work);
    for _ in 0..REPEATS {
        if !outcome.as_ref().is_err_and(StoreError::is_transient) {
            break;
        }
        outcome = attempt(link, &mut job.work);
    }
    // The client is gone if its request was cancelled.
    let _ = job.done.send(outcome);
}

fn attempt(link: &mut impl Link, work: &mut Work) -> Result<(), StoreError> {
    link.begin()?;
    let outcome = work(link.sql()).and_then(|()| link.commit());
    if outcome.is_err() {
        link.rollback();
    }
    outcome
}

/// Runs transactions that wait at the same time with one commit and one sync of the disk. A
/// refused transaction is undone to its savepoint.
fn run_together(link: &mut impl Link, mut jobs: Vec<Job>) {
    let outcomes = link.begin().and_then(|()| {
        let each = jobs.iter_mut().map(|job| {
            link.savepoint()?;
            let outcome = (job.work)(link.sql());
            link.release(outcome.is_ok())?;
            Ok(outcome)
        });
        let outcomes = each.collect::<Result<Vec<_>, StoreError>>()?;
        link.commit()?;
        Ok(outcomes)
    });
    match outcomes {
        Ok(outcomes) => {
            for (job, outcome) in jobs.into_iter().zip(outcomes) {
                let _ = job.done.send(outcome);
            }
        }
        Err(_) => {
            // The group failed, for example because the disk is full; a small one may succeed.
            link.rollback();
            jobs.into_iter().for_each(|job| run_one(link, job));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::store::{Store, StoreError};

    #[tokio::test]
    async fn the_thread_goes_on_after_a_panic_in_a_transaction() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::sqlite(&dir.path().join("hub.db")).await.unwrap();
        let failed = store.write(|_| -> Result<(), StoreError> { panic!("on purpose") }).await;
        assert!(matches!(failed, Err(StoreError::Closed)), "{failed:?}");
        store.write(|sql| sql.query("SELECT 1", &[]).map(drop)).await.unwrap();
    }
}
