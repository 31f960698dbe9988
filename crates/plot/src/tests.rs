//! Geometry of generated pictures: no text overlaps another one or leaves the picture.

use proptest::prelude::*;

use crate::layout::shapes;
use crate::scene::Item;
use crate::*;

/// Panics if a text overlaps another text, or leaves the picture.
fn check_texts(drawing: &Drawing) -> Result<(), TestCaseError> {
    let size = drawing.size();
    let page = Rect { left: 0.0, top: 0.0, right: f64::from(size.width), bottom: f64::from(size.height) };
    let texts: Vec<&Text> = drawing.texts().collect();
    for (place, text) in texts.iter().enumerate() {
        let area = text.area();
        prop_assert!(page.contains(&area), "{} leaves {size:?}: {area:?}", text.text);
        for other in &texts[..place] {
            prop_assert!(!area.overlaps(&other.area()), "'{}' and '{}' overlap", text.text, other.text);
        }
    }
    Ok(())
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("goodput".to_owned()),
        Just("[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535 → far.example".repeat(6)),
        Just("漢字 \u{202e}\u{1b}[2J</text>".to_owned()),
        "[a-z ]{1,60}",
    ]
}

fn magnitudes() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(1.0),
        1e-9..1e-6_f64,
        1.0..100.0_f64,
        1e6..1e9_f64,
        Just(1e18),
        Just(f64::MAX),
        Just(f64::NAN)
    ]
}

fn axes() -> impl Strategy<Value = Axis> {
    let units = prop_oneof![
        Just(Unit::Seconds),
        Just(Unit::Bytes),
        Just(Unit::BitsPerSecond),
        Just(Unit::Percent),
        Just(Unit::Count)
    ];
    let categories = prop::collection::vec(names(), 0..40).prop_map(AxisKind::Categories);
    let kinds = prop_oneof![
        3 => prop_oneof![Just(AxisKind::Rounded), Just(AxisKind::Exact), Just(AxisKind::Logarithmic)],
        1 => categories
    ];
    (names(), units, magnitudes(), magnitudes(), kinds).prop_map(|(name, unit, low, span, kind)| Axis {
        name,
        unit,
        low,
        high: low + span,
        kind,
    })
}

prop_compose! {
    fn panels()(
        x in axes(),
        y in axes(),
        name in names(),
        series in prop_oneof![Just(0_usize), Just(1), 2..9_usize, Just(256)],
        points in prop_oneof![Just(0_usize), Just(1), 2..12_usize],
        kinds in 0..6_usize,
        labels in 0..30_usize,
        long in names(),
        note in prop::option::of(names()),
        map_columns in prop_oneof![3 => Just(None), 1 => (0..9_usize).prop_map(Some)],
    ) -> Panel {
        let mut panel = Panel::new(&name, x.clone(), y.clone());
        let at = |n: usize, all: usize| {
            let share = n as f64 / all.max(1) as f64;
            Point { x: x.low + share * (x.high - x.low), y: y.low + (share * 7.0).fract() * (y.high - y.low) }
        };
        for number in 0..series {
            let all: Vec<Point> = (0..points).map(|n| at(n + number, points + series)).collect();
            let ranges = all.iter().map(|p| RangePoint { x: p.x, low: p.y / 2.0, y: p.y, high: p.y * 2.0 }).collect();
            let look = line_look(number);
            let shape = match number % 5 {
                0 => Shape::Line { points: all, width: 2.0, dash: look.dash },
                1 => Shape::Area { points: all },
                2 => Shape::Bars { points: ranges },
                3 => Shape::Marks { points: all, mark: MARKS[number % MARKS.len()] },
                _ => Shape::Whiskers { points: ranges, mark: Mark::Dot, shift: 0.5 },
            };
            panel.series.push(Series { name: format!("{long} {number}"), color: look.color, shape });
        }
        let hatches = [Hatch::None, Hatch::Rising, Hatch::Falling, Hatch::Crossed, Hatch::Vertical, Hatch::Horizontal];
        for (number, hatch) in hatches.iter().enumerate().take(kinds) {
            let (name, label) = (format!("{long} {number} %"), long.clone());
            panel.band_kinds.push(BandKind { name, label, color: SKY, hatch: *hatch });
            panel.bands.push(Band { from: at(number, kinds).x, to: at(number + 1, kinds).x, kind: number });
        }
        for number in 0..labels {
            panel.labels.push(Label { at: at(number, labels), text: format!("{number} Mb/s"), color: INK });
        }
        for at in [GuideAt::X(x.high), GuideAt::Y(y.low)] {
            panel.guides.push(Guide { at, name: long.clone(), label: "a guide".into(), color: INK, dash: Dash::Short });
        }
        panel.note = note;
        panel.map = map_columns.map(|columns| {
            let (low, high) = (Point { x: x.low, y: y.low }, Point { x: x.high, y: y.high });
            let arrows = (0..labels).map(|number| Arrow { at: at(number, labels), east: 3.0, north: number as f64 });
            let values = (0..columns * 5).map(|cell| if cell % 7 == 3 { f64::NAN } else { cell as f64 * y.high });
            let (values, arrows) = (values.collect(), arrows.collect());
            Map { name: long.clone(), low, high, columns, values, scale_end: 0.0, arrows, arrow_name: long.clone() }
        });
        panel
    }
}

