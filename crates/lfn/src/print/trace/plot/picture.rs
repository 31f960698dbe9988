//! Pictures of a connection: one for each panel, or one with all panels.

use anyhow::Result;
use plotters::style::text_anchor::HPos;

use super::header::{self, HEADER};
use super::layout::{MARGIN, WIDTH};
use super::view::{PlottedConnection, TimeRange, View};
use super::{goodput, in_flight, rtt, sequence};
use crate::print::svg::{self, Canvas, Drawn, FONT, INK, PictureText, Size};

/// Height of a panel: plot, axes and legend.
const PANEL: i32 = 400;
/// Height of the name of a panel in the overview.
const PANEL_NAME: i32 = 34;

/// A picture and the stem of its file name.
#[derive(Debug)]
pub struct Picture {
    pub stem: &'static str,
    pub svg: String,
}

/// A panel of a picture.
struct Panel {
    stem: &'static str,
    title: &'static str,
    draw: fn(&View<'_>, &Canvas<'_>) -> Drawn,
    describe: fn(&View<'_>) -> String,
}

const PANELS: [Panel; 4] = [
    Panel {
        stem: "goodput",
        title: "Goodput and its limit over time",
        draw: goodput::draw,
        describe: goodput::describe,
    },
    Panel {
        stem: "time-sequence",
        title: "Data and acknowledgements over time",
        draw: sequence::draw,
        describe: sequence::describe,
    },
    Panel {
        stem: "in-flight",
        title: "Bytes in flight and receive window",
        draw: in_flight::draw,
        describe: in_flight::describe,
    },
    Panel { stem: "rtt", title: "Round-trip time", draw: rtt::draw, describe: rtt::describe },
];

/// Returns the pictures of a connection, one for each kind. Without a range they show the whole connection.
pub fn pictures(connection: &PlottedConnection<'_>, range: Option<TimeRange>) -> Result<Vec<Picture>> {
    let view = View::new(connection, range);
    let size = Size { width: WIDTH, height: HEADER + PANEL };
    let draw_panel = |panel: &Panel| {
        let description = format!("{} {}", header::describe(&view), (panel.describe)(&view));
        let text = PictureText { title: panel.title, description: &description };
        let svg = svg::picture(&text, size, |canvas| {
            let (top, rest) = canvas.split_vertically(HEADER);
            header::draw(&top, panel.title, &view)?;
            (panel.draw)(&view, &rest)
        })?;
        Ok(Picture { stem: panel.stem, svg })
    };
    PANELS.iter().map(draw_panel).collect()
}

/// Returns one picture with all panels of a connection.
pub fn overview(connection: &PlottedConnection<'_>, range: Option<TimeRange>) -> Result<String> {
    let view = View::new(connection, range);
    let size = Size { width: WIDTH, height: HEADER + PANELS.len() as i32 * (PANEL_NAME + PANEL) };
    let panels: Vec<_> = PANELS.iter().map(|panel| format!("{}: {}", panel.title, (panel.describe)(&view))).collect();
    let title = "A TCP connection over time";
    let text = PictureText { title, description: &format!("{} {}", header::describe(&view), panels.join(" ")) };
    svg::picture(&text, size, |canvas| {
        let (top, mut rest) = canvas.split_vertically(HEADER);
        header::draw(&top, title, &view)?;
        for panel in &PANELS {
            let (name, below) = rest.split_vertically(PANEL_NAME);
            svg::write(&name, panel.title, (MARGIN, PANEL_NAME / 2), FONT, INK, HPos::Left)?;
            let (area, below) = below.split_vertically(PANEL);
            (panel.draw)(&view, &area)?;
            rest = below;
        }
        Ok(())
    })
}
