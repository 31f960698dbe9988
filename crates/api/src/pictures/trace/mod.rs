//! Pictures of a connection of a capture: goodput with the limits, time-sequence, bytes in flight and window, RTT.

mod goodput;
mod header;
mod in_flight;
mod rtt;
mod sequence;
mod steps;
#[cfg(test)]
mod tests;
mod view;

use std::path::Path;

use lfn_base::time::Instant;

use self::view::{PlottedConnection, View};
use super::Album;
use crate::documents::TracedConnection;
use crate::trace::Traced;

pub use self::view::TimeRange;

/// Maximum number of connections with pictures.
const MAX_CONNECTIONS: usize = 5;

/// Pictures of a connection, with the number of the connection.
#[derive(Debug)]
pub struct ConnectionAlbum {
    pub number: u64,
    pub album: Album,
}

/// Returns the charts of the largest connections with data, at most five. Without a range they show the whole connection.
pub fn of_trace(traced: &Traced, range: Option<TimeRange>) -> Vec<ConnectionAlbum> {
    let capture = capture_name(traced);
    let drawn = traced.document.connections.iter().zip(&traced.series);
    let drawn = drawn.filter_map(|(connection, series)| Some((connection, series.as_ref()?)));
    let lasts = |connection: &TracedConnection| range.is_none_or(|range| range.from < connection.evidence.duration);
    let has_picture = |connection: &TracedConnection| connection.evidence.payload.0 > 0 && lasts(connection);
    let albums = drawn.filter(|(connection, _)| has_picture(connection)).take(MAX_CONNECTIONS);
    let album = |(connection, series): (&TracedConnection, _)| {
        let start = Instant::ZERO + connection.start;
        let name = format!("{capture}, connection {}", connection.number);
        let plotted = PlottedConnection { evidence: &connection.evidence, series, start, name: &name };
        ConnectionAlbum { number: connection.number, album: charts(&plotted, range) }
    };
    albums.map(album).collect()
}

/// Returns the charts of a connection.
fn charts(connection: &PlottedConnection<'_>, range: Option<TimeRange>) -> Album {
    let view = View::new(connection, range);
    let mut album =
        Album { title: "A TCP connection over time".into(), lines: header::lines(&view), ..Album::default() };
    album.push("goodput", goodput::panel(&view), goodput::describe(&view));
    album.push("time-sequence", sequence::panel(&view), sequence::describe(&view));
    album.push("in-flight", in_flight::panel(&view), in_flight::describe(&view));
    album.push("rtt", rtt::panel(&view), rtt::describe(&view));
    album
}

/// Returns the name of the first file without its directory, or the interface.
fn capture_name(traced: &Traced) -> String {
    let file = traced.document.files.first().map(|file| file.name.as_str()).or(traced.document.interface.as_deref());
    let path = Path::new(file.unwrap_or("capture"));
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
