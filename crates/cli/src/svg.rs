//! The parts of pictures.

use std::fmt::Write;

pub(crate) fn rect(svg: &mut String, [x, y, width, height]: [f64; 4], colour: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
    );
}

pub(crate) fn text(svg: &mut String, x: f64, y: f64, style: &str, content: &str) {
    let content = escaped(content);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{content}</text>");
}

/// As text between tags.
pub(crate) fn escaped(content: &str) -> String {
    content.replace('&', "&amp;").replace('<', "&lt;")
}
