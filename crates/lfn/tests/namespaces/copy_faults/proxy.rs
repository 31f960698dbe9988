//! A relay between client and server that injects the faults of a bad path.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// The relay. Its connections end with it.
pub struct Proxy {
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    over: AtomicBool,
    /// While true, no data passes.
    held: AtomicBool,
    /// Bytes in both directions until a bit is flipped. Negative means never.
    flip_after: AtomicI64,
    passed: AtomicU64,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a relay in front of `server`.
    pub fn start(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State { flip_after: AtomicI64::new(-1), ..State::default() });
        let shared = state.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if shared.over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(far) = TcpStream::connect(server) else { continue };
                shared.sockets.lock().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (from, to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                    let state = shared.clone();
                    thread::spawn(move || state.relay(from, to));
                }
            }
        });
        Proxy { address, state }
    }

    /// Returns the number of relayed bytes.
    pub fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::SeqCst)
    }

    /// Resets all connections.
    pub fn reset(&self) {
        for socket in self.state.sockets.lock().drain(..) {
            let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Stops all traffic for this time.
    pub fn hold(&self, time: Duration) {
        self.state.held.store(true, Ordering::SeqCst);
        thread::sleep(time);
        self.state.held.store(false, Ordering::SeqCst);
    }

    /// Flips a bit after this number of further bytes. The TCP checksums are correct again.
    pub fn flip_after(&self, bytes: u64) {
        self.state.flip_after.store(bytes as i64, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        self.reset();
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn relay(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            while self.held.load(Ordering::SeqCst) && !self.over.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            self.passed.fetch_add(read as u64, Ordering::SeqCst);
            let before = self.flip_after.fetch_sub(read as i64, Ordering::SeqCst);
            if (0..read as i64).contains(&before) {
                buffer[before as usize] ^= 0x10;
            } else if before < 0 {
                self.flip_after.store(-1, Ordering::SeqCst);
            }
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}
