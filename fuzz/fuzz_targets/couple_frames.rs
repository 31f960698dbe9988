//! Any bytes from a partner of a coupled run: frames at both ends of the fields, and the first messages.

#![no_main]

use std::sync::Arc;

use lfn_couple::Coupling;
use lfn_couple::coupling::differences;
use lfn_couple::fields::{FieldClass, Inbox, Outbox};
use lfn_couple::wire::{Frame, FrameKind, HEADER_BYTES, Introduction, Position};
use libfuzzer_sys::fuzz_target;

const WINDOW: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let coupling = Coupling::parse(include_str!("../../crates/couple/tests/lag.toml")).unwrap();
    if let Ok(introduction) = serde_json::from_slice::<Introduction>(bytes) {
        let _ = introduction.coupling.problems();
        let _ = differences(&coupling, &introduction.coupling);
    }
    let _ = serde_json::from_slice::<Position>(bytes);
    let (mut inbox, mut outbox) = (Inbox::new(&coupling, "lake", 0), Outbox::new(&coupling, "lake", 0, WINDOW));
    inbox.set_window(WINDOW);
    outbox.set_window(WINDOW);
    outbox.put(0, Arc::new(vec![0; 65_536]));
    let mut rest = bytes;
    while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let Ok(frame) = Frame::decode(header) else { return };
        let length = (frame.length as usize).min(after.len());
        match frame.kind {
            FrameKind::Chunk => drop(inbox.accept(&frame, &after[..length])),
            FrameKind::Consumed => drop(outbox.consumed(frame.variable, frame.step)),
            FrameKind::Checkpoint => outbox.partner_checkpoint(frame.step),
            FrameKind::Window => outbox.set_window(frame.offset),
            _ => {}
        }
        let _ = outbox.next_chunk(FieldClass::Small);
        rest = &after[length..];
    }
    let _ = inbox.states();
});
