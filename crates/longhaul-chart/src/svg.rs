//! Builds SVG drawings.

use std::fmt::Write;

use crate::Axis;
use crate::page::STYLE;

/// A drawing under construction.
#[derive(Debug, Default)]
pub(crate) struct Svg {
    body: String,
}

/// A finished drawing.
#[derive(Debug, Clone)]
pub struct Drawing {
    body: String,
    label: String,
    description: Option<String>,
    width: f64,
    pub(crate) height: f64,
}

/// The mean width of a letter, and the height of a line, of the text of subtitles and footnotes.
const LETTER: f64 = 6.3;
const LINE: f64 = 16.0;

/// A position in the drawing: right and down from its corner.
pub(crate) type At = (f64, f64);

impl Svg {
    /// Creates a drawing with a title and a wrapped subtitle. Returns it with the lower end of the
    /// subtitle.
    pub(crate) fn headed(title: &str, subtitle: &str, width: f64) -> (Self, f64) {
        let mut svg = Svg::default();
        svg.text("title", (16.0, 27.0), &shorten(title, (width / 8.6) as usize));
        let mut y = 45.0;
        for line in wrap(subtitle, (width - 32.0) / LETTER) {
            svg.text("soft", (16.0, y), &line);
            y += LINE;
        }
        (svg, y)
    }

    /// Draws the axis below bars that start at `left` and are at most `length` long, with a grid
    /// behind them from `top` to `bottom`.
    pub(crate) fn value_axis(
        &mut self,
        axis: &Axis,
        (left, length): (f64, f64),
        (top, bottom): (f64, f64),
    ) {
        for (value, text) in &axis.ticks {
            let x = left + axis.scale.place(*value) * length;
            self.line("grid", (x, top), (x, bottom - 4.0));
            self.text("soft middle", (x, bottom + 10.0), text);
        }
        self.line("axis", (left, top), (left, bottom - 4.0));
        self.text("soft middle", (left + length / 2.0, bottom + 30.0), &axis.label);
    }

    /// Draws a bar of the given height from `at` to `end` on its right, with a line over its
    /// `range`. Returns the right end of both.
    pub(crate) fn value_bar(
        &mut self,
        at: At,
        (end, height): (f64, f64),
        range: Option<(f64, f64)>,
    ) -> f64 {
        let (left, top) = at;
        self.rect("bar", at, (end - left).max(0.5), height);
        let Some((low, high)) = range else { return end };
        let middle = top + height / 2.0;
        self.line("axis", (low, middle), (high, middle));
        high.max(end)
    }

    pub(crate) fn line(&mut self, class: &str, from: At, to: At) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    pub(crate) fn path(&mut self, class: &str, points: &[At]) {
        let _ = write!(self.body, "<polyline class=\"{class}\" points=\"");
        for (x, y) in points {
            let _ = write!(self.body, "{x:.1},{y:.1} ");
        }
        self.body.push_str("\"/>\n");
    }

