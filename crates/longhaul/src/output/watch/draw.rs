//! Draws the terminal display. It never blocks and keeps no state.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use longhaul_core::text::{escape, escape_name};
use longhaul_watch::{CoreSample, Sample};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};

use super::graph::{Trace, top_of};
use super::state::{FlowOrder, InterfaceOrder, Table, WatchView};
use super::tables::{Column, fitting, flow_columns, interface_columns};

/// The styles of the display.
struct Styles {
    title: Style,
    soft: Style,
    inbound: Style,
    outbound: Style,
    bad: Style,
    selected: Style,
}

impl Styles {
    /// Returns the styles with or without colors; without, they differ in weight.
    fn new(color: bool) -> Self {
        let colored = |value: Color| if color { Style::new().fg(value) } else { Style::new() };
        Styles {
            title: Style::new().add_modifier(Modifier::BOLD),
            soft: if color {
                colored(Color::DarkGray)
            } else {
                Style::new().add_modifier(Modifier::DIM)
            },
            inbound: colored(Color::Green),
            outbound: colored(Color::Blue),
            bad: colored(Color::Red).add_modifier(Modifier::BOLD),
            selected: Style::new().add_modifier(Modifier::REVERSED),
        }
    }
}

const HELP: [&str; 11] = [
    "up, down, k, j   select the interface of the graph",
    "tab              change between interfaces and flows",
    "s                sort by the next column",
    "r                reverse the order",
    "a                show interfaces without link, too",
    "space            pause",
    "?                close this help",
    "q, esc, ctrl-c   quit",
    "",
    "IN is received, OUT is sent. A value of '-' or a dot in the graph is a gap:",
    "the counters of that interval are unknown.",
];

/// The minimum height of the graph, and the rows around the tables.
const GRAPH: u16 = 6;

