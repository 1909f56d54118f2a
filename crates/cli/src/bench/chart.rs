//! A picture of the processor time of an item: bars for each case, one server beside the other.

use std::fmt::Write;

use crate::svg::{rect, text};

const WIDTH: f64 = 860.0;
/// Where bars begin; the names of the cases are left of it.
const LEFT: f64 = 170.0;
/// Room behind the longest bar, for its number.
const RIGHT: f64 = 70.0;
const BAR: f64 = 15.0;
const COLOURS: [&str; 2] = ["#2563a8", "#d98324"];

/// Cases of one capacity.
pub(crate) struct Panel {
    pub(crate) title: String,
    /// A case's name, and a value for each server.
    pub(crate) cases: Vec<(String, Vec<Option<f64>>)>,
}

pub(crate) fn draw(title: &str, servers: &[String], panels: &[Panel]) -> String {
    let top = 58.0 + 20.0 * servers.len() as f64;
    let height = top + panels.iter().map(|panel| panel_height(panel, servers.len())).sum::<f64>() + 8.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"13\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(&mut svg, 20.0, 32.0, "font-size=\"18\" font-weight=\"bold\"", title);
    for (index, (server, colour)) in servers.iter().zip(COLOURS).enumerate() {
        let y = 58.0 + 20.0 * index as f64;
        rect(&mut svg, [20.0, y - 11.0, 13.0, 13.0], colour);
        text(&mut svg, 40.0, y, "", server);
    }
    let mut y = top;
    for panel in panels {
        draw_panel(&mut svg, panel, servers.len(), y);
        y += panel_height(panel, servers.len());
    }
    svg.push_str("</svg>\n");
    svg
}

fn group_height(servers: usize) -> f64 {
    BAR * servers as f64 + 12.0
}

fn panel_height(panel: &Panel, servers: usize) -> f64 {
    64.0 + group_height(servers) * panel.cases.len() as f64
}

fn draw_panel(svg: &mut String, panel: &Panel, servers: usize, y: f64) {
    let values = panel.cases.iter().flat_map(|(_, values)| values.iter().flatten());
    let largest = values.fold(0.0, |largest: f64, value| largest.max(*value));
    let step = step(largest);
    let steps = (largest / step).ceil().max(1.0);
    let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * value / (step * steps);
    let (top, group) = (y + 30.0, group_height(servers));
    let bottom = top + group * panel.cases.len() as f64;
    text(svg, 20.0, y + 16.0, "font-weight=\"bold\"", &panel.title);
    for tick in 0..=steps as u32 {
        let value = step * f64::from(tick);
        let at = x(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{top:.1}\" x2=\"{at:.1}\" y2=\"{bottom:.1}\" stroke=\"#ddd\"/>"
        );
        text(
            svg,
            at,
            bottom + 16.0,
            "text-anchor=\"middle\" font-size=\"11\" fill=\"#666\"",
            &number(value, step),
        );
    }
    for (index, (name, values)) in panel.cases.iter().enumerate() {
        let first = top + group * index as f64 + 6.0;
        let middle = first + BAR * servers as f64 / 2.0 + 4.5;
        text(svg, LEFT - 10.0, middle, "text-anchor=\"end\"", name);
        for (server, (value, colour)) in values.iter().zip(COLOURS).enumerate() {
            let bar = first + BAR * server as f64;
            let length = value.map_or(0.0, |value| x(value) - LEFT);
            rect(svg, [LEFT, bar, length, BAR - 1.5], colour);
            let label = value.map_or("-".to_owned(), |value| number(value, value / 100.0));
            text(svg, LEFT + length + 6.0, bar + 11.0, "font-size=\"11\"", &label);
        }
    }
}

/// A round distance that leaves three to six lines.
fn step(largest: f64) -> f64 {
    let rough = (largest / 5.0).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    power * factor.unwrap_or(10.0)
}

/// With as many decimals as the precision asks for.
fn number(value: f64, precision: f64) -> String {
    let decimals = if precision > 0.0 { (-precision.log10().floor()).clamp(0.0, 6.0) as usize } else { 0 };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_at_round_numbers() {
        for (largest, expected) in
            [(14.2, 5.0), (0.9, 0.2), (1.0, 0.2), (4.0, 1.0), (0.0004, 0.0001), (35.0, 10.0)]
        {
            assert!((step(largest) / expected - 1.0).abs() < 1e-9, "{largest}: {}", step(largest));
        }
        assert!(step(0.0) > 0.0);
        assert_eq!([number(15.0, 5.0), number(0.2, 0.2), number(0.431_2, 0.043)], ["15", "0.2", "0.43"]);
    }

    #[test]
    fn a_chart_holds_every_value() {
        let cases = vec![
            ("EXISTS".to_owned(), vec![Some(12.5), Some(14.0)]),
            ("ADD".to_owned(), vec![Some(0.43), None]),
        ];
        let panel = Panel { title: "10 < 20 & more".to_owned(), cases };
        let svg = draw("CPU", &["A".to_owned(), "B".to_owned()], &[panel]);
        for word in ["EXISTS", "ADD", ">12.5<", ">14.0<", ">0.430<", ">-<", "10 &lt; 20 &amp; more", "</svg>"]
        {
            assert!(svg.contains(word), "{word}: {svg}");
        }
    }
}
