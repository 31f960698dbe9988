#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

//! Two ends of a channel over loopback.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_session::Ticket;
use lfn_session::dial::Target;

use super::*;
use crate::coupling::Coupling;

const LAG: &str = include_str!("../../tests/lag.toml");
const PATIENCE: Duration = Duration::from_secs(60);

type Events = Arc<Mutex<Vec<ChannelEvent>>>;

fn coupling(change: impl Fn(String) -> String) -> Coupling {
    Coupling::parse(&change(LAG.to_owned())).unwrap()
}

fn options(coupling: &Coupling, component: &str, rendezvous: Rendezvous) -> ChannelOptions {
    ChannelOptions {
        coupling: coupling.clone(),
        component: component.to_owned(),
        rendezvous,
        patience: PATIENCE,
        resume: false,
        declared: BTreeMap::new(),
        history: Bytes(1 << 30),
        streams: None,
    }
}

fn listen_on(port: u16, state: Option<&Path>) -> Rendezvous {
    Rendezvous::Listen(ListenOptions {
        bind: Some("127.0.0.1".parse().unwrap()),
        port,
        ticket_host: "127.0.0.1".to_owned(),
        state: state.map(Path::to_owned),
        insecure: false,
    })
}

fn dial_to(ticket: &str) -> Rendezvous {
    Rendezvous::Dial(Box::new(Target::new(ticket.parse::<Ticket>().unwrap()).unwrap()))
}

/// Runs the end that listens on a thread. The first result is its ticket.
fn listening<T: Send + 'static>(
    options: ChannelOptions,
    run: impl FnOnce(Result<Channel, ChannelError>) -> T + Send + 'static,
) -> (String, thread::JoinHandle<T>, Events) {
    let (sender, tickets): (_, Receiver<String>) = channel();
    let events = Events::default();
    let seen = events.clone();
    let on_event = move |event: &ChannelEvent| {
        if let ChannelEvent::Listening { ticket } = event {
            sender.send(ticket.clone()).unwrap();
        }
        seen.lock().unwrap().push(event.clone());
    };
    let thread = thread::spawn(move || run(Channel::open(options, on_event, || false)));
    (tickets.recv_timeout(PATIENCE).unwrap(), thread, events)
}

fn dialled(options: ChannelOptions) -> Result<Channel, ChannelError> {
    Channel::open(options, |_| (), || false)
}

/// A field whose elements name their step.
fn field(step: u64, length: usize) -> Vec<u8> {
    (step as f64).to_le_bytes().repeat(length / 8)
}

/// Runs every step: puts `own`, and checks each field of `other`.
fn run_all(mut channel: Channel, own: &str, other: &str, lag: u64) -> RunReport {
    while let Some(step) = channel.begin_step().unwrap() {
        let length = channel.coupling().field_bytes(&channel.coupling().variables[own]).0 as usize;
        channel.put(own, &field(step, length)).unwrap();
        let got = channel.get(other).unwrap().unwrap();
        assert_eq!(got.step, step.checked_sub(lag));
        let expected = got.step.map_or_else(|| vec![0; length], |step| field(step, length));
        assert_eq!(*got.bytes, expected, "step {step}");
        channel.recycle(other, got);
    }
    channel.finish().unwrap()
}

fn run_both(coupling: &Coupling, lag: u64) -> (RunReport, RunReport) {
    let lake = options(coupling, "lake", listen_on(0, None));
    let (ticket, thread, _) = listening(lake, move |channel| run_all(channel.unwrap(), "level", "wind", lag));
    let near = dialled(options(coupling, "atmosphere", dial_to(&ticket))).unwrap();
    let near = run_all(near, "wind", "level", lag);
    (near, thread.join().unwrap())
}

#[test]
fn fields_arrive_with_their_lag() {
    for lag in [0, 1, 4] {
        let coupling = coupling(|text| text.replace("lag = 4", &format!("lag = {lag}")));
        let (near, far) = run_both(&coupling, lag);
        assert_eq!((near.own.steps, near.own.first_step), (40, 0));
        assert_eq!((&near.partner, &near.own), (&far.own, &far.partner));
        assert_eq!(near.own.sent["wind"].fields, 40);
        let level = &near.own.received["level"];
        assert_eq!((level.fields, level.unread), (40 - lag, lag));
    }
}

