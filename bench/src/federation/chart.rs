//! A picture: how long half of the people wait at most, by how many there are. Both axes are logarithmic.

use std::fmt::Write;

use super::Point;
use super::users::Way;

const WIDTH: f64 = 860.0;
const PANEL: f64 = 300.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 30.0;
const COLOURS: [&str; 4] = ["#b23a48", "#d98324", "#2563a8", "#2f7d4f"];

pub(crate) fn draw(delay: u64, points: &[Point]) -> String {
    let mut domains: Vec<u16> = points.iter().map(|point| point.domains).collect();
    domains.dedup();
    let height = 70.0 + PANEL * domains.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"20\" y=\"28\" font-size=\"17\" font-weight=\"bold\">A record from one of several domains, {delay} ms apart: p50 by users at once</text>\n"
    );
    for (number, way) in Way::ALL.into_iter().enumerate() {
        let x = 20.0 + 200.0 * number as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"42\" width=\"12\" height=\"12\" fill=\"{}\"/>",
            COLOURS[number]
        );
        let _ = writeln!(svg, "<text x=\"{}\" y=\"52\">{}</text>", x + 18.0, way.name());
    }
    for (number, domains) in domains.into_iter().enumerate() {
        let of: Vec<&Point> = points.iter().filter(|point| point.domains == domains).collect();
        panel(&mut svg, &of, domains, 70.0 + PANEL * number as f64);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, points: &[&Point], domains: u16, top: f64) {
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (least, most) =
            values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
        (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0))
    };
    let (low, high) = range(&mut points.iter().map(|point| point.p50_ms.max(1e-4)));
    let (first, last) = range(&mut points.iter().map(|point| f64::from(point.users)));
    let (bottom, above) = (top + PANEL - 40.0, top + 30.0);
    let y = |ms: f64| bottom - (bottom - above) * (ms.max(1e-4).log10() - low) / (high - low);
    let x = |users: u32| LEFT + (WIDTH - LEFT - RIGHT) * (f64::from(users).log10() - first) / (last - first);
    let _ =
        writeln!(svg, "<text x=\"20\" y=\"{}\" font-weight=\"bold\">{domains} domains</text>", top + 18.0);
    for power in low as i32..=high as i32 {
        let (value, at) = (10_f64.powi(power), y(10_f64.powi(power)));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>",
            WIDTH - RIGHT
        );
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{value} ms</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    let mut users: Vec<u32> = points.iter().map(|point| point.users).collect();
    users.dedup();
    for users in users {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{users}</text>",
            x(users),
            bottom + 18.0
        );
    }
    for (way, colour) in Way::ALL.into_iter().zip(COLOURS) {
        let line: Vec<String> = points
            .iter()
            .filter(|point| point.way == way)
            .map(|point| format!("{:.1},{:.1}", x(point.users), y(point.p50_ms)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for place in &line {
            let (x, y) = place.split_once(',').unwrap_or_default();
            let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
    }
}