    pub(crate) fn rect(&mut self, class: &str, at: At, width: f64, height: f64) {
        let (x, y) = at;
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"/>"
        );
    }

    /// Draws columns of equal width from `start` to the right as steps, one per height of `tops`. With
    /// a `base`, the area down to it is closed.
    pub(crate) fn steps(
        &mut self,
        class: &str,
        (start, width): At,
        tops: &[f64],
        base: Option<f64>,
    ) {
        let Some(first) = tops.first() else { return };
        let _ = write!(self.body, "<path class=\"{class}\" d=\"");
        let _ = match base {
            Some(base) => write!(self.body, "M{start:.1} {base:.1}V{first:.1}"),
            None => write!(self.body, "M{start:.1} {first:.1}"),
        };
        let mut level = format!("{first:.1}");
        for (column, top) in tops.iter().enumerate() {
            let top = format!("{top:.1}");
            if top != level {
                let _ = write!(self.body, "H{:.1}V{top}", start + column as f64 * width);
                level = top;
            }
        }
        let _ = write!(self.body, "H{:.1}", start + tops.len() as f64 * width);
        if let Some(base) = base {
            let _ = write!(self.body, "V{base:.1}z");
        }
        self.body.push_str("\"/>\n");
    }

    /// Draws a rectangle in a color with an optional tooltip.
    pub(crate) fn tile(&mut self, fill: &str, (x, y): At, (width, height): At, title: &str) {
        let _ = write!(
            self.body,
            "<rect fill=\"{fill}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\""
        );
        let _ = match title {
            "" => writeln!(self.body, "/>"),
            title => writeln!(self.body, " rx=\"2\"><title>{}</title></rect>", escape(title)),
        };
    }

    pub(crate) fn text(&mut self, class: &str, at: At, text: &str) {
        let (x, y) = at;
        let text = escape(text);
        let _ =
            writeln!(self.body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
    }

    /// Draws the lines of a text one below the other; the first has its baseline at `at`.
    pub(crate) fn text_lines(&mut self, class: &str, at: At, lines: &[String], distance: f64) {
        for (row, line) in lines.iter().enumerate() {
            self.text(class, (at.0, at.1 + row as f64 * distance), line);
        }
    }

    /// Draws a point in the shape of the series with an optional tooltip.
    pub(crate) fn mark(&mut self, series: usize, at: At, title: &str) {
        let shape = shape(series % SHAPES, at);
        let _ = match title {
            "" => writeln!(self.body, "<{shape}/>"),
            title => {
                let element = shape.split(' ').next().unwrap_or_default();
                writeln!(self.body, "<{shape}><title>{}</title></{element}>", escape(title))
            }
        };
    }

    /// Draws a published figure as a cross, a shape that no series has.
    pub(crate) fn cross(&mut self, at: At, title: &str) {
        let (x, y) = at;
        let _ = writeln!(
            self.body,
            "<path class=\"cross\" d=\"M{:.1} {:.1}l9 9m0 -9l-9 9\"><title>{}</title></path>",
            x - 4.5,
            y - 4.5,
            escape(title)
        );
    }

    /// Starts the elements of a series, with its color and dash pattern.
    pub(crate) fn begin_series(&mut self, series: usize) {
        let (color, dash) = (series % COLORS, series % DASHES);
        let _ = writeln!(self.body, "<g class=\"s{color} d{dash}\">");
    }

    pub(crate) fn end_series(&mut self) {
        self.body.push_str("</g>\n");
    }

    /// Draws `other` over the existing elements.
    pub(crate) fn append(&mut self, other: Svg) {
        self.body.push_str(&other.body);
    }

    pub(crate) fn finish(self, label: &str, width: f64, height: f64) -> Drawing {
        Drawing { body: self.body, label: escape(label), description: None, width, height }
    }
}

impl Drawing {
    /// Adds a description, which a screen reader reads after the title.
    pub(crate) fn described(mut self, description: &str) -> Self {
        self.description = Some(escape(description));
        self
    }

    /// Adds a wrapped footnote below the drawing.
    pub fn with_footnote(mut self, text: &str) -> Self {
        let mut foot = Svg::default();
        for line in wrap(text, (self.width - 32.0) / LETTER) {
            foot.text("soft", (16.0, self.height + 4.0), &line);
            self.height += LINE;
        }
        self.body.push_str(&foot.body);
        self
    }

    /// Returns an SVG element with the given class, for a page that contains [`STYLE`].
    pub fn embedded(&self, class: &str) -> String {
        self.element(class, "")
    }

    /// Returns the text of a separate SVG file.
    pub fn document(&self) -> String {
        self.element("", &format!("<style>{STYLE}</style>\n"))
    }

    fn element(&self, class: &str, head: &str) -> String {
        let Drawing { body, label, width, height, .. } = self;
        let class = format!("plot {class}");
        let (name, description) = match &self.description {
            None => (format!(" aria-label=\"{label}\""), String::new()),
            // The elements name and describe the drawing (W3C SVG Accessibility API Mappings 1.0).
            Some(text) => (String::new(), format!("<title>{label}</title>\n<desc>{text}</desc>\n")),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             class=\"{}\" role=\"img\"{name}>\n{description}{head}<rect class=\"ground\" \
             width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n{body}</svg>\n",
            class.trim_end()
        )
    }
}

/// The number of colors in [`STYLE`]. Color, shape and dash repeat together after 56 series.
const COLORS: usize = 8;
const SHAPES: usize = 7;
const DASHES: usize = 4;

/// Returns the opening of the element of a point.
fn shape(index: usize, (x, y): At) -> String {
    let polygon = |class: &str, corners: &[At]| {
        let at = |(dx, dy): &At| format!("{:.1},{:.1}", x + dx, y + dy);
        let points: Vec<String> = corners.iter().map(at).collect();
        format!("polygon class=\"{class}\" points=\"{}\"", points.join(" "))
    };
    let square = [(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)];
    match index {
        0 => format!("circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.4\""),
        1 => polygon("mark", &square),
        2 => polygon("mark", &[(0.0, -5.4), (5.2, 4.0), (-5.2, 4.0)]),
        3 => polygon("mark", &[(0.0, -5.8), (5.8, 0.0), (0.0, 5.8), (-5.8, 0.0)]),
        4 => polygon("mark", &[(0.0, 5.4), (5.2, -4.0), (-5.2, -4.0)]),
        5 => format!("circle class=\"mark open\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.8\""),
        _ => polygon("mark open", &square.map(|(dx, dy)| (dx * 0.9, dy * 0.9))),
    }
}

