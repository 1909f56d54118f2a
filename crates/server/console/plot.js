// Plots as pictures of lines, with axes, a legend and words for those who do not see them.

import { h, s } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 220, 62, 14, 12, 28];

/** Round numbers from the least to the greatest. */
function ticks(least, most, wanted, binary) {
  const step = 10 ** Math.floor(Math.log10((most - least) / wanted || 1));
  const size = binary ? 2 ** Math.ceil(Math.log2((most - least) / wanted)) : ([1, 2, 5, 10].map((times) => times * step).find((size) => (most - least) / size <= wanted) ?? step);
  const marks = [];
  for (let mark = Math.ceil(least / size) * size; mark <= most + size / 1e6; mark += size) marks.push(mark);
  return marks;
}

function powers(least, most) {
  const marks = [];
  for (let power = Math.ceil(Math.log10(least)); power <= Math.log10(most) + 1e-9; power += 1) marks.push(10 ** power);
  return marks.filter((_, index) => index % Math.ceil(marks.length / 6) === 0);
}

/**
 * Lines over a common axis. Each of `series` has a name and points [x, y]; `y` and `x` write a number; `marks` are levels with a name;
 * `log` makes the axis one of powers of ten, `binary` its marks powers of two.
 */
export function plot({ title, series, x, y, marks = [], log = false, binary = false }) {
  const drawn = series.filter((line) => line.points.length > 0);
  const points = drawn.flatMap((line) => line.points);
  const heading = h("figcaption", null, title);
  if (points.length < 2) return h("figure", { class: "plot" }, heading, h("p", { class: "empty" }, "Nothing to draw yet: points come every ten seconds."));
  const xs = points.map((point) => point[0]);
  const levels = marks.map((mark) => mark.at);
  const [first, last] = [Math.min(...xs), Math.max(...xs)];
  const floor = 1e-12;
  const ys = points.map((point) => point[1]).concat(levels);
  const least = log ? Math.max(floor, Math.min(...ys.filter((value) => value > floor))) : 0;
  const most = Math.max(...ys, log ? least * 10 : 1e-9) * (log ? 1 : 1.08);
  const across = (value) => LEFT + ((value - first) / (last - first || 1)) * (WIDTH - LEFT - RIGHT);
  const scale = (value) => (log ? Math.log10(Math.max(value, least) / least) / Math.log10(most / least) : (value - least) / (most - least));
  const up = (value) => HEIGHT - BOTTOM - scale(value) * (HEIGHT - TOP - BOTTOM);
  const rows = (log ? powers(least, most) : ticks(least, most, 5, binary)).map((mark) => [
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: up(mark), y2: up(mark) }),
    s("text", { x: LEFT - 8, y: up(mark) + 4, "text-anchor": "end" }, y(mark)),
  ]);
  const columns = [0, 0.25, 0.5, 0.75, 1].map((share) => first + share * (last - first)).map((mark, index) =>
    s("text", { x: across(mark), y: HEIGHT - 8, "text-anchor": index === 0 ? "start" : index === 4 ? "end" : "middle" }, x(mark)));
  const named = marks.map((mark) => [
    s("line", { class: "level", x1: LEFT, x2: WIDTH - RIGHT, y1: up(mark.at), y2: up(mark.at) }),
    s("text", { class: "level", x: LEFT + 4, y: up(mark.at) - 5 }, mark.name),
  ]);
  const lines = drawn.map((line, index) => s("path", {
    class: `line line-${index + 1}${line.dashed ? " dashed" : ""}`,
    d: line.points.map(([at, value], place) => `${place === 0 ? "M" : "L"}${across(at).toFixed(1)} ${up(value).toFixed(1)}`).join(""),
  }));
  const newest = (line) => line.points[line.points.length - 1][1];
  const told = `${title}. ${drawn.map((line) => `${line.name}: ${y(newest(line))} at the end`).join("; ")}. ${marks.map((mark) => `${mark.name}: ${y(mark.at)}`).join("; ")}`;
  const legend = h("ul", { class: "legend" }, drawn.map((line, index) => h("li", { class: `key-${index + 1}${line.dashed ? " dashed" : ""}` }, line.name)));
  return h("figure", { class: "plot" }, heading,
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told }, rows.flat(), columns, named.flat(), lines), legend);
}
