//! Notifications to systemd (sd_notify(3)): the server is ready, the server stops, the accept loop is alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use sd_notify::{NotifyState, notify, watchdog_enabled};

/// Reports that the server accepts connections. Nothing is sent without a service manager, as in all functions here.
pub fn ready(listen: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(&format!("serving on {listen}"))]);
}

/// Reports the stop when `stopping` is set. Reports that the server is alive while `heartbeat` increases, four times
/// per watchdog period.
pub fn watch(stopping: Arc<AtomicBool>, heartbeat: impl Fn() -> u64 + Send + 'static) {
    /// Maximum delay between a signal and the notification.
    const POLL_INTERVAL: Duration = Duration::from_millis(500);
    if env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let watchdog_period = watchdog_enabled().filter(|period| !period.is_zero());
    let every = watchdog_period.map_or(POLL_INTERVAL, |watchdog_period| (watchdog_period / 4).min(POLL_INTERVAL));
    let work = move || {
        let (mut last, mut stop_sent, mut last_heartbeat) = (None, false, Instant::now());
        loop {
            if !stop_sent && stopping.load(Ordering::Relaxed) {
                stop_sent = true;
                send(&[NotifyState::Stopping, NotifyState::Status("finishing the sessions that run")]);
            }
            if watchdog_period.is_some_and(|watchdog_period| last_heartbeat.elapsed() >= watchdog_period / 4) {
                last_heartbeat = Instant::now();
                let beat = heartbeat();
                if last.replace(beat) != Some(beat) {
                    send(&[NotifyState::Watchdog]);
                }
            }
            thread::sleep(every);
        }
    };
    // Without the thread, systemd restarts the server as if it had hung.
    let _ = thread::Builder::new().name("watchdog".into()).stack_size(128 << 10).spawn(work);
}

fn send(states: &[NotifyState<'_>]) {
    // The server works without a service manager.
    let _ = notify(states);
}