/// Escapes text from the user.
fn escape(text: &str) -> String {
    let text = longhaul_core::text::escape(text);
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// Estimates the width of a text at the size of names. Fonts differ between browsers, so
/// the estimate only decides when a row is full.
pub(crate) fn width_of(text: &str) -> f64 {
    text.chars().map(width_of_letter).sum()
}

/// The width of the text of ticks and notes, which is smaller and not bold, as a share of the width
/// of names.
pub(crate) const SOFT: f64 = 0.8;

fn width_of_letter(letter: char) -> f64 {
    match letter {
        'i' | 'l' | 'j' | 't' | 'f' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 5.0,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 13.4,
        _ => 8.6,
    }
}

/// Breaks a name into lines that are at most `width` wide, between words where possible. Only a name
/// of more than `most` lines is cut.
pub(crate) fn name_lines(name: &str, width: f64, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in name.split_whitespace() {
        let last = lines.len() - 1;
        let joined = format!("{} {word}", lines[last]);
        if !lines[last].is_empty() && width_of(&joined) <= width {
            lines[last] = joined;
            continue;
        }
        if !lines[last].is_empty() {
            lines.push(String::new());
        }
        for letter in word.chars() {
            let last = lines.len() - 1;
            if !lines[last].is_empty() && width_of(&lines[last]) + width_of_letter(letter) > width {
                lines.push(letter.to_string());
            } else {
                lines[last].push(letter);
            }
        }
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            while !last.is_empty() && width_of(last) + width_of("...") > width {
                last.pop();
            }
            last.push_str("...");
        }
    }
    lines
}

/// Cuts `text` to at most `most` characters.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most.saturating_sub(3)).collect();
    format!("{}...", start.trim_end())
}

/// Breaks a text into lines of at most about `letters` characters.
fn wrap(text: &str, letters: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if ((line.len() + word.len() + 1) as f64) <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_the_drawing() {
        let mut svg = Svg::default();
        svg.text("name", (1.0, 2.0), "<b> & \"c\"");
        svg.mark(1, (1.0, 2.0), "</title>");
        let text = svg.finish("a \"b\"", 10.0, 10.0).document();
        assert!(text.contains("&lt;b&gt; &amp; &quot;c&quot;"), "{text}");
        assert!(text.contains("<title>&lt;/title&gt;</title></polygon>"), "{text}");
        assert!(text.contains("aria-label=\"a &quot;b&quot;\""), "{text}");
    }

    #[test]
    fn no_two_series_of_a_chart_look_the_same() {
        let appearance = |series: usize| (series % COLORS, series % SHAPES, series % DASHES);
        let distinct: std::collections::HashSet<_> = (0..56).map(appearance).collect();
        assert_eq!(distinct.len(), 56);
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shorten("rsync daemon --whole-file", 12), "rsync dae...");
        assert_eq!(shorten("scp", 12), "scp");
    }

    #[test]
    fn names_are_broken_and_cut_only_if_they_need_more_lines() {
        let name = "longhaul test (iperf3 server), 16 streams";
        assert_eq!(name_lines(name, 400.0, 2), [name]);
        let lines = name_lines(name, 240.0, 2);
        assert_eq!(lines.join(" "), name);
        assert!(lines.len() == 2 && lines.iter().all(|line| width_of(line) <= 240.0), "{lines:?}");
        let word = "x".repeat(40);
        assert_eq!(name_lines(&word, 200.0, 2).concat(), word);
        let cut = name_lines(&word, 100.0, 2);
        assert!(cut.len() == 2 && cut[1].ends_with("...") && width_of(&cut[1]) <= 100.0, "{cut:?}");
        assert_eq!(name_lines("", 100.0, 2), [""]);
    }

    #[test]
    fn a_footnote_is_inside_the_enlarged_drawing() {
        let drawing = Svg::default().finish("a", 132.0, 50.0).with_footnote("scp: 256 MiB < 1 GiB");
        assert_eq!(drawing.height, 82.0);
        let text = drawing.document();
        assert!(
            text.contains("viewBox=\"0 0 132 82\"") && text.contains(">scp: 256 MiB &lt;<"),
            "{text}"
        );
        assert!(text.contains("y=\"54.0\"") && text.contains("y=\"70.0\""), "{text}");
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrap("one two three", 8.0), ["one two", "three"]);
    }
}
