//! Any bytes from a peer of a session: frames cut anywhere and read as each message there is, the hello of a data stream
//! in the clear, and a ticket. What is read as a message is written and read again as the same.

#![no_main]

use std::time::Duration;

use lfn_core::session::hello::{ClearHello, LENGTH};
use lfn_core::session::{Ticket, Token};
use lfn_core::wire::copy::{BlockHeader, FromReceiver, FromSender};
use lfn_core::wire::test::{Bounded, ClientMessage, ServerMessage, Sum, TestRequest};
use lfn_core::wire::{Frame, FrameReader, HELLO_LIMIT, Hello, Introduction, Kind, MESSAGE_LIMIT, Refusal, Request, encode};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    match how % 8 {
        0 => frames::<Hello>(bytes, how, HELLO_LIMIT, check),
        1 => frames::<ServerMessage>(bytes, how, MESSAGE_LIMIT, figures),
        2 => frames::<ClientMessage>(bytes, how, MESSAGE_LIMIT, bounded),
        3 => frames::<FromSender>(bytes, how, MESSAGE_LIMIT, |_| ()),
        4 => frames::<FromReceiver>(bytes, how, MESSAGE_LIMIT, |_| ()),
        5 => hello(bytes),
        6 => header(bytes),
        _ => ticket(bytes),
    }
});

/// Fed in pieces, as a socket gives them; never more is wanted than one frame may hold.
fn frames<T: Serialize + DeserializeOwned>(bytes: &[u8], how: u8, limit: usize, check: fn(&T)) {
    let mut reader = FrameReader::new(limit);
    let mut rest = bytes;
    while !rest.is_empty() {
        let wants = reader.wants();
        assert!((1..=limit + 5).contains(&wants));
        let (piece, later) = rest.split_at(wants.min(rest.len()).min(usize::from(how) + 1));
        reader.push(piece);
        rest = later;
        loop {
            let _ = reader.look::<Introduction>().map_err(|error| error.to_string());
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

/// A request is bounded before anything is done for it.
fn check(hello: &Hello) {
    if let Hello::Control { request: Request::Test(request), .. } = hello {
        let _ = request.check().map_err(|error| error.to_string());
    }
}

/// Whose figures may be reckoned with: added up as a client does, over and over.
fn figures(message: &ServerMessage) {
    let Some(message) = within_bounds(message) else { return };
    let mut sum = Sum::of(&TestRequest::default());
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

/// As it is read from a peer.
fn within_bounds<T: Serialize + DeserializeOwned>(message: &T) -> Option<T> {
    let text = serde_json::to_string(message).ok()?;
    serde_json::from_str::<Bounded<T>>(&text).map(|Bounded(message)| message).ok()
}

/// Written and read, twice: numbers may lose digits once, and then no more.
fn again<T: Serialize + DeserializeOwned>(message: &T) {
    let Ok(first) = encode(Kind::Message, message) else { return };
    let mut reader = FrameReader::new(MESSAGE_LIMIT);
    reader.push(&first);
    let Ok(Some(Frame::Message(read))) = reader.take::<T, Refusal>() else { panic!("what was written cannot be read") };
    let second = encode(Kind::Message, &read).expect("it was written before");
    assert_eq!(first.len().abs_diff(second.len()), 0, "{}\n{}", text(&first), text(&second));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn hello(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<LENGTH>() else { return };
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