impl WatchView {
    /// Draws the display into a frame of any size.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let styles = Styles::new(self.color);
        let area = frame.area();
        let buffer = frame.buffer_mut();
        let Some(sample) = self.sample.clone() else {
            put(buffer, area, 0, "waiting for the first sample", styles.soft);
            return;
        };
        let interfaces = self.interfaces(&sample).len() as u16;
        let flows = sample.flows.as_ref().map_or(0, Vec::len) as u16;
        let cores = if sample.cores.is_empty() { 0 } else { 1 };
        let rest = area.height.saturating_sub(2 + cores);
        let table = (interfaces + 1).min(rest / 3 + 1);
        let listed = if flows > 0 { (flows + 2).min(rest.saturating_sub(table) / 2) } else { 0 };
        let graph = rest.saturating_sub(table + listed).max(GRAPH);
        let [head, table, graph, cores, listed, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(table),
            Constraint::Length(graph),
            Constraint::Length(cores),
            Constraint::Length(listed),
            Constraint::Length(1),
        ])
        .areas(area);
        self.draw_head(buffer, head, &sample, &styles);
        self.draw_interfaces(buffer, table, &sample, &styles);
        self.draw_graph(buffer, graph, &sample, &styles);
        draw_cores(buffer, cores, &sample.cores, &styles);
        self.draw_flows(buffer, listed, &sample, &styles);
        self.draw_foot(buffer, foot, &styles);
        if self.help {
            draw_help(buffer, area, &styles);
        }
    }

    fn draw_head(&self, buffer: &mut Buffer, area: Rect, sample: &Sample, styles: &Styles) {
        let paused = if self.paused { "  PAUSED" } else { "" };
        let title = format!("longhaul watch  {}  {}{paused}", self.host, time(sample.time_ms));
        put(buffer, area, 0, &title, styles.title);
        let tcp = match (sample.tcp.retransmits, sample.tcp.sent) {
            (Some(again), Some(sent)) if sent + again > 0 => {
                let share = again as f64 / (sent + again) as f64 * 100.0;
                format!(
                    "TCP {} open, {again} retransmitted ({share:.2} %)",
                    sample.tcp.totals.established
                )
            }
            _ => format!("TCP {} open", sample.tcp.totals.established),
        };
        let at = area.width.saturating_sub(tcp.len() as u16);
        if usize::from(at) > title.chars().count() + 1 {
            let bad = sample.tcp.retransmits.is_some_and(|count| count > 0);
            put(buffer, area, at, &tcp, if bad { styles.bad } else { styles.soft });
        }
    }

    fn draw_interfaces(&self, buffer: &mut Buffer, area: Rect, sample: &Sample, styles: &Styles) {
        let shown = self.interfaces(sample);
        let columns = fitting(interface_columns(), area.width);
        let order = match self.interface_order {
            InterfaceOrder::Traffic => "traffic",
            InterfaceOrder::Name => "name",
            InterfaceOrder::In => "in",
            InterfaceOrder::Out => "out",
            InterfaceOrder::Drops => "drops",
        };
        draw_heads(buffer, area, &columns, styles.soft);
        self.draw_order(buffer, area, (Table::Interfaces, order), styles);
        let selected = self.selection(&shown);
        let rows = usize::from(area.height.saturating_sub(1));
        // The selected row is always visible.
        let at = shown.iter().position(|one| Some(one.index) == selected).unwrap_or(0);
        let first = (at + 1).saturating_sub(rows);
        for (line, interface) in shown.iter().skip(first).take(rows).enumerate() {
            let row = Rect { y: area.y + 1 + line as u16, height: 1, ..area };
            draw_row(buffer, row, &columns, sample, *interface);
            if Some(interface.index) == selected {
                buffer.set_style(row, styles.selected);
            }
        }
    }

    fn draw_graph(&self, buffer: &mut Buffer, area: Rect, sample: &Sample, styles: &Styles) {
        let shown = self.interfaces(sample);
        let selected = self.selection(&shown);
        let Some(interface) = shown.iter().find(|one| Some(one.index) == selected) else { return };
        let Some(history) = self.history.get(&interface.index) else { return };
        let span = history.len() as f64 * self.interval_seconds;
        let title = format!("{}, the last {span:.0} s", escape_name(interface.name.as_bytes()));
        put(buffer, area, 0, &title, styles.title);
        let visible = usize::from(area.width);
        let newest = history.iter().skip(history.len().saturating_sub(visible));
        let rates: Vec<Option<(f64, f64)>> = newest.copied().collect();
        let top =
            top_of(rates.iter().flatten().flat_map(|(inbound, outbound)| [*inbound, *outbound]));
        let body = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        let [above, below] =
            Layout::vertical([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(body);
        let traces = [
            (above, "in", styles.inbound, rates.iter().map(|one| one.map(|it| it.0)).collect()),
            (below, "out", styles.outbound, rates.iter().map(|one| one.map(|it| it.1)).collect()),
        ];
        for (area, name, style, rates) in traces {
            Trace { name, rates, style }.draw(area, top, buffer, styles.soft);
        }
    }

    fn draw_flows(&self, buffer: &mut Buffer, area: Rect, sample: &Sample, styles: &Styles) {
        if area.height < 2 {
            return;
        }
        let area = Rect { y: area.y + 1, height: area.height - 1, ..area };
        let columns = fitting(flow_columns(area.width), area.width);
        let order = match self.flow_order {
            FlowOrder::Traffic => "traffic",
            FlowOrder::Rtt => "RTT",
            FlowOrder::Retransmits => "retransmits",
            FlowOrder::Window => "window",
        };
        draw_heads(buffer, area, &columns, styles.soft);
        self.draw_order(buffer, area, (Table::Flows, order), styles);
        let rows = usize::from(area.height - 1);
        for (line, flow) in self.flows(sample).into_iter().take(rows).enumerate() {
            let row = Rect { y: area.y + 1 + line as u16, height: 1, ..area };
            draw_row(buffer, row, &columns, sample, flow);
        }
    }

    /// Names the order of a table at the right of its head, if there is space.
    fn draw_order(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        (table, order): (Table, &str),
        styles: &Styles,
    ) {
        let mark = if self.table == table { "*" } else { "" };
        let text = format!("{mark}by {order}");
        let at = area.width.saturating_sub(text.len() as u16);
        let free = (0..text.len() as u16 + 1).all(|x| {
            let cell = buffer.cell((area.x + at.saturating_sub(1) + x, area.y));
            cell.is_none_or(|cell| cell.symbol() == " ")
        });
        if free {
            put(buffer, area, at, &text, styles.soft);
        }
    }

    fn draw_foot(&self, buffer: &mut Buffer, area: Rect, styles: &Styles) {
        match &self.message {
            Some(message) => put(buffer, area, 0, &escape(message), styles.bad),
            None => {
                put(buffer, area, 0, "q quit  ? help  s sort  tab flows  space pause", styles.soft);
            }
        }
    }
}

/// Writes a line at `column` of the first row of `area`.
fn put(buffer: &mut Buffer, area: Rect, column: u16, text: &str, style: Style) {
    if area.height > 0 && column < area.width {
        buffer.set_stringn(area.x + column, area.y, text, usize::from(area.width - column), style);
    }
}

fn draw_heads<T>(buffer: &mut Buffer, area: Rect, columns: &[Column<T>], style: Style) {
    draw_cells(buffer, area, columns, |column| column.head.to_owned());
    buffer.set_style(Rect { height: area.height.min(1), ..area }, style);
}

fn draw_row<T>(buffer: &mut Buffer, area: Rect, columns: &[Column<T>], sample: &Sample, item: &T) {
    draw_cells(buffer, area, columns, |column| (column.text)(sample, item));
}

/// Writes the cells of a row: the first column to the left, the others to the right of their width.
fn draw_cells<T>(
    buffer: &mut Buffer,
    area: Rect,
    columns: &[Column<T>],
    text: impl Fn(&Column<T>) -> String,
) {
    let mut x = 0;
    for (at, column) in columns.iter().enumerate() {
        let text: String = text(column).chars().take(column.width.into()).collect();
        let names = at == 0 || column.width >= 20;
        let pad = if names { 0 } else { column.width.saturating_sub(text.chars().count() as u16) };
        put(buffer, area, x + pad, &text, Style::new());
        x += column.width + 1;
    }
}

/// Writes the cores with the most softirq time, as many as fit.
fn draw_cores(buffer: &mut Buffer, area: Rect, cores: &[CoreSample], styles: &Styles) {
    let mut cores: Vec<&CoreSample> = cores.iter().collect();
    cores.sort_by(|one, two| {
        two.softirq
            .unwrap_or(0.0)
            .total_cmp(&one.softirq.unwrap_or(0.0))
            .then(one.core.cmp(&two.core))
    });
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.0} %", share * 100.0),
        None => "-".to_owned(),
    };
    let text = |core: &&CoreSample| {
        format!("core {} softirq {} busy {}", core.core, percent(core.softirq), percent(core.busy))
    };
    let line = cores.iter().map(text).collect::<Vec<_>>().join("   ");
    put(buffer, area, 0, &line, styles.soft);
}

