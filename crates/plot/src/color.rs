//! Colours and dashes that stay distinguishable for colour-blind readers and in black-and-white print.

/// Colour with an opacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Color {
    pub red: u8,
    pub green: u8,
    pub blue: u8,
    /// From 0 (transparent) to 1.
    pub opacity: f32,
}

impl Color {
    const fn new(red: u8, green: u8, blue: u8) -> Self {
        Color { red, green, blue, opacity: 1.0 }
    }

    /// Returns the colour with another opacity, from 0 to 1.
    pub const fn with_opacity(self, opacity: f32) -> Self {
        Color { opacity, ..self }
    }
}

// Colours of Okabe and Ito (2008). RED is a darker one, for texts on white.
pub const BLUE: Color = Color::new(0, 114, 178);
pub const ORANGE: Color = Color::new(213, 94, 0);
pub const GREEN: Color = Color::new(0, 158, 115);
pub const SKY: Color = Color::new(86, 180, 233);
pub const AMBER: Color = Color::new(230, 159, 0);
pub const YELLOW: Color = Color::new(240, 228, 66);
pub const PURPLE: Color = Color::new(204, 121, 167);
pub const INK: Color = Color::new(30, 30, 30);
pub const GREY: Color = Color::new(120, 120, 120);
pub const RED: Color = Color::new(176, 0, 32);
pub const WHITE: Color = Color::new(255, 255, 255);

/// Returns the colour of a value from −1 to 1: ORANGE for the lowest one, white for zero, BLUE for the highest one. Texts and
/// arrows in INK stay readable on each of these colours.
pub fn band_color(value: f64) -> Color {
    let end = if value < 0.0 { ORANGE } else { BLUE };
    let share = 0.8 * value.abs().min(1.0);
    let mixed = |end: u8| (255.0 + share * (f64::from(end) - 255.0)).round() as u8;
    Color::new(mixed(end.red), mixed(end.green), mixed(end.blue))
}

/// Pattern of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dash {
    #[default]
    Solid,
    Long,
    Short,
    Dots,
}

impl Dash {
    /// Returns the lengths of a dash and a gap, in widths of the line; `None` for a solid line.
    pub fn lengths(self) -> Option<[f64; 2]> {
        match self {
            Dash::Solid => None,
            Dash::Long => Some([5.0, 2.5]),
            Dash::Short => Some([2.5, 2.0]),
            Dash::Dots => Some([1.0, 1.6]),
        }
    }
}

/// Colour and dash of one of several lines in a plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineLook {
    pub color: Color,
    pub dash: Dash,
}

/// Number of lines that a plot can distinguish.
pub const MAX_LINE_LOOKS: usize = 8;

/// Returns the look of line `number`, from 0. Lines with the same colour differ in their dash, also without colours.
pub fn line_look(number: usize) -> LineLook {
    let colors = [BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, INK, GREY];
    let dashes = [Dash::Solid, Dash::Long, Dash::Short, Dash::Dots];
    let round = number / colors.len();
    LineLook { color: colors[number % colors.len()], dash: dashes[(number + round) % dashes.len()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_lines_differ_without_colours() {
        for number in 0..MAX_LINE_LOOKS {
            assert_ne!(line_look(number).dash, line_look(number + 1).dash, "{number}");
        }
        let looks: Vec<LineLook> = (0..MAX_LINE_LOOKS).map(line_look).collect();
        assert!(looks.iter().enumerate().all(|(place, look)| !looks[..place].contains(look)));
    }
}
