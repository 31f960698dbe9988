//! The thread with the runtime of the client of NATS. The other threads send it functions and wait for the results.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::error::QueueError;

/// Maximum functions that wait for the thread.
const MAX_WAITING: usize = 64;

/// Interval of checks for an interrupt during a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time for the last messages to the server when the queue is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The thread of the client.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    interrupted: Arc<AtomicBool>,
}

impl Worker {
    /// Starts the thread. A set `interrupted` ends every wait.
    pub(crate) fn start(interrupted: Arc<AtomicBool>) -> Result<Self, io::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (jobs, mut waiting) = mpsc::channel::<Job>(MAX_WAITING);
        let run = move || {
            runtime.block_on(async move {
                while let Some(job) = waiting.recv().await {
                    tokio::spawn(job());
                }
            });
            runtime.shutdown_timeout(CLOSE_TIMEOUT);
        };
        let thread = thread::Builder::new().name("queue".into()).spawn(run)?;
        Ok(Worker { jobs: Some(jobs), thread: Some(thread), interrupted })
    }

    /// Runs a function on the thread and waits for its result. After an interrupt, the result is dropped.
    pub(crate) fn call<T, F>(&self, job: impl FnOnce() -> F + Send + 'static) -> Result<T, QueueError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, QueueError>> + Send + 'static,
    {
        self.wait(job, || self.interrupted.load(Ordering::Relaxed), None)
    }

    /// Like [`Self::call`], also after an interrupt. Waits at most `patience`.
    pub(crate) fn call_at_end<T, F>(
        &self,
        patience: Duration,
        job: impl FnOnce() -> F + Send + 'static,
    ) -> Result<T, QueueError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, QueueError>> + Send + 'static,
    {
        self.wait(job, || false, Some(patience))
    }

    fn wait<T, F>(
        &self,
        job: impl FnOnce() -> F + Send + 'static,
        is_over: impl Fn() -> bool,
        patience: Option<Duration>,
    ) -> Result<T, QueueError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, QueueError>> + Send + 'static,
    {
        let (answer, result) = sync_channel(1);
        let run = move || -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(async move {
                // An interrupted caller no longer waits.
                let _ = answer.try_send(job().await);
            })
        };
        let jobs = self.jobs.as_ref().ok_or(QueueError::Interrupted)?;
        if let Err(TrySendError::Full(run) | TrySendError::Closed(run)) = jobs.try_send(Box::new(run)) {
            jobs.blocking_send(run).map_err(|_| QueueError::Interrupted)?;
        }
        let start = std::time::Instant::now();
        loop {
            match result.recv_timeout(POLL_INTERVAL) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => return Err(QueueError::Interrupted),
                Err(RecvTimeoutError::Timeout) if is_over() => return Err(QueueError::Interrupted),
                Err(RecvTimeoutError::Timeout) if patience.is_some_and(|patience| start.elapsed() > patience) => {
                    return Err(QueueError::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}