fn draw_help(buffer: &mut Buffer, area: Rect, styles: &Styles) {
    let width = HELP.iter().map(|line| line.len()).max().unwrap_or_default() as u16 + 4;
    let (width, height) = (width.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    for line in 0..height {
        let row = Rect { x, y: y + line, width, height: 1 };
        put(buffer, row, 0, &" ".repeat(width.into()), styles.selected);
        let text = usize::from(line).checked_sub(1).and_then(|at| HELP.get(at));
        put(buffer, row, 2, text.unwrap_or(&""), styles.selected);
    }
}

/// Returns the local time of day.
fn time(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    time.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_core::text::is_hostile;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::WatchKey;
    use super::super::state::tests::sample;
    use super::*;

    fn screen(view: &WatchView, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y: u16| (0..width).map(|x| buffer.cell((x, y)).unwrap().symbol()).collect();
        (0..height).map(row).collect()
    }

    fn view(color: bool) -> WatchView {
        let mut view = WatchView::new("ho\x1bst", 1.0, color);
        for _ in 0..30 {
            view.push(&Arc::new(sample()));
        }
        view
    }

    #[test]
    fn every_size_shows_the_interfaces_and_no_control_characters() {
        for (width, height) in [(60, 16), (80, 24), (120, 40), (200, 60)] {
            let rows = screen(&view(true), width, height);
            let text = rows.join("\n");
            for part in [
                "eth0",
                "8.80 Gb/s",
                "4.40 Gb/s",
                "e%1B[2Jvil",
                "ho%1Bst",
                "core 0 softirq 41 %",
                "█",
            ] {
                assert!(text.contains(part), "'{part}' is not in\n{text}");
            }
            assert!(!text.contains("down0"));
            assert_eq!(text.chars().find(|c| *c != '\n' && is_hostile(*c)), None);
            if height >= 24 {
                assert!(text.contains("198.51.100.7:40001") && text.contains("90.00 ms"), "{text}");
            }
        }
    }

    #[test]
    fn the_smallest_terminals_do_not_panic() {
        for (width, height) in [(1, 1), (3, 2), (20, 5), (60, 3)] {
            screen(&view(true), width, height);
        }
        screen(&WatchView::new("host", 1.0, true), 80, 24);
    }

    #[test]
    fn without_color_only_weights_remain() {
        let colors = |color: bool| {
            let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
            terminal.draw(|frame| view(color).draw(frame)).unwrap();
            let buffer = terminal.backend().buffer().clone();
            buffer.content().iter().filter(|cell| cell.fg != Color::Reset).count()
        };
        assert!(colors(true) > 100);
        assert_eq!(colors(false), 0);
    }

    #[test]
    fn the_help_lists_the_keys() {
        let mut view = view(false);
        view.press(WatchKey::Help);
        let text = screen(&view, 100, 30).join("\n");
        assert!(text.contains("sort by the next column") && text.contains("ctrl-c"), "{text}");
        view.press(WatchKey::Help);
        view.set_message(Some("cannot write \x1b".into()));
        let text = screen(&view, 100, 30).join("\n");
        assert!(text.contains("cannot write %1B") && !text.contains("sort by"), "{text}");
    }
}