prop_compose! {
    fn pictures()(
        title in names(),
        lines in prop::collection::vec(names(), 0..5),
        warning in prop::option::of(names()),
        panels in prop_oneof![prop::collection::vec(panels(), 1..4), prop::collection::vec(panels(), 5..7)],
    ) -> Picture {
        Picture { title, lines, warning, description: String::new(), panels }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_text_overlaps_another_or_leaves_the_picture(picture in pictures(), width in 400..1600_u32, height in 300..1000_u32) {
        let drawing = picture.draw(Size { width, height });
        check_texts(&drawing)?;
        let svg = drawing.svg();
        prop_assert_eq!(svg.matches("</svg>").count(), 1);
        // A name may contain these words. Names are outside of the tags.
        let mut tags = svg.split('<').filter_map(|part| part.split('>').next());
        prop_assert!(tags.all(|tag| !tag.contains("NaN") && !tag.contains("inf")), "{svg}");
        prop_assert_eq!(drawing.svg(), picture.draw(Size { width, height }).svg());
    }
}

/// A picture of goodput over time.
fn usual_picture(streams: usize) -> Picture {
    let mut panel = Panel::new(
        "Goodput over time",
        Axis::exact("time", Unit::Seconds, 0.0, 10.0),
        Axis::from_zero("goodput", Unit::BitsPerSecond, 131e6),
    );
    for number in 0..streams {
        let look = line_look(number);
        let points = (0..=100).map(|n| point(f64::from(n) / 10.0, 1e6 * f64::from((n * 37) % 120))).collect();
        let shape = Shape::Line { points, width: 2.0, dash: look.dash };
        panel.series.push(Series { name: format!("stream {number}"), color: look.color, shape });
    }
    Picture { title: "Goodput".into(), lines: vec!["near → far".into()], panels: vec![panel], ..Picture::default() }
}

#[test]
fn axes_name_their_units_and_begin_at_zero() {
    let drawing = usual_picture(1).draw(DEFAULT_SIZE);
    let texts: Vec<&str> = drawing.texts().map(|text| text.text.as_str()).collect();
    for text in ["goodput, Mb/s", "time, s", "0", "20", "140", "10", "stream 0", "Goodput", "near → far"] {
        assert!(texts.contains(&text), "{text} in {texts:?}");
    }
}

#[test]
fn legend_without_room_counts_the_rest() {
    let drawing = usual_picture(256).draw(Size { width: 400, height: 300 });
    let texts: Vec<&str> = drawing.texts().map(|text| text.text.as_str()).collect();
    assert!(texts.contains(&"stream 0") && texts.iter().any(|text| text.starts_with("and 2")), "{texts:?}");
}

#[test]
fn plot_has_a_third_of_each_picture() {
    for (width, height, streams) in [(400, 300, 1), (400, 300, 256), (1600, 1000, 8), (320, 240, 3)] {
        let drawing = usual_picture(streams).draw(Size { width, height });
        let frame = shapes(&drawing).iter().find_map(|item| match item {
            Item::Line { points, stroke } if points.len() == 3 && stroke.color == INK => Some(points.clone()),
            _ => None,
        });
        let frame = frame.unwrap();
        let share = (frame[1].y - frame[0].y) / f64::from(height);
        assert!(share > 0.33, "{width}x{height}, {streams} streams: {share}");
    }
}

#[test]
fn many_panels_are_in_two_columns() {
    let of_panels = |count: usize| {
        let panel = usual_picture(2).panels.remove(0);
        Picture { panels: vec![panel; count], ..usual_picture(2) }.draw(DEFAULT_SIZE)
    };
    let (four, ten) = (of_panels(4), of_panels(10));
    assert_eq!((four.size().width, ten.size().width), (DEFAULT_SIZE.width, 2 * DEFAULT_SIZE.width));
    assert!(ten.size().height < 5 * DEFAULT_SIZE.height, "{:?}", ten.size());
    let legends: Vec<&Text> = ten.texts().filter(|text| text.text == "stream 0").collect();
    assert_eq!(legends.len(), 10);
    let on_the_left = legends.iter().filter(|text| text.at.x < f64::from(DEFAULT_SIZE.width)).count();
    assert_eq!(on_the_left, 5);
}

#[test]
fn png_has_the_size_and_the_shapes() {
    let drawing = usual_picture(2).draw(Size { width: 400, height: 300 });
    let png = drawing.png().unwrap();
    let pixels = decode(&png, 400 * PNG_SCALE, 300 * PNG_SCALE);
    let count = |color: Color| pixels.chunks(3).filter(|pixel| *pixel == [color.red, color.green, color.blue]).count();
    assert!(count(BLUE) > 500 && count(ORANGE) > 300, "both lines");
    assert!(count(INK) > 1000, "texts and axes");
    assert_eq!(pixels[0], 255, "white background");
}

/// Returns the pixels of a PNG, and checks its chunks.
fn decode(png: &[u8], width: u32, height: u32) -> Vec<u8> {
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!((&png[12..16], &png[16..24]), (&b"IHDR"[..], &[width.to_be_bytes(), height.to_be_bytes()].concat()[..]));
    let length = u32::from_be_bytes(png[33..37].try_into().unwrap()) as usize;
    assert_eq!(&png[37..41], b"IDAT");
    let mut rows = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(&png[41..41 + length]), &mut rows).unwrap();
    let row_length = width as usize * 3;
    assert_eq!(rows.len(), (row_length + 1) * height as usize);
    let mut pixels: Vec<u8> = vec![0; row_length];
    for row in rows.chunks(row_length + 1) {
        assert_eq!(row[0], 2, "difference to the row above");
        let above = pixels[pixels.len() - row_length..].to_vec();
        pixels.extend(row[1..].iter().zip(above).map(|(new, old)| new.wrapping_add(old)));
    }
    pixels.split_off(row_length)
}