#[test]
fn large_fields_arrive_in_parts() {
    let coupling = coupling(|text| text.replace("[64, 128]", "[1000, 1001]").replace("steps = 40", "steps = 12"));
    let (near, far) = run_both(&coupling, 4);
    assert_eq!(near.own.sent["wind"].bytes.0, 12 * 8 * 1_001_000);
    assert_eq!(far.own.received["wind"].fields, 8);
}

#[test]
fn different_files_stop_both_ends() {
    let here = coupling(|text| text);
    let there = coupling(|text| text.replace("units = \"m\"", "units = \"cm\""));
    let (ticket, thread, _) = listening(options(&here, "lake", listen_on(0, None)), |channel| channel.err());
    let near = dialled(options(&there, "atmosphere", dial_to(&ticket))).unwrap_err();
    let far = thread.join().unwrap().unwrap();
    assert!(near.to_string().contains("variable.level.units: \"cm\" here, \"m\" at the partner"), "{near}");
    assert!(far.to_string().contains("variable.level.units: \"m\" here, \"cm\" at the partner"), "{far}");
}

#[test]
fn wrong_token_is_refused_and_reported() {
    let coupling = coupling(|text| text);
    let mut lake = options(&coupling, "lake", listen_on(0, None));
    lake.patience = Duration::from_secs(2);
    let (ticket, thread, events) = listening(lake, |channel| channel.err());
    let wrong = Ticket { token: lfn_session::Token::from_bytes([7; 16]), ..ticket.parse().unwrap() };
    let near = dialled(options(&coupling, "atmosphere", dial_to(&wrong.to_string()))).unwrap_err();
    assert!(near.to_string().contains("token"), "{near}");
    assert!(matches!(thread.join().unwrap(), Some(ChannelError::NoPartner { .. })));
    let refused = |event: &ChannelEvent| matches!(event, ChannelEvent::Refused { .. });
    assert!(events.lock().unwrap().iter().any(refused));
}

#[test]
fn stop_reaches_the_partner_with_its_reason() {
    let coupling = coupling(|text| text);
    let (ticket, thread, _) = listening(options(&coupling, "lake", listen_on(0, None)), |channel| {
        let mut channel = channel.unwrap();
        channel.begin_step().unwrap();
        channel.put("level", &field(0, 65_536)).unwrap();
        channel.stop("the lake is dry");
    });
    let mut near = dialled(options(&coupling, "atmosphere", dial_to(&ticket))).unwrap();
    let error = loop {
        match near.begin_step().and_then(|step| {
            near.put("wind", &field(step.unwrap(), 65_536))?;
            near.get("level")
        }) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("lake stopped the run: the lake is dry"), "{error}");
    thread.join().unwrap();
}

#[test]
fn killed_partner_resumes_from_its_checkpoint() {
    let coupling = coupling(|text| text.replace("[component.lake]", "[component.lake]\ncheckpoints = true"));
    let (ticket, thread, events) = listening(options(&coupling, "atmosphere", listen_on(0, None)), |channel| {
        run_all(channel.unwrap(), "wind", "level", 4)
    });
    let mut first = dialled(options(&coupling, "lake", dial_to(&ticket))).unwrap();
    // The partner's field of step 15 follows from the own field of step 11, and with it the partner knows the checkpoint.
    for step in 0..20 {
        assert_eq!(first.begin_step().unwrap(), Some(step));
        if step % 5 == 0 && step <= 10 {
            first.checkpoint().unwrap();
        }
        first.put("level", &field(step, 65_536)).unwrap();
        assert_eq!(first.get("wind").unwrap().unwrap().step, step.checked_sub(4));
    }
    // The connection breaks, as at the end of a killed process: no message is sent.
    first.abandon();
    let mut again = options(&coupling, "lake", dial_to(&ticket));
    again.resume = true;
    let again = dialled(again).unwrap();
    assert_eq!(again.first_step(), 10);
    let far = run_all(again, "level", "wind", 4);
    let near = thread.join().unwrap();
    assert_eq!((near.own.steps, far.own.steps), (40, 30));
    assert!(far.own.sent["level"].known_to_partner > 0, "{far:?}");
    let resumed = |event: &ChannelEvent| matches!(event, ChannelEvent::PartnerResumed { step: 10, .. });
    assert!(events.lock().unwrap().iter().any(resumed));
}

