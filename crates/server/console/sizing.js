// The sizing calculator: what a filter takes, by the arithmetic of `umbel plan`.

import { get } from "./api.js";
import { field, figure, h, options } from "./dom.js";
import { plot } from "./plot.js";
import { bytes, chance, count, percent, rate } from "./words.js";

const GIB = 2 ** 30;

export function sizing() {
  const inputs = {
    capacity: h("input", { inputmode: "numeric", value: "1e9", required: true }),
    error: h("input", { inputmode: "decimal", value: "0.001", required: true }),
    kind: h("select", null, options([{ value: "bloom", name: "bloom: adds only" }, { value: "counting", name: "counting, four bits" }, { value: "counting8", name: "counting, eight bits" }])),
    layout: h("select", null, options([{ value: "blocked", name: "blocked: one cache line" }, "guava", "redisbloom", "redisson"])),
    shards: h("input", { type: "number", min: 1, max: 4096, value: 256, required: true }),
    copies: h("input", { type: "number", min: 1, max: 16, value: 2, required: true }),
    memory: h("input", { type: "number", min: 1, max: 16384, value: 16, required: true }),
  };
  const result = h("div", { id: "planned", "aria-live": "polite" });
  const ask = async () => {
    const query = new URLSearchParams({ capacity: Math.round(Number(inputs.capacity.value.replaceAll(/[_, ]/g, ""))), error: Number(inputs.error.value), kind: inputs.kind.value, layout: inputs.layout.value, shards: inputs.shards.value, copies: inputs.copies.value, node_memory_bytes: Number(inputs.memory.value) * GIB });
    try {
      result.replaceChildren(...shown(await get(`/v1/plan?${query}`)));
    } catch (error) {
      result.replaceChildren(h("p", { class: "problem" }, error.message));
    }
  };
  const form = h("form", { class: "row", on: { submit: (event) => { event.preventDefault(); ask(); }, change: ask } },
    field("Capacity, keys", inputs.capacity), field("Error rate", inputs.error), field("Kind", inputs.kind), field("Layout", inputs.layout), field("Shards", inputs.shards), field("Copies", inputs.copies), field("Memory of a node, GiB", inputs.memory), h("button", { class: "primary" }, "Calculate"));
  ask();
  return h("div", null, form, result);
}

function shown(plan) {
  const touched = plan.lines_per_key === null ? `${plan.hashes} bits, anywhere` : plan.lines_per_key === 1 ? "one cache line" : `${plan.lines_per_key} cache lines`;
  const figures = [
    figure("Memory", bytes(plan.bytes), `${count(plan.bits)} bits`),
    figure("Bits a key", plan.bits_per_key.toFixed(2), `the textbook's: ${plan.classic_bits_per_key.toFixed(2)}`),
    figure("Cells a key", count(plan.hashes), `a lookup touches ${touched}`),
    figure("Error at capacity", chance(plan.expected_error), `asked for: ${chance(plan.error)}`),
    figure("Shards", count(plan.shards), `of ${bytes(plan.shard_bytes)}`),
    figure("Nodes", plan.nodes === null ? "none" : count(plan.nodes), plan.nodes === null ? "a shard is larger than a node: take more shards" : `of ${bytes(plan.node_memory_bytes)}, ${percent(plan.node_share)} for filters, ${plan.copies} copies`),
  ];
  const points = plan.curve.filter((point) => point.error > 1e-12).map((point) => [point.filled, point.error]);
  return [
    h("div", { class: "figures" }, figures.map((one) => one.element)),
    plot({ title: "Error rate against how full it is", series: [{ name: "expected error rate", points }], x: (share) => `${Math.round(share * 100)} %`, y: (value) => chance(value), marks: [{ name: `asked for: ${chance(plan.error)}`, at: plan.error }], log: true }),
    h("p", { class: "note" }, `${rate(plan.capacity)} keys are 100 %. Beyond it the error rises fast: so filters grow before.`),
  ];
}
