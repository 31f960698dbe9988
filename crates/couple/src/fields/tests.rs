#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

//! Both ends in virtual time: chunks pass without a socket, also after lost connections and restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::coupling::Coupling;
use crate::wire::{CHUNK_BYTES, Frame, FrameKind, VariableState};

const STEPS: u64 = 30;
const WINDOW: u64 = 6 << 20;

/// A large and a small variable from the atmosphere to the lake.
fn coupling(lags: [u64; 2], checkpoints: bool) -> Coupling {
    let text = include_str!("../../tests/lag.toml").replace("steps = 40", &format!("steps = {STEPS}"));
    let text = text.replace("[component.lake]", &format!("[component.lake]\ncheckpoints = {checkpoints}"));
    let text = text.replace("lag = 4", &format!("lag = {}", lags[0]));
    let large = format!(
        "[grid.volume]\nshape = [150, 256]\n[variable.heat]\nfrom = \"atmosphere\"\nto = \"lake\"\ngrid = \"volume\"\n\
         type = \"float64\"\nunits = \"W m-2\"\nlag = {}\ninitial = 0.0\n",
        lags[1]
    );
    Coupling::parse(&format!("{text}\n{large}")).unwrap()
}

fn frame_of(outbox: &Outbox, chunk: &Chunk) -> Frame {
    Frame {
        kind: FrameKind::Chunk,
        variable: outbox.number(chunk.variable),
        step: chunk.step,
        offset: chunk.range.start as u64,
        length: chunk.range.len() as u32,
    }
}

/// Puts the fields of a step. Each byte names the step.
fn put_step(outbox: &mut Outbox, step: u64) {
    for name in ["wind", "heat"] {
        let variable = outbox.find(name).unwrap();
        let bytes = outbox.field_bytes(variable) as usize;
        outbox.put(variable, Arc::new(vec![step as u8; bytes]));
    }
}

/// Gets the field of a variable for a step, if it has arrived, and acknowledges it.
fn get_one(inbox: &mut Inbox, outbox: &mut Outbox, name: &str, step: u64) -> bool {
    let variable = inbox.find(name).unwrap();
    match inbox.take(variable, step) {
        Taken::Field { step: Some(used), bytes } => {
            assert!(bytes.iter().all(|byte| *byte == used as u8), "{name} {step}");
        }
        Taken::Field { step: None, bytes } => assert!(bytes.iter().all(|byte| *byte == 0)),
        Taken::NotArrived(_) | Taken::Again => return false,
        Taken::Nothing => panic!("no variable may be dropped"),
    }
    for (number, unread) in inbox.unread().into_iter().filter(|(_, unread)| *unread > 0) {
        assert!(outbox.consumed(number, unread - 1));
    }
    true
}

fn get_step(inbox: &mut Inbox, outbox: &mut Outbox, step: u64) -> bool {
    ["wind", "heat"].into_iter().all(|name| get_one(inbox, outbox, name, step))
}

/// Delivers chunks until nothing is left to send, or `max_chunks` chunks have passed.
fn deliver(outbox: &mut Outbox, inbox: &mut Inbox, max_chunks: usize) {
    for _ in 0..max_chunks {
        let chunk = outbox.next_chunk(FieldClass::Small).or_else(|| outbox.next_chunk(FieldClass::Large));
        let Some(chunk) = chunk else { return };
        let frame = frame_of(outbox, &chunk);
        inbox.accept(&frame, &chunk.data[chunk.range.clone()]).unwrap();
        outbox.chunk_counted(chunk.variable, 0);
    }
}

fn reconnect(outbox: &mut Outbox, inbox: &mut Inbox) -> Result<(), GoneField> {
    let states: Vec<(String, VariableState)> = inbox.states().into_iter().collect();
    outbox.rewind(&states)
}

fn ends(coupling: &Coupling) -> (Outbox, Inbox) {
    let mut outbox = Outbox::new(coupling, "atmosphere", 0, 1 << 30);
    let mut inbox = Inbox::new(coupling, "lake", 0);
    outbox.set_window(WINDOW);
    inbox.set_window(WINDOW);
    (outbox, inbox)
}

#[test]
fn most_urgent_field_is_sent_first() {
    let coupling = coupling([8, 1], false);
    let (mut outbox, _) = ends(&coupling);
    put_step(&mut outbox, 0);
    put_step(&mut outbox, 1);
    let heat = outbox.find("heat").unwrap();
    let order: Vec<u64> = std::iter::from_fn(|| outbox.next_chunk(FieldClass::Large)).map(|chunk| chunk.step).collect();
    let chunks = (outbox.field_bytes(heat) as usize).div_ceil(CHUNK_BYTES);
    assert_eq!(order, [vec![0; chunks], vec![1; chunks]].concat());
    assert_eq!(outbox.next_chunk(FieldClass::Small).unwrap().step, 0);
}

