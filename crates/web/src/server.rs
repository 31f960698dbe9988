//! The server: it accepts connections, bounds them, and stops.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::connections::{Connections, Place};
use crate::error::WebError;
use crate::options::{Limits, MIN_TOKEN_LENGTH, MeshView, PageOptions};
use crate::routes::Site;
use crate::tls;

/// Maximum size of the header of a request, bytes.
const MAX_HEADER: usize = 16 << 10;
/// Threads that read the archive and write pages.
const READER_THREADS: usize = 4;
/// Pause after a failed accept, which fails for as long as the process has no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time for the last answers when the server stops, and for an answer that is under way at the end of its connection.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Answer to a client for whom there is no place.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 21\r\n\r\ntoo many connections\n";

/// A running page. It stops when this value is dropped.
#[derive(Debug)]
pub struct PageServer {
    address: SocketAddr,
    is_encrypted: bool,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PageServer {
    /// Listens on the address of the options and serves the page. Fails if the address is not loopback and there is neither
    /// a certificate nor the permission for HTTP.
    pub fn bind(options: PageOptions, mesh: Arc<dyn MeshView>) -> Result<Self, WebError> {
        if options.token.len() < MIN_TOKEN_LENGTH {
            return Err(WebError::ShortToken(options.token.len()));
        }
        if !options.address.ip().is_loopback() && options.certificate.is_none() && !options.insecure {
            return Err(WebError::Unencrypted(options.address));
        }
        let tls = options.certificate.as_ref().map(tls::acceptor).transpose()?;
        let is_encrypted = tls.is_some();
        let failed = |source| WebError::Bind { address: options.address, source };
        let listener = TcpListener::bind(options.address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(READER_THREADS)
            .build()
            .map_err(WebError::Threads)?;
        let limits = options.limits;
        let site = Site::new(&options, mesh);
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let connections = Connections::new(limits.connections);
            let refusals = Arc::new(Semaphore::new(limits.connections));
            let server = Server { site, tls, limits, connections, refusals };
            serve(&runtime, server, listener, stopped);
            runtime.shutdown_timeout(CLOSE_TIME);
        };
        let thread = thread::Builder::new().name("page".into()).spawn(run).map_err(WebError::Threads)?;
        Ok(PageServer { address, is_encrypted, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the first page for a browser.
    pub fn url(&self) -> String {
        format!("{}://{}/", if self.is_encrypted { "https" } else { "http" }, self.address)
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed, and the page is gone in either case.
            let _ = thread.join();
        }
    }
}

struct Server {
    site: Arc<Site>,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    connections: Arc<Connections>,
    /// Clients that are refused at the same time. Others are closed without an answer.
    refusals: Arc<Semaphore>,
}

/// Accepts connections until `stopped`.
fn serve(runtime: &Runtime, server: Server, listener: TcpListener, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async move {
        // The listener is valid: it was bound before.
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        let accept = async {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => server.start(stream),
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                }
            }
        };
        tokio::select! {
            () = accept => {}
            _ = stopped => {}
        }
    });
}

impl Server {
    /// Starts the task of a connection, or refuses the connection.
    fn start(&self, mut stream: TcpStream) {
        // Answers are complete buffers, so delayed segments only add a round trip.
        let _ = stream.set_nodelay(true);
        let limits = self.limits;
        let Some(place) = self.connections.enter() else {
            if let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() {
                tokio::spawn(async move {
                    let _ = timeout(CLOSE_TIME, refuse(&mut stream)).await;
                    drop(permit);
                });
            }
            return;
        };
        let (site, tls, number) = (Arc::clone(&self.site), self.tls.clone(), place.number());
        let task = tokio::spawn(async move {
            match tls {
                None => serve_connection(stream, &site, place, limits).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = timeout(limits.header_time, tls.accept(stream)).await {
                        serve_connection(stream, &site, place, limits).await;
                    }
                }
            }
        });
        self.connections.set_task(number, task.abort_handle());
    }
}

/// Answers without a place. Reads the request to its end: closing a socket with unread bytes would discard the answer.
async fn refuse(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(BUSY).await?;
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Answers the requests of one connection.
async fn serve_connection<S>(stream: S, site: &Arc<Site>, place: Place, limits: Limits)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let is_authenticated = place.is_authenticated();
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (site, is_authenticated): (_, Arc<AtomicBool>) = (Arc::clone(site), Arc::clone(&is_authenticated));
        async move { Ok::<_, Infallible>(site.answer(request, &is_authenticated).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(MAX_HEADER)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    if timeout(limits.connection_time, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(CLOSE_TIME, connection).await;
    }
    drop(place);
}
