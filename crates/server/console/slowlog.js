// Commands that took long.

import { get } from "./api.js";
import { card, h, table } from "./dom.js";
import { count, date, key, visible } from "./words.js";

export async function show(context) {
  const told = await get("/v1/slowlog", context.signal);
  const rows = told.entries.map((slow) => [date(slow.at_seconds * 1000), `${count(slow.took_us)} µs`, h("code", null, slow.words.map((word) => visible(key(word))).join(" ")), visible(slow.address), visible(slow.client || "–")]);
  const above = told.threshold_us < 0 ? "None are kept: slowlog_threshold_us is -1." : `Commands that take longer than ${count(told.threshold_us)} µs, the newest first.`;
  return [
    h("h1", null, "Slow log"),
    h("p", { class: "lead" }, above),
    card(null, rows.length === 0 ? h("p", { class: "calm" }, "No command took that long.") : table("Slow commands", ["When", { name: "Took", number: true }, "Command", "From", "Client"], rows), h("button", { type: "button", class: "quiet", on: { click: context.again } }, "Look again")),
  ];
}
