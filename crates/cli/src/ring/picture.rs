//! The ring as a picture: a circle of slots for each host, a colour for each machine.

use std::f64::consts::TAU;
use std::fmt::Write;

use umbel_core::ring::Ring;

use crate::svg::{rect, text};

const SIZE: f64 = 640.0;
const OUTER: f64 = 300.0;
/// Left in the middle for what the picture is of.
const INNER: f64 = 110.0;
const LEGEND: f64 = 200.0;
const LINE: f64 = 20.0;
/// Machines that the legend has room for.
const NAMED_MAX: usize = 30;

pub(super) fn draw(ring: &Ring) -> String {
    let width = SIZE + LEGEND;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {SIZE}\" width=\"{width}\" height=\"{SIZE}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let copies = ring.hosts(0).len();
    let band = (OUTER - INNER) / copies as f64;
    let turn = TAU / ring.slots() as f64;
    for slot in 0..ring.slots() {
        for (copy, host) in ring.hosts(slot as u16).enumerate() {
            let outer = OUTER - band * copy as f64;
            let number = ring.members().iter().position(|member| member.name == host.name).unwrap_or(0);
            let title = format!("slot {slot}: {}", host.name);
            piece(
                &mut svg,
                [turn * slot as f64, turn * (slot + 1) as f64],
                [outer - band + 2.0, outer],
                &colour(number),
                &title,
            );
        }
    }
    let middle = SIZE / 2.0;
    text(
        &mut svg,
        middle,
        middle,
        "text-anchor=\"middle\" font-size=\"18\"",
        &format!("{} slots", ring.slots()),
    );
    let hosts = format!("{copies} hosts each, the first outside");
    text(&mut svg, middle, middle + LINE, "text-anchor=\"middle\" fill=\"#666\"", &hosts);
    for (number, member) in ring.members().iter().take(NAMED_MAX).enumerate() {
        let y = LINE * (number as f64 + 1.0);
        rect(&mut svg, [SIZE, y - 11.0, 13.0, 13.0], &colour(number));
        let hosted = ring.slots_of(&member.name).count();
        text(&mut svg, SIZE + LINE, y, "", &format!("{}: {hosted}", member.name));
    }
    if let Some(more) = ring.members().len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        text(&mut svg, SIZE + LINE, LINE * (NAMED_MAX as f64 + 1.0), "", &format!("and {more} more"));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Hues a golden angle apart: neighbours differ however many there are.
fn colour(number: usize) -> String {
    let hue = (number as f64 * 137.508) % 360.0;
    let light = [50, 65, 38][number / 8 % 3];
    format!("hsl({hue:.0},60%,{light}%)")
}

/// A piece of a ring between two angles and two distances from the middle.
fn piece(svg: &mut String, [from, to]: [f64; 2], [inner, outer]: [f64; 2], colour: &str, title: &str) {
    let at = |angle: f64, distance: f64| {
        let (sine, cosine) = angle.sin_cos();
        format!("{:.1} {:.1}", SIZE / 2.0 + distance * sine, SIZE / 2.0 - distance * cosine)
    };
    // An arc that ends where it began would be none.
    let to = to.min(from + TAU - 0.001);
    let long = u8::from(to - from > TAU / 2.0);
    let title = crate::svg::escaped(title);
    let _ = writeln!(
        svg,
        "<path d=\"M{} A{outer:.1} {outer:.1} 0 {long} 1 {} L{} A{inner:.1} {inner:.1} 0 {long} 0 {} Z\" \
         fill=\"{colour}\" stroke=\"white\" stroke-width=\"0.5\"><title>{title}</title></path>",
        at(from, outer),
        at(to, outer),
        at(to, inner),
        at(from, inner),
    );
}
