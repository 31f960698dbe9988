//! Any bytes from the peer of a session: frames in pieces of any size, read as each kind of message; the unencrypted
//! hello of a data stream; and a ticket. A message that can be read is written and read again as the same.

#![no_main]

use std::time::Duration;

use lfn_results::measure::{Bounded, ClientMessage, ReportedTotals, ServerMessage, TestRequest};
use lfn_session::hello::{ClearHello, HELLO_BYTES};
use lfn_session::wire::copy::{BlockHeader, ReceiverMessage, SenderMessage};
use lfn_session::wire::{
    Credentials, Frame, FrameKind, FrameReader, HELLO_LIMIT, Hello, MESSAGE_LIMIT, Refusal, Request, encode,
};
use lfn_session::{Ticket, Token};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|bytes: &[u8]| {
    let Some((&selector, bytes)) = bytes.split_first() else { return };
    match selector % 8 {
        0 => frames::<Hello>(bytes, selector, HELLO_LIMIT, check),
        1 => frames::<ServerMessage>(bytes, selector, MESSAGE_LIMIT, figures),
        2 => frames::<ClientMessage>(bytes, selector, MESSAGE_LIMIT, bounded),
        3 => frames::<SenderMessage>(bytes, selector, MESSAGE_LIMIT, |_| ()),
        4 => frames::<ReceiverMessage>(bytes, selector, MESSAGE_LIMIT, |_| ()),
        5 => hello(bytes),
        6 => header(bytes),
        _ => ticket(bytes),
    }
});

/// The bytes arrive in pieces, as from a socket. The reader never asks for more than one frame may hold.
fn frames<T: Serialize + DeserializeOwned>(bytes: &[u8], selector: u8, limit: usize, check: fn(&T)) {
    let mut reader = FrameReader::new(limit);
    let mut rest = bytes;
    while !rest.is_empty() {
        let max_read = reader.max_read();
        assert!((1..=limit + 5).contains(&max_read));
        let (piece, later) = rest.split_at(max_read.min(rest.len()).min(usize::from(selector) + 1));
        reader.push(piece);
        rest = later;
        loop {
            let _ = reader.peek::<Credentials>().map_err(|error| error.to_string());
            match reader.take::<T, Refusal>() {
                Ok(Some(Frame::Message(message))) => {
                    check(&message);
                    again(&message);
                }
                Ok(Some(Frame::Refusal(refusal))) => drop(refusal.to_string()),
                Ok(None) => break,
                Err(error) => return drop(error.to_string()),
            }
        }
    }
}

/// The limits of a request are checked before any work starts.
fn check(hello: &Hello) {
    if let Hello::Control { request: Request::Test(request), .. } = hello {
        let _ = request.check().map_err(|error| error.to_string());
    }
}

/// The figures of a message within the bounds can be added up like in a client, many times.
fn figures(message: &ServerMessage) {
    let Some(message) = within_bounds(message) else { return };
    let mut sum = ReportedTotals::of(&TestRequest::default());
    let since = Duration::from_secs(3600);
    let intervals = match message {
        ServerMessage::Interval(interval) => vec![*interval; 20],
        ServerMessage::Report(report) => report.intervals,
        _ => return,
    };
    let _ = intervals.iter().try_for_each(|interval| sum.add(interval, since)).map_err(|error| error.to_string());
}

fn bounded(message: &ClientMessage) {
    let _ = within_bounds(message);
}

/// Reads the message again as from a peer.
fn within_bounds<T: Serialize + DeserializeOwned>(message: &T) -> Option<T> {
    let text = serde_json::to_string(message).ok()?;
    serde_json::from_str::<Bounded<T>>(&text).map(|Bounded(message)| message).ok()
}

/// Writes and reads the message twice. Numbers may lose digits the first time only.
fn again<T: Serialize + DeserializeOwned>(message: &T) {
    let Ok(first) = encode(FrameKind::Message, message) else { return };
    let mut reader = FrameReader::new(MESSAGE_LIMIT);
    reader.push(&first);
    let Ok(Some(Frame::Message(read))) = reader.take::<T, Refusal>() else { panic!("what was written cannot be read") };
    let second = encode(FrameKind::Message, &read).expect("it was written before");
    assert_eq!(first.len().abs_diff(second.len()), 0, "{}\n{}", text(&first), text(&second));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn hello(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<HELLO_BYTES>() else { return };
    let token = Token::from_bytes([7; 16]);
    match ClearHello::decode(bytes, &token) {
        Ok(hello) => assert_eq!(&hello.encode(&token), bytes),
        Err(error) => drop(error.to_string()),
    }
}

fn header(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<{ BlockHeader::LENGTH }>() else { return };
    match BlockHeader::decode(bytes) {
        Ok(header) => assert_eq!(&header.encode(), bytes),
        Err(error) => drop(error.to_string()),
    }
}

fn ticket(bytes: &[u8]) {
    let Ok(typed) = std::str::from_utf8(bytes) else { return };
    match typed.parse::<Ticket>() {
        Ok(ticket) => assert_eq!(ticket.to_string().parse::<Ticket>().ok(), Some(ticket)),
        Err(error) => drop(error.to_string()),
    }
}