#[test]
fn hostile_texts_stay_texts() {
    let mut picture = usual_picture(1);
    picture.title = "<script>&\u{1b}[2J".into();
    picture.description = "a\u{ffff}\u{0}b\n</desc>".into();
    let svg = picture.draw(DEFAULT_SIZE).svg();
    assert!(svg.contains(r#"<title id="title">&lt;script&gt;&amp;?[2J</title>"#), "{svg}");
    assert!(svg.contains("a??b &lt;/desc&gt;</desc>"), "{svg}");
}

/// A map of a slope from the west to the east, with one arrow.
fn map_panel() -> Panel {
    let axis = |name: &str, high: f64| Axis::exact(name, Unit::Count, 0.0, high);
    let mut panel = Panel::new("", axis("eastwards, km", 400.0), axis("northwards, km", 100.0));
    panel.map = Some(Map {
        name: "level, m".into(),
        low: Point { x: 0.0, y: 0.0 },
        high: Point { x: 400.0, y: 100.0 },
        columns: 40,
        values: (0..400).map(|cell| f64::from(cell % 40) / 20.0 - 0.975).collect(),
        scale_end: 0.0,
        arrows: vec![Arrow { at: Point { x: 200.0, y: 50.0 }, east: 12.0, north: 0.0 }],
        arrow_name: "wind, up to 12 m/s".into(),
    });
    panel
}

#[test]
fn map_has_equal_axes_bands_a_scale_and_a_legend() {
    let drawing = Picture { panels: vec![map_panel()], ..Picture::default() }.draw(DEFAULT_SIZE);
    let texts: Vec<&str> = drawing.texts().map(|text| text.text.as_str()).collect();
    for text in ["level, m", "−0.8", "0.8", "wind, up to 12 m/s", "400"] {
        assert!(texts.contains(&text), "{text} in {texts:?}");
    }
    let areas = |is_wanted: fn(&Color) -> bool| -> Vec<Rect> {
        let areas = shapes(&drawing).iter().filter_map(|item| match item {
            Item::Rect { area, fill } if is_wanted(fill) => Some(*area),
            _ => None,
        });
        areas.collect()
    };
    let low = areas(|color| color.red > color.blue);
    let high = areas(|color| color.blue > color.red);
    let right = |areas: &[Rect]| areas.iter().map(|area| area.right).fold(0.0, f64::max);
    // The scale at the right side has both colours.
    assert!(!low.is_empty() && (right(&low) - right(&high)).abs() < 1.0, "{low:?} {high:?}");
    let mut map = areas(|_| true);
    let end = right(&map) - 30.0;
    map.retain(|area| area.right < end);
    let least = |side: fn(&Rect) -> f64| map.iter().map(side).fold(f64::MAX, f64::min);
    let (width, height) =
        (-least(|area| -area.right) - least(|area| area.left), -least(|area| -area.bottom) - least(|area| area.top));
    assert!((width / height - 4.0).abs() < 0.2, "{width} by {height}");
}

#[test]
fn maps_with_one_scale_end_have_the_same_scale() {
    let mut panel = map_panel();
    panel.map.as_mut().unwrap().scale_end = 4.0;
    let drawing = Picture { panels: vec![panel], ..Picture::default() }.draw(DEFAULT_SIZE);
    let texts: Vec<&str> = drawing.texts().map(|text| text.text.as_str()).collect();
    assert!(texts.contains(&"4") && texts.contains(&"−4"), "{texts:?}");
}

#[test]
fn neighbouring_squares_of_a_band_are_one_area() {
    let drawing = Picture { panels: vec![map_panel()], ..Picture::default() }.draw(DEFAULT_SIZE);
    let areas = shapes(&drawing).iter().filter(|item| matches!(item, Item::Rect { .. })).count();
    assert!(areas < 1500, "{areas}");
}
