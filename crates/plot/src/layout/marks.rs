//! Marks of points, and the whiskers of their intervals.

use super::page::Page;
use crate::color::{Color, WHITE};
use crate::model::Mark;
use crate::scene::{Item, Pixel, Stroke, pixel};

/// Draws a mark with this radius at a point.
pub fn draw(page: &mut Page, mark: Mark, at: Pixel, radius: f64, color: Color) {
    let stroke = Stroke::solid(color, (radius * 0.45).max(1.5));
    let corner = |x: f64, y: f64| pixel(at.x + x * radius, at.y + y * radius);
    let polygon = |corners: &[(f64, f64)]| Item::Polygon {
        corners: corners.iter().map(|(x, y)| corner(*x, *y)).collect(),
        fill: color,
    };
    match mark {
        Mark::Dot => page.add(Item::Circle { center: at, radius, fill: Some(color), stroke: None }),
        Mark::Ring => page.add(Item::Circle { center: at, radius, fill: Some(WHITE), stroke: Some(stroke) }),
        Mark::Cross => {
            for ends in [[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]] {
                page.add(Item::Line { points: ends.map(|(x, y)| corner(x, y)).to_vec(), stroke });
            }
        }
        Mark::Triangle => page.add(polygon(&[(0.0, -1.25), (1.15, 0.8), (-1.15, 0.8)])),
        Mark::Square => page.add(polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)])),
        Mark::Diamond => page.add(polygon(&[(0.0, -1.3), (1.15, 0.0), (0.0, 1.3), (-1.15, 0.0)])),
    }
}