#[test]
fn restart_without_checkpoint_is_refused() {
    let coupling = coupling(|text| text);
    let (ticket, thread, events) = listening(options(&coupling, "atmosphere", listen_on(0, None)), |channel| {
        let mut channel = channel.unwrap();
        let mut result = Ok(());
        while let (Ok(()), Ok(Some(step))) = (&result, channel.begin_step()) {
            channel.put("wind", &field(step, 65_536)).unwrap();
            result = channel.get("level").map(drop);
        }
        result
    });
    let mut first = dialled(options(&coupling, "lake", dial_to(&ticket))).unwrap();
    // The partner's field of step 15 follows from the own field of step 11, and with it the partner knows that wind was read.
    for step in 0..20 {
        first.begin_step().unwrap();
        first.put("level", &field(step, 65_536)).unwrap();
        first.get("wind").unwrap();
    }
    first.abandon();
    let error = dialled(options(&coupling, "lake", dial_to(&ticket))).unwrap_err();
    assert!(error.to_string().contains("no longer has wind of step 0"), "{error}");
    assert!(events.lock().unwrap().iter().any(|event| matches!(event, ChannelEvent::Lost { .. })));
    drop(thread);
}

#[test]
fn nan_is_counted_at_both_ends() {
    let coupling = coupling(|text| text.replace("steps = 40", "steps = 6"));
    let (ticket, thread, events) = listening(options(&coupling, "lake", listen_on(0, None)), |channel| {
        run_all(channel.unwrap(), "level", "wind", 4)
    });
    let mut near = dialled(options(&coupling, "atmosphere", dial_to(&ticket))).unwrap();
    while let Some(step) = near.begin_step().unwrap() {
        let mut wind = field(step, 65_536);
        if step == 5 {
            wind[..8].copy_from_slice(&f64::NAN.to_le_bytes());
        }
        near.put("wind", &wind).unwrap();
        near.get("level").unwrap();
    }
    let near = near.finish().unwrap();
    let far = thread.join().unwrap();
    assert_eq!((near.own.sent["wind"].nan, far.own.received["wind"].nan), (1, 1));
    let seen = |event: &ChannelEvent| matches!(event, ChannelEvent::NotANumber { step: 5, count: 1, .. });
    assert!(events.lock().unwrap().iter().any(seen));
}

#[test]
fn long_wait_names_the_field_or_the_end() {
    let waiting = |variable: Option<&str>| ChannelEvent::Waiting {
        partner: "lake".to_owned(),
        variable: variable.map(str::to_owned),
        step: 39,
        waited: Duration::from_secs(5),
        partner_step: Some(38),
        connected: variable.is_some(),
        not_put: variable.map(|_| "wind".to_owned()),
    };
    assert_eq!(
        waiting(Some("level")).to_string(),
        "step 39 has waited 5 s for level: lake is at step 38, and wind is not put in this step"
    );
    let end = "waited 5 s after the last step for lake to finish: lake is not connected";
    assert_eq!(waiting(None).to_string(), end);
}

