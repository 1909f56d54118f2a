// The server at a glance: health, what it does, memory against its budget, and what somebody should know.

import { get } from "./api.js";
import { bar, card, figure, h } from "./dom.js";
import { plot } from "./plot.js";
import { bytes, clock, count, percent, rate, span, visible } from "./words.js";

const LEVELS = { bad: "Trouble", warning: "Soon", note: "Note" };

function alerts(list) {
  if (list.length === 0) return [h("p", { class: "calm" }, "Nothing needs you.")];
  return [h("ul", { class: "alerts" }, list.map((alert) => h("li", { class: `level-${alert.level}` },
    h("span", { class: "tag" }, LEVELS[alert.level]), " ",
    alert.filter === null ? visible(alert.text) : h("a", { href: `#/filters/${encodeURIComponent(alert.filter)}` }, visible(alert.text)))))];
}

export async function show(context) {
  const first = await get("/v1/overview", context.signal);
  const figures = {
    health: figure("Health", ""),
    operations: figure("Commands a second", ""),
    adds: figure("New keys a second", ""),
    lookups: figure("Keys asked a second", ""),
    items: figure("Keys held", ""),
    clients: figure("Connections", ""),
  };
  const memory = h("div", { class: "memory" });
  const warned = h("div", { "aria-live": "polite" });
  const busy = h("div", null);
  const plots = h("div", { class: "pair" });
  let [history, lastAlerts] = [first.history, ""];

  const draw = () => {
    const line = (name, of) => ({ name, points: history.map((point) => [point.at_ms, of(point)]) });
    plots.replaceChildren(
      card(null, plot({ title: "Work, the last hour", x: clock, y: rate, series: [line("commands a second", (point) => point.operations_per_second), line("new keys a second", (point) => point.adds_per_second), line("keys asked a second", (point) => point.lookups_per_second)] })),
      card(null, plot({ title: "Memory of filters, the last hour", x: clock, y: bytes, binary: true, series: [line("in use", (point) => point.memory_bytes)] })));
  };
  const update = (sample) => {
    const isWell = sample.health === "serving";
    figures.health.set(isWell ? "Serving" : "Not ready", isWell ? `for ${span(sample.uptime_seconds)}` : sample.health);
    figures.health.element.classList.toggle("bad", !isWell);
    figures.operations.set(rate(sample.operations_per_second));
    figures.adds.set(rate(sample.adds_per_second));
    figures.lookups.set(rate(sample.lookups_per_second));
    figures.items.set(count(sample.items), `in ${count(sample.filters)} filters`);
    figures.clients.set(count(sample.connections), "of Redis clients");
    const share = sample.memory_bytes / sample.memory_limit_bytes;
    memory.replaceChildren(h("p", null, `${bytes(sample.memory_bytes)} of ${bytes(sample.memory_limit_bytes)}, ${percent(share)}`), bar(share, `memory: ${percent(share)} in use`));
    const told = JSON.stringify(sample.alerts);
    if (told !== lastAlerts) warned.replaceChildren(...alerts(sample.alerts));
    lastAlerts = told;
    const moved = sample.changed.slice(0, 8);
    busy.replaceChildren(moved.length === 0 ? h("p", { class: "calm" }, "No filter has anything to do at this moment.") : h("ul", { class: "busy" }, moved.map((filter) => h("li", null,
      h("a", { href: `#/filters/${encodeURIComponent(filter.name)}` }, visible(filter.name)), h("span", null, `${rate(filter.adds_per_second)} new, ${rate(filter.lookups_per_second)} asked a second`)))));
    if (sample.point && sample.point.at_ms > (history[history.length - 1]?.at_ms ?? 0)) {
      history = [...history.slice(-359), sample.point];
      draw();
    }
  };
  update(first);
  draw();
  context.live(update);
  const about = [`Umbel ${first.version}`, `an acknowledged add survives: ${first.durability}`, first.cluster && `a node of the cluster ${first.cluster}`, first.domain && `the domain ${first.domain}`].filter(Boolean);
  return [
    h("h1", null, "Overview"),
    h("p", { class: "lead" }, about.join(" · ")),
    h("div", { class: "figures" }, Object.values(figures).map((one) => one.element)),
    h("div", { class: "pair" }, card("What to know", warned), card("Memory against its budget", memory)),
    plots,
    card("Busiest now", busy),
  ];
}

