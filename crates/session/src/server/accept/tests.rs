use std::cell::Cell;
use std::io::{PipeWriter, Read, Write, pipe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use super::*;
use crate::limits::connection_table::ConnectionLimits;
use crate::transport::Stream;
use crate::transport::tcp::{DEFAULT_BACKLOG, TcpSocket};

/// Time-out of a test that fails.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Listener that fails when the server has a shortage.
struct TestListener {
    listener: Listener,
    server: Arc<Echo>,
}

impl AsFd for TestListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Listen for TestListener {
    type Connection = TcpConnection;

    fn accept(&self) -> io::Result<(TcpConnection, SocketAddr)> {
        if self.server.has_shortage.swap(false, Ordering::Relaxed) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        self.listener.accept()
    }

    fn handle(connection: &TcpConnection) -> &Arc<dyn Handle> {
        connection.handle()
    }
}

/// Server that returns one byte of each client. It panics at a `p` and refuses an `r`.
#[derive(Default)]
struct Echo {
    /// The next accept(2) fails.
    has_shortage: AtomicBool,
    denies_all: AtomicBool,
    events: Mutex<Vec<String>>,
    intervals: AtomicUsize,
    /// Calls of `on_full` and `on_shortage`.
    evictions: AtomicUsize,
}

impl ConnectionServer for Echo {
    type Listener = TestListener;

    fn serve(self: Arc<Self>, accepted: AcceptedConnection<TcpConnection>) -> Result<(), RefusedConnection> {
        let mut socket = accepted.connection.into_socket().unwrap();
        let mut byte = [0];
        socket.read_exact(&mut byte).map_err(|_| refused("silent"))?;
        match byte[0] {
            b'p' => panic!("as a test"),
            b'r' => Err(refused("an r")),
            _ => socket.write_all(&byte).map_err(|_| refused("gone")),
        }
    }

    fn permits(&self, _connection: &TcpConnection, _peer: SocketAddr) -> bool {
        !self.denies_all.load(Ordering::Relaxed)
    }

    fn log(&self, event: ServerEvent<'_>) {
        let text = match event {
            ServerEvent::Refused(_, reason, text) => format!("{}: {text}", reason.name()),
            ServerEvent::AcceptFailed(error) => format!("accept: {:?}", error.raw_os_error()),
            other => format!("{other:?}"),
        };
        self.events.lock().push(text);
    }

    fn on_full(&self) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    fn on_shortage(&self) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    fn on_interval(&self) {
        self.intervals.fetch_add(1, Ordering::Relaxed);
    }
}

fn refused(text: &str) -> RefusedConnection {
    RefusedConnection { reason: RefusedReason::Hello, text: text.into() }
}

/// A running loop. Dropping `stop` ends it.
struct Running<'scope> {
    server: Arc<Echo>,
    connections: ConnectionTable,
    address: SocketAddr,
    stop: PipeWriter,
    thread: ScopedJoinHandle<'scope, ()>,
}

fn start<'scope>(scope: &'scope Scope<'scope, '_>, slots: usize, when_full: WhenFull) -> Running<'scope> {
    let limits =
        ConnectionLimits { max_connections: slots, max_unauthenticated: usize::MAX, ..ConnectionLimits::default() };
    let server = Arc::new(Echo::default());
    let connections = ConnectionTable::new(limits);
    let settings = AcceptSettings {
        thread_name: "echo",
        stack_size: 256 << 10,
        poll_interval: Duration::from_millis(20),
        when_full,
    };
    let accept_loop = AcceptLoop { server: server.clone(), connections: connections.clone(), settings };
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), DEFAULT_BACKLOG).unwrap();
    let address = listener.local_address().unwrap();
    let (end, stop) = pipe().unwrap();
    let listener = TestListener { listener, server: server.clone() };
    let thread = scope.spawn(move || accept_loop.run(&[listener], StopSignal::Closed(end.as_fd())));
    Running { server, connections, address, stop, thread }
}

