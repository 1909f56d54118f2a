// One filter: what it is, its past and its future, a key tried out, and all that can be done to it.

import { get, maybe, ofFilter } from "./api.js";
import { changes } from "./changes.js";
import { bar, card, figure, h, table } from "./dom.js";
import { plot } from "./plot.js";
import { tryout } from "./tryout.js";
import { bytes, chance, clock, count, date, percent, rate, span, visible } from "./words.js";

const REASONS = { due: "by itself", full: "it was full", asked: "asked for", worn: "removals wore it out", rebuilt: "filled anew", unseen: "found at a start" };

function past(growth) {
  if (growth.history.length === 0) return h("p", { class: "calm" }, "It has had one size so far.");
  const rows = [...growth.history].reverse().map((step) => [date(step.began_ms), count(step.from_capacity), count(step.to_capacity), REASONS[step.why] ?? visible(step.why), step.took_ms === null ? "under way" : `${count(step.took_ms)} ms`]);
  return table("Sizes that the filter had", ["When", { name: "From", number: true }, { name: "To", number: true }, "Why", { name: "Took", number: true }], rows);
}

/** Where it goes at the rate that was observed: the last hour, and as long again as the forecast needs, a month at most. */
function future(filter, growth, points) {
  const now = Date.now();
  const speed = growth.items_per_second ?? 0;
  const until = Math.min((growth.full_in_seconds ?? 7 * 86400) * 1.15, 31 * 86400) || 3600;
  const ahead = [];
  for (let step = 0; step <= 20; step += 1) {
    const seconds = (until * step) / 20;
    ahead.push([now + seconds * 1000, filter.items + speed * seconds]);
  }
  const series = [{ name: "keys, observed", points: points.map((point) => [point.at_ms, point.items]) }];
  if (growth.items_per_second !== null) series.push({ name: `forecast at ${rate(speed)} a second`, points: ahead, dashed: true });
  const days = series.length > 1 && until > 2 * 86400;
  const x = (at) => (days ? new Date(at).toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : clock(at).slice(0, 5));
  return plot({ title: "Growth forecast", series, x, y: rate, marks: [{ name: "capacity", at: growth.capacity }] });
}

export async function show(context) {
  const { name } = context;
  const filter = await get(ofFilter(name), context.signal);
  const [growth, history, versions] = await Promise.all([
    get(ofFilter(name, "/growth"), context.signal), get(ofFilter(name, "/history"), context.signal), maybe(ofFilter(name, "/versions"), context.signal)]);
  const figures = { items: figure("Keys", ""), error: figure("Error rate, of target", ""), bytes: figure("Memory", ""), adds: figure("New keys a second", ""), asked: figure("Keys asked a second", ""), full: figure("Forecast", "") };
  const fill = h("div", { class: "fill wide" });
  const update = (moved) => {
    Object.assign(filter, moved);
    const share = filter.items / filter.capacity;
    figures.items.set(count(filter.items), `of ${count(filter.capacity)}, ${percent(share)}`);
    fill.replaceChildren(bar(share, `${percent(share)} of its capacity`));
    figures.error.set(chance(filter.estimated_error), `${chance(filter.error)} is the target`);
    figures.bytes.set(bytes(filter.bytes), filter.is_growing ? "another size is being built" : `${count(filter.shards)} shard${filter.shards === 1 ? "" : "s"}`);
    figures.adds.set(rate(filter.adds_per_second));
    figures.asked.set(rate(filter.lookups_per_second ?? 0));
  };
  update({});
  const [forecast, range] = growth.forecast.split(" (");
  figures.full.set(forecast, range ? `between ${range.replace(")", "").replace(" to ", " and ")}` : growth.due_in_seconds ? `grows in ${span(growth.due_in_seconds)}` : growth.factor === 1 ? "it does not grow by itself" : `grows ${growth.factor} times at ${growth.at_percent} %`);
  const plots = h("div", { class: "pair" });
  let { points } = history;
  let newest = points[points.length - 1]?.at_ms ?? 0;
  const draw = () => {
    const line = (title, of) => ({ name: title, points: points.map((point) => [point.at_ms, of(point)]) });
    plots.replaceChildren(
      card(null, plot({ title: "Work, the last hour", x: clock, y: rate, series: [line("new keys a second", (point) => point.adds_per_second), line("keys asked a second", (point) => point.lookups_per_second)] })),
      card(null, future(filter, growth, points)));
  };
  draw();
  const refresh = async () => {
    const [told, past] = await Promise.all([get(ofFilter(name), context.signal), get(ofFilter(name, "/history"), context.signal)]);
    points = past.points;
    update({ estimated_error: told.estimated_error, bytes: told.bytes, capacity: told.capacity });
    draw();
  };
  context.live((sample) => {
    const moved = sample.changed.find((one) => one.name === name);
    update(moved ?? { adds_per_second: 0, lookups_per_second: 0 });
    if (sample.point && sample.point.at_ms > newest) {
      newest = sample.point.at_ms;
      refresh().catch(() => {});
    }
  });
  const facts = [["Kind", filter.kind], ["Layout", filter.layout], ["Hashed by", filter.family], ["Cells in use", percent(filter.fill)], ["Generation", count(filter.generation)], ["Keeps its keys", filter.retain ? "yes: any size can be built" : "no: grows by layers"], ["In memory", filter.is_resident ? "yes" : "no: on disk until somebody asks"]];
  if (filter.expires_ms) facts.push(["Expires", date(filter.expires_ms)]);
  if (filter.window_ms) facts.push(["Window", `${span(filter.window_ms / 1000)} in ${filter.buckets} buckets`]);
  return [
    h("p", { class: "path" }, h("a", { href: "#/filters" }, "Filters"), " /"),
    h("h1", { class: "name" }, visible(name)),
    h("div", { class: "figures" }, Object.values(figures).map((one) => one.element)),
    fill,
    card("Try a key", tryout(name, filter)),
    plots,
    h("div", { class: "pair" },
      card("What it is", h("dl", null, facts.map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))))),
      card("Sizes it had", past(growth))),
    card("Change it", changes(name, filter, versions, context.again)),
  ];
}
