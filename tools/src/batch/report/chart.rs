//! Draws a plot as SVG. The plot is drawn with `plotters`; a layer over it holds the values that a pointer or a reader of the
//! screen finds. Colours are replaced by the style sheet, which knows light and dark.

use std::fmt::Write;

use anyhow::anyhow;
use minijinja::HtmlEscape;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;

/// The colours of series; the style sheet names them again for light and dark. They differ for those who see few colours.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x7A, 0x52, 0xC7),
    RGBColor(0x80, 0x80, 0x80),
];
/// The colour of the grid.
const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
/// The size of letters, in units of the picture.
const LETTERS: u32 = 14;

/// A plot.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows, for those who do not see it.
    pub summary: String,
    /// Below the horizontal axis.
    pub x_name: String,
    /// Beside the vertical axis.
    pub y_name: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, in this order.
    pub series: Vec<Series>,
    /// Width and height.
    pub size: (u32, u32),
}

/// Points of one colour.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<Point>,
    /// The line through it, as values of both axes; may be empty.
    pub line: Vec<(f64, f64)>,
    /// Whether points are drawn, or only found.
    pub has_marks: bool,
}

/// A point that can be found.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// On the horizontal axis.
    pub x: f64,
    /// On the vertical axis.
    pub y: f64,
    /// What is said of it.
    pub text: String,
    /// Whether it has a ring.
    pub is_ringed: bool,
}

/// A point's place in the picture and what is said of it.
struct Found {
    at: (i32, i32),
    text: String,
}

impl Chart {
    /// The picture.
    ///
    /// # Errors
    /// What the plotting library refuses.
    pub fn svg(&self) -> anyhow::Result<String> {
        let mut picture = String::new();
        let found = self.draw(&mut picture).map_err(|error| anyhow!("a plot cannot be drawn: {error}"))?;
        let end = picture.rfind("</svg>").ok_or_else(|| anyhow!("a plot cannot be drawn: found no end"))?;
        picture.truncate(end);
        let (width, height) = self.size;
        let head = picture.find('>').map_or(0, |end| end + 1);
        let name = HtmlEscape(&self.summary);
        let open = format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{name}\">");
        picture.replace_range(..head, &open);
        picture.push_str("<g class=\"points\">");
        for Found { at: (x, y), text } in found {
            let text = HtmlEscape(&text);
            let _ = write!(picture, "<circle cx=\"{x}\" cy=\"{y}\" r=\"8\"><title>{text}</title></circle>");
        }
        picture.push_str("</g></svg>");
        Ok(picture)
    }

    fn draw(&self, picture: &mut String) -> Result<Vec<Found>, Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(picture, self.size).into_drawing_area();
        let (longest, all) = self.x.letters();
        let is_turned = all + 2 * self.x.ticks().len() > 58;
        let below = if is_turned { 30 + 7 * longest as u32 } else { 42 };
        let mut chart = ChartBuilder::on(&area)
            .margin(6)
            .margin_right(16)
            .x_label_area_size(below)
            .y_label_area_size(58)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        let letters = TextStyle::from(("sans-serif", LETTERS)).color(&BLACK);
        let turned = letters.transform(FontTransform::Rotate90).pos(Pos::new(HPos::Left, VPos::Center));
        let (x_label, y_label) = (|place: &f64| self.x.label(*place), |place: &f64| self.y.label(*place));
        chart
            .configure_mesh()
            .x_labels(24)
            .y_labels(12)
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(BLACK)
            .label_style(letters.clone())
            .x_label_style(if is_turned { turned } else { letters.clone() })
            .axis_desc_style(letters)
            .x_label_formatter(&x_label)
            .y_label_formatter(&y_label)
            .x_desc(self.x_name.as_str())
            .y_desc(self.y_name.as_str())
            .draw()?;
        let mut found = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let line = series.line.iter().map(|&(x, y)| (self.x.place(x), self.y.place(y)));
            if series.line.len() > 1 {
                chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
            }
            let place = |point: &Point| (self.x.place(point.x), self.y.place(point.y));
            if series.has_marks {
                chart.draw_series(series.points.iter().map(|point| Circle::new(place(point), 4, colour.filled())))?;
                let ringed = series.points.iter().filter(|point| point.is_ringed);
                chart.draw_series(ringed.map(|point| Circle::new(place(point), 8, BLACK.stroke_width(2))))?;
            }
            let at = |point: &Point| chart.backend_coord(&place(point));
            found.extend(series.points.iter().map(|point| Found { at: at(point), text: point.text.clone() }));
        }
        area.present()?;
        drop(chart);
        Ok(found)
    }
}