impl Running<'_> {
    fn connect(&self) -> TcpSocket {
        let mut socket = TcpConnection::connect(self.address, TIMEOUT).unwrap().into_socket().unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    }

    /// Returns whether a new connection is served.
    fn echoes(&self) -> bool {
        is_echoed(&mut self.connect(), b'e')
    }

    /// Waits until the loop has seen this number of connections that are still open.
    fn wait_for_connections(&self, count: usize) {
        let deadline = Instant::now() + TIMEOUT;
        while self.connections.counts().0 != count {
            assert!(Instant::now() < deadline, "{:?} connections", self.connections.counts());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_for_events(&self, count: usize) {
        let deadline = Instant::now() + TIMEOUT;
        while self.server.events.lock().len() < count {
            assert!(Instant::now() < deadline, "{:?}", self.server.events);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops the loop, and returns its events.
    fn stop(self) -> Vec<String> {
        drop(self.stop);
        self.thread.join().unwrap();
        std::mem::take(&mut self.server.events.lock())
    }
}

fn is_echoed(socket: &mut TcpSocket, byte: u8) -> bool {
    let mut echo = [0];
    // A connection that the server closed at once may fail at the write.
    socket.write_all(&[byte]).and_then(|()| socket.read_exact(&mut echo)).is_ok() && echo[0] == byte
}

#[test]
fn stop_ends_a_waiting_loop() {
    thread::scope(|scope| {
        let running = start(scope, 8, WhenFull::Refuse);
        thread::sleep(Duration::from_millis(50));
        assert!(running.server.intervals.load(Ordering::Relaxed) > 0, "regular work goes on without connections");
        assert!(running.echoes());
        assert_eq!(running.stop(), [""; 0]);
    });
}

#[test]
fn stop_function_is_called_while_waiting() {
    let server = Arc::new(Echo::default());
    let settings = AcceptSettings {
        thread_name: "echo",
        stack_size: 256 << 10,
        poll_interval: Duration::from_millis(5),
        when_full: WhenFull::Refuse,
    };
    let connections = ConnectionTable::new(ConnectionLimits::default());
    let calls = Cell::new(0);
    let is_third_call = || {
        calls.set(calls.get() + 1);
        calls.get() == 3
    };
    AcceptLoop { server, connections, settings }.run(&[], StopSignal::When(&is_third_call));
    assert_eq!(calls.get(), 3);
}

#[test]
fn descriptor_shortage_closes_an_idle_connection() {
    thread::scope(|scope| {
        let running = start(scope, 8, WhenFull::Refuse);
        let mut idle = running.connect();
        running.wait_for_connections(1);
        running.server.has_shortage.store(true, Ordering::Relaxed);
        assert!(running.echoes(), "the loop continues");
        assert_eq!(idle.read(&mut [0]).unwrap_or(0), 0, "the idle connection is closed");
        assert_eq!(running.server.evictions.load(Ordering::Relaxed), 1);
        running.wait_for_events(2);
        assert_eq!(running.stop(), ["accept: Some(24)", "hello: silent"], "one event");
    });
}

#[test]
fn denied_addresses_are_closed_unread() {
    thread::scope(|scope| {
        let running = start(scope, 8, WhenFull::Refuse);
        running.server.denies_all.store(true, Ordering::Relaxed);
        assert!(!running.echoes());
        running.server.denies_all.store(false, Ordering::Relaxed);
        assert!(running.echoes());
        assert_eq!(running.stop(), ["access: connections from this address are denied"]);
    });
}

#[test]
fn panic_ends_only_its_connection() {
    thread::scope(|scope| {
        let running = start(scope, 1, WhenFull::Refuse);
        assert!(!is_echoed(&mut running.connect(), b'p'));
        running.wait_for_connections(0);
        assert!(running.echoes(), "its slot is free again");
        running.wait_for_connections(0);
        assert!(!is_echoed(&mut running.connect(), b'r'));
        running.wait_for_events(1);
        assert_eq!(running.stop(), ["hello: an r"]);
    });
}

#[test]
fn full_server_refuses_or_lets_wait() {
    thread::scope(|scope| {
        let running = start(scope, 1, WhenFull::Refuse);
        let mut first = running.connect();
        running.wait_for_connections(1);
        assert!(!running.echoes());
        assert_eq!(running.server.evictions.load(Ordering::Relaxed), 1, "another connection could be spared");
        assert!(is_echoed(&mut first, b'e'));
        assert_eq!(running.stop(), ["connections: too many connections"]);

        let running = start(scope, 1, WhenFull::Wait);
        let mut first = running.connect();
        running.wait_for_connections(1);
        let mut second = running.connect();
        second.write_all(b"e").unwrap();
        second.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(second.read(&mut [0]).is_err(), "it waits");
        assert!(is_echoed(&mut first, b'e'));
        second.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert_eq!(second.read(&mut [0]).unwrap(), 1);
        assert_eq!(running.stop(), [""; 0]);
    });
}

#[test]
fn stopped_server_waits_for_open_sessions() {
    let sessions = OpenSessions::default();
    let session = sessions.open();
    sessions.join(Duration::from_millis(10));
    assert_eq!(sessions.count(), 1);
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(20));
            drop(session);
        });
        sessions.join(TIMEOUT);
        assert_eq!(sessions.count(), 0);
    });
}