#[test]
fn misuse_is_named() {
    let coupling = coupling(|text| text);
    let (end, ended) = channel::<()>();
    let (ticket, thread, _) = listening(options(&coupling, "lake", listen_on(0, None)), move |channel| {
        let mut channel = channel.unwrap();
        channel.begin_step().unwrap();
        channel.put("level", &field(0, 65_536)).unwrap();
        // The partner stays until the end of the test.
        let _ = ended.recv();
    });
    let mut near = dialled(options(&coupling, "atmosphere", dial_to(&ticket))).unwrap();
    let mut errors = vec![near.put("wind", &[]).unwrap_err().to_string(), near.get("level").unwrap_err().to_string()];
    near.begin_step().unwrap();
    errors.push(near.put("wind", &[0; 8]).unwrap_err().to_string());
    errors.push(near.put("level", &[0; 8]).unwrap_err().to_string());
    errors.push(near.get("wind").unwrap_err().to_string());
    errors.push(near.begin_step().unwrap_err().to_string());
    near.put("wind", &field(0, 65_536)).unwrap();
    errors.push(near.put("wind", &field(0, 65_536)).unwrap_err().to_string());
    (1..5).for_each(|step| {
        assert!(near.begin_step().unwrap() == Some(step));
        near.put("wind", &field(step, 65_536)).unwrap();
    });
    near.get("level").unwrap();
    errors.push(near.get("level").unwrap_err().to_string());
    let expected = [
        "no step has begun",
        "no step has begun",
        "wind: 8 bytes; a field has 65536 bytes",
        "atmosphere does not put level; it puts wind",
        "atmosphere does not get wind; it gets level",
        "step 0 ended without a put of wind",
        "wind was put twice in step 0",
        "level was got twice in step 4",
    ];
    assert_eq!(errors, expected);
    drop(near);
    drop(end);
    thread.join().unwrap();
}

#[test]
fn newest_field_of_a_viewer_is_kept() {
    let coupling = coupling(|text| {
        let viewer = text.replace("steps = 40", "steps = 30").replace("initial = 0.0", "drop = \"oldest\"");
        viewer.replace("lag = 4", "lag = 0")
    });
    let (ticket, thread, _) = listening(options(&coupling, "lake", listen_on(0, None)), |channel| {
        let mut channel = channel.unwrap();
        let mut last = None;
        while let Some(step) = channel.begin_step().unwrap() {
            channel.put("level", &field(step, 65_536)).unwrap();
            let got = channel.get("wind").unwrap().and_then(|field| field.step);
            // The newest field stays until a newer one arrives.
            assert!(got >= last, "{got:?} after {last:?}");
            last = got;
        }
        channel.finish().unwrap()
    });
    let mut near = dialled(options(&coupling, "atmosphere", dial_to(&ticket))).unwrap();
    while let Some(step) = near.begin_step().unwrap() {
        near.put("wind", &field(step, 65_536)).unwrap();
    }
    let near = near.finish().unwrap();
    let far = thread.join().unwrap();
    let (sent, received) = (&near.own.sent["wind"], &far.own.received["wind"]);
    assert_eq!(sent.fields, 30);
    assert_eq!(sent.dropped + received.dropped + received.fields + received.unread, 30, "{sent:?} {received:?}");
}

#[test]
fn resume_without_a_run_is_named_at_both_ends() {
    let coupling = coupling(|text| text.replace("[component.lake]", "[component.lake]\ncheckpoints = true"));
    let (ticket, thread, events) = listening(options(&coupling, "atmosphere", listen_on(0, None)), |channel| {
        run_all(channel.unwrap(), "wind", "level", 4)
    });
    let mut resumed = options(&coupling, "lake", dial_to(&ticket));
    resumed.resume = true;
    let error = dialled(resumed).unwrap_err();
    assert!(matches!(error, ChannelError::NothingToResume { .. }) && !error.is_resumable(), "{error}");
    // The other end waits for a partner that begins with step 0.
    let far = run_all(dialled(options(&coupling, "lake", dial_to(&ticket))).unwrap(), "level", "wind", 4);
    assert_eq!((far.own.steps, thread.join().unwrap().own.steps), (40, 40));
    let refused = |event: &ChannelEvent| match event {
        ChannelEvent::Refused { reason, .. } => reason.contains("lake cannot resume"),
        _ => false,
    };
    assert!(events.lock().unwrap().iter().any(refused), "{:?}", events.lock().unwrap());
}

