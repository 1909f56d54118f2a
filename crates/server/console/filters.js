// All filters: how full each is, how often it errs, and when it will be full.

import { get, post } from "./api.js";
import { confirm } from "./confirm.js";
import { bar, card, field, h, options, say, table } from "./dom.js";
import { bytes, chance, count, percent, rate, span, visible } from "./words.js";

const PAGE = 100;
const link = (name) => `#/filters/${encodeURIComponent(name)}`;

function forecast(filter) {
  if (filter.items_per_second === null) return "not known yet";
  if (filter.full_in_seconds === null) return "not at this rate";
  return filter.full_in_seconds === 0 ? "full" : `in ${span(filter.full_in_seconds)}`;
}

/** A row whose numbers move. */
function row(filter) {
  const cells = { items: h("span"), fill: h("div", { class: "fill" }), adds: h("span"), asked: h("span", null, "0") };
  const set = (moved) => {
    Object.assign(filter, moved);
    const share = filter.items / filter.capacity;
    cells.items.textContent = count(filter.items);
    cells.fill.replaceChildren(bar(share, `${percent(share)} of its capacity`), h("span", null, percent(share)));
    cells.adds.textContent = rate(filter.adds_per_second);
    if (filter.lookups_per_second !== undefined) cells.asked.textContent = rate(filter.lookups_per_second);
  };
  set({});
  const errs = h("span", { class: filter.estimated_error > filter.error * 1.05 ? "bad" : "" }, `${chance(filter.estimated_error)} of ${chance(filter.error)}`);
  return { set, cells: [h("a", { href: link(filter.name) }, visible(filter.name)), filter.kind, cells.items, count(filter.capacity), cells.fill, errs, bytes(filter.bytes), cells.adds, cells.asked, forecast(filter)] };
}

const COLUMNS = ["Name", "Kind", { name: "Keys", number: true }, { name: "Capacity", number: true }, "Full", { name: "Error, of target", number: true }, { name: "Memory", number: true }, { name: "New/s", number: true }, { name: "Asked/s", number: true }, "Full in"];

function maker(again) {
  const inputs = {
    name: h("input", { required: true, autocomplete: "off", spellcheck: "false" }),
    capacity: h("input", { type: "number", min: 1, value: 1000000, required: true }),
    error: h("input", { type: "number", min: 0, max: 1, step: "any", value: 0.01, required: true }),
    kind: h("select", null, options([{ value: "bloom", name: "bloom: adds only" }, { value: "counting", name: "counting: keys can be removed" }])),
  };
  const form = h("form", { class: "row", id: "new-filter" }, field("Name", inputs.name), field("Capacity", inputs.capacity), field("Error rate", inputs.error), field("Kind", inputs.kind), h("button", { class: "primary" }, "Create"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wanted = { name: inputs.name.value, capacity: Number(inputs.capacity.value), error: Number(inputs.error.value), kind: inputs.kind.value };
    try {
      const plan = await get(`/v1/plan?${new URLSearchParams({ capacity: wanted.capacity, error: wanted.error, kind: wanted.kind, shards: 1 })}`);
      const sure = await confirm("Create a filter", [`“${visible(wanted.name)}” will hold ${count(wanted.capacity)} keys at an error rate of ${chance(wanted.error)}, and takes ${bytes(plan.bytes)} of memory.`], "Create");
      if (!sure) return;
      await post("/v1/filters", wanted);
      say(`${visible(wanted.name)} is there.`);
      again();
    } catch (error) {
      say(error.message, true);
    }
  });
  return form;
}

export async function show(context) {
  const found = await get(`/v1/filters?limit=${PAGE}`, context.signal);
  const rows = new Map();
  const body = [];
  const add = (filters) => {
    for (const filter of filters) {
      const made = row(filter);
      rows.set(filter.name, made);
      body.push(made.cells);
    }
  };
  add(found.filters);
  const place = h("div", null);
  let next = found.next;
  const more = h("button", { type: "button", class: "quiet" }, "More filters");
  const draw = () => {
    more.hidden = next === null;
    place.replaceChildren(body.length === 0 ? h("p", { class: "calm" }, "There is no filter yet. Create one here, or add a key with any Redis client: BF.ADD urls https://example.org/") : table("Filters", COLUMNS, body));
  };
  more.addEventListener("click", async () => {
    try {
      const page = await get(`/v1/filters?limit=${PAGE}&after=${encodeURIComponent(next)}`);
      next = page.next;
      add(page.filters);
      draw();
    } catch (error) {
      say(error.message, true);
    }
  });
  draw();
  let busy = new Set();
  context.live((sample) => {
    const now = new Set(sample.changed.map((moved) => moved.name));
    for (const moved of sample.changed) rows.get(moved.name)?.set(moved);
    for (const name of busy) if (!now.has(name)) rows.get(name)?.set({ adds_per_second: 0, lookups_per_second: 0 });
    busy = now;
  });
  return [h("h1", null, "Filters"), card(null, place, more), card("New filter", maker(context.again))];
}