#[test]
fn window_limits_bytes_in_flight() {
    let coupling = coupling([4, 4], false);
    let (mut outbox, mut inbox) = ends(&coupling);
    (0..STEPS).for_each(|step| put_step(&mut outbox, step));
    let mut bytes = 0;
    while let Some(chunk) = outbox.next_chunk(FieldClass::Large) {
        bytes += chunk.range.len() as u64;
        let frame = frame_of(&outbox, &chunk);
        inbox.accept(&frame, &chunk.data[chunk.range.clone()]).unwrap();
    }
    assert!(bytes <= WINDOW && bytes > WINDOW - 307_200, "{bytes}");
    // Room appears when the model reads.
    deliver(&mut outbox, &mut inbox, 1000);
    assert!((0..5).all(|step| get_step(&mut inbox, &mut outbox, step)));
    assert!(outbox.next_chunk(FieldClass::Large).is_some());
}

#[test]
fn partner_that_ignores_the_window_is_stopped() {
    let coupling = coupling([4, 4], false);
    let mut inbox = Inbox::new(&coupling, "lake", 0);
    inbox.set_window(1 << 20);
    let number = coupling.variables.keys().position(|name| name == "heat").unwrap() as u16;
    let data = vec![0; CHUNK_BYTES];
    let chunk = |step| Frame { kind: FrameKind::Chunk, variable: number, step, offset: 0, length: CHUNK_BYTES as u32 };
    let accepted = (0..STEPS).take_while(|step| inbox.accept(&chunk(*step), &data).is_ok()).count();
    // The first chunk reserves the memory of its field of 307,200 bytes.
    assert_eq!(accepted, 4);
}

proptest! {
    /// Every field arrives once and unchanged, whatever is lost with connections.
    #[test]
    fn every_field_arrives(lags in [0u64..6, 0u64..6], moves in proptest::collection::vec((0u8..8, 1usize..40), 0..120)) {
        let coupling = coupling(lags, false);
        let (mut outbox, mut inbox) = ends(&coupling);
        let (mut put, mut got) = (0, [0, 0]);
        let get = |outbox: &mut Outbox, inbox: &mut Inbox, got: &mut [u64; 2], put: u64| {
            for (name, step) in ["wind", "heat"].into_iter().zip(got) {
                *step += u64::from(*step < put && get_one(inbox, outbox, name, *step));
            }
        };
        for (action, count) in moves {
            match action {
                0..=2 if put < STEPS && put < got[0].min(got[1]) + 10 => {
                    put_step(&mut outbox, put);
                    put += 1;
                }
                3..=4 => deliver(&mut outbox, &mut inbox, count),
                5 => reconnect(&mut outbox, &mut inbox).unwrap(),
                _ => get(&mut outbox, &mut inbox, &mut got, put),
            }
        }
        for _ in 0..3 * STEPS {
            if put < STEPS && put <= got[0].min(got[1]) + 4 {
                put_step(&mut outbox, put);
                put += 1;
            }
            deliver(&mut outbox, &mut inbox, 1000);
            get(&mut outbox, &mut inbox, &mut got, put);
        }
        prop_assert_eq!((put, got), (STEPS, [STEPS, STEPS]));
    }

    /// A component that restarts from a checkpoint gets every field that it needs.
    #[test]
    fn restart_from_checkpoint_gets_every_field(lags in [0u64..6, 0u64..6], checkpoint in 0u64..15, end in 15u64..25) {
        let coupling = coupling(lags, true);
        let (mut outbox, mut inbox) = ends(&coupling);
        for step in 0..end {
            put_step(&mut outbox, step);
            deliver(&mut outbox, &mut inbox, 1000);
            if step == checkpoint { outbox.partner_checkpoint(checkpoint); }
            prop_assert!(get_step(&mut inbox, &mut outbox, step));
        }
        let mut inbox = Inbox::new(&coupling, "lake", checkpoint);
        inbox.set_window(WINDOW);
        reconnect(&mut outbox, &mut inbox).unwrap();
        for step in checkpoint..STEPS {
            if step >= end { put_step(&mut outbox, step); }
            deliver(&mut outbox, &mut inbox, 1000);
            prop_assert!(get_step(&mut inbox, &mut outbox, step));
        }
    }

    /// Nothing that a partner sends breaks the state or uses more memory than the window and one field.
    #[test]
    fn no_frame_panics(frames in proptest::collection::vec((0u16..5, 0u64..40, 0u64..4, 0usize..=CHUNK_BYTES), 0..60)) {
        let coupling = coupling([2, 2], true);
        let (mut outbox, mut inbox) = ends(&coupling);
        put_step(&mut outbox, 0);
        let data = vec![0; CHUNK_BYTES];
        for (variable, step, chunk, length) in frames {
            let offset = chunk * CHUNK_BYTES as u64;
            let frame = Frame { kind: FrameKind::Chunk, variable, step, offset, length: length as u32 };
            let _ = inbox.accept(&frame, &data[..length]);
            prop_assert!(inbox.held_bytes() <= WINDOW + 307_200, "{}", inbox.held_bytes());
            let _ = outbox.consumed(variable, step);
            outbox.partner_checkpoint(step);
            let state = VariableState { next: step, unread: chunk };
            let _ = outbox.rewind(&[("wind".to_owned(), state), ("unknown".to_owned(), state)]);
            while outbox.next_chunk(FieldClass::Small).is_some() {}
        }
        let _: BTreeMap<_, _> = inbox.states();
    }
}