/// Two components with the same compute time do not wait for each other, however late the fields arrive.
#[test]
fn wait_for_a_late_partner_is_told_from_the_path() {
    let coupling = coupling(|text| text.replace("lag = 4", "lag = 0").replace("steps = 40", "steps = 4"));
    let (ticket, thread, _) = listening(options(&coupling, "lake", listen_on(0, None)), |channel| {
        let mut channel = channel.unwrap();
        while let Some(step) = channel.begin_step().unwrap() {
            channel.put("level", &field(step, 65_536)).unwrap();
            channel.get("wind").unwrap();
            thread::sleep(Duration::from_millis(200));
        }
        channel.finish().unwrap()
    });
    let mut near = dialled(options(&coupling, "atmosphere", dial_to(&ticket))).unwrap();
    while let Some(step) = near.begin_step().unwrap() {
        near.put("wind", &field(step, 65_536)).unwrap();
        near.get("level").unwrap();
    }
    let (near, far) = (near.finish().unwrap(), thread.join().unwrap());
    // The atmosphere computes nothing, and waits while the lake computes.
    let (of_near, of_far) = (&near.own.received["level"], &far.own.received["wind"]);
    assert!(of_near.partner_wait >= Duration::from_millis(300), "{of_near:?}");
    assert!(of_near.partner_wait <= of_near.steady_wait, "{of_near:?}");
    assert!(of_far.partner_wait < Duration::from_millis(300), "{of_far:?}");
}

#[test]
fn another_version_is_named() {
    let older = serde_json::json!({ "version": "9.9.9\u{1b}", "component": "lake" });
    let error = handshake::parse_introduction("lake", older).unwrap_err();
    assert!(error.to_string().starts_with("lake has lfn 9.9.9, and this host has lfn "), "{error}");
    assert!(error.hint().unwrap().contains("same version"));
    let damaged = serde_json::json!({ "version": env!("CARGO_PKG_VERSION") });
    let error = handshake::parse_introduction("lake", damaged).unwrap_err();
    assert!(matches!(error, ChannelError::Protocol { .. }), "{error}");
}

#[test]
fn missing_partner_is_reported_once() {
    let coupling = coupling(|text| text);
    let mut lake = options(&coupling, "lake", listen_on(0, None));
    lake.patience = Duration::from_millis(1);
    let (ticket, thread, _) = listening(lake, |channel| channel.err());
    thread.join().unwrap();
    let mut atmosphere = options(&coupling, "atmosphere", dial_to(&ticket));
    atmosphere.patience = Duration::from_secs(2);
    let events = Events::default();
    let seen = events.clone();
    let error = Channel::open(atmosphere, move |event| seen.lock().unwrap().push(event.clone()), || false).unwrap_err();
    assert!(matches!(error, ChannelError::NoPartner { resume: false, .. }) && !error.is_resumable(), "{error}");
    let events = events.lock().unwrap();
    assert!(matches!(&events[..], [ChannelEvent::NotConnected { partner, .. }] if partner == "lake"), "{events:?}");
}

/// The partner may announce a checkpoint before its earlier fields arrive. It would resume without them.
#[test]
fn checkpoint_counts_when_earlier_fields_have_arrived() {
    let coupling = coupling(|text| text);
    let mut inbox = crate::fields::Inbox::new(&coupling, "lake", 0);
    let mut partner = shared::PartnerState::default();
    let arrive = |inbox: &mut crate::fields::Inbox, step| {
        let frame =
            crate::wire::Frame { kind: crate::wire::FrameKind::Chunk, variable: 1, step, offset: 0, length: 65_536 };
        inbox.accept(&frame, &[0; 65_536]).unwrap();
    };
    arrive(&mut inbox, 0);
    partner.announce(1);
    partner.announce(3);
    partner.announce(2);
    assert_eq!(partner.accept_checkpoints(&inbox), Some(1));
    arrive(&mut inbox, 2);
    assert_eq!(partner.accept_checkpoints(&inbox), None);
    arrive(&mut inbox, 1);
    assert_eq!((partner.accept_checkpoints(&inbox), partner.checkpoint), (Some(3), Some(3)));
}
