//! The verb `serve`: a server for tests and copies.
//!
//! [`serve()`] serves on its own thread and returns when the server listens. The [`RunningServer`] stops when it is
//! dropped. A program that serves on its main thread calls the steps, as `lfn serve` does: [`listen`], then
//! [`ListeningServer::confine`] and [`ListeningServer::run`].

mod bind;
mod error;
mod identity;
mod iperf3;
mod listening;
mod log_event;
mod options;
mod ready;
mod stamp;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use lfn_session::server::ServerEvent;

use crate::documents::ServeDocument;
pub use bind::root_directory;
pub use error::{Iperf3File, ServeStartError};
pub use identity::{state_directory, token_file};
pub use lfn_session::TicketHost;
pub use listening::{ListeningServer, listen};
pub use log_event::{LOG_TARGET, log_event};
pub use options::{Iperf3ServerOptions, Iperf3Users, KeyStorage, ServeOptions, StampReflectorOptions};
pub use ready::ReadyServer;

/// A server on its own threads. Stops when it is dropped.
#[derive(Debug)]
pub struct RunningServer {
    document: ServeDocument,
    stop: Arc<AtomicBool>,
    immediate: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl RunningServer {
    /// Returns the addresses and the ticket of the server.
    pub fn document(&self) -> &ServeDocument {
        &self.document
    }

    /// Stops the server. Waits for running sessions, up to the time of [`ServeOptions::drain`].
    /// An error means that a part of the server could not start.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        ended.unwrap_or(Ok(Ok(()))).unwrap_or_else(|_| Err(io::Error::other("the server panicked")))
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.immediate.store(true, Ordering::Relaxed);
        // stop() returns the error.
        let _ = self.end();
    }
}

/// Starts a server, and returns when the server listens. `on_event` is called on the threads of the server. With
/// [`log_event()`], the events become events of `tracing`. The sandbox holds for these threads, not for the caller.
pub fn serve(
    options: &ServeOptions,
    on_event: impl Fn(&ServerEvent<'_>) + Send + Sync + 'static,
) -> Result<RunningServer, ServeStartError> {
    let server = listen(options, on_event)?;
    let document = server.ready().document();
    let (stop, immediate) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (sender, started) = mpsc::channel();
    let (stop_thread, immediate_thread) = (stop.clone(), immediate.clone());
    let thread = thread::Builder::new().name("serve".into()).spawn(move || {
        let confined = server.confine();
        let is_confined = confined.is_ok();
        // The caller waits for this message.
        let _ = sender.send(confined);
        if is_confined { server.run(&stop_thread, &immediate_thread) } else { Ok(()) }
    })?;
    started.recv().unwrap_or(Err(ServeStartError::NoAddress))?;
    Ok(RunningServer { document, stop, immediate, thread: Some(thread) })
}
