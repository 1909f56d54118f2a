// Lookups across domains, and the keys that are asked for most often.

import { get, maybe, post } from "./api.js";
import { card, field, h, options, say, table } from "./dom.js";
import { count, key, span, visible } from "./words.js";

const EVERY = 5;

function found(told) {
  const rows = told.domains.map((domain) => [visible(domain.domain), domain.answer, domain.age_ms === null ? "not known" : span(domain.age_ms / 1000), domain.from]);
  const steps = told.steps.map((step) => [visible(step.domain), step.asked, `${count(step.began_us)} µs`, `${count(step.ended_us)} µs`, step.failed === null ? "done" : visible(step.failed)]);
  const record = told.record && (told.record.fields ?? [{ column: told.record.type ?? "body", value: told.record.body }]);
  const value = (one) => (one === null ? "null" : typeof one === "object" ? key(one) : String(one));
  return [
    h("p", { class: `verdict ${told.absent ? "absent" : "maybe"}` }, h("strong", null, told.absent ? "Nowhere" : told.record ? `In ${visible(told.record.domain)}` : "Maybe"), ` ${told.absent ? "No domain has it: certain, as of these ages." : ""} ${count(told.took_us)} µs.`),
    table("Domains", ["Domain", "Answer", { name: "Age", number: true }, "Known from"], rows),
    steps.length > 0 && table("What was asked", ["Domain", "Asked", { name: "Began", number: true }, { name: "Ended", number: true }, "Came to"], steps),
    record && h("dl", null, record.map((one) => h("div", null, h("dt", null, visible(one.column)), h("dd", null, visible(value(one.value)))))),
  ].filter(Boolean);
}

export async function show(context) {
  const overview = await get("/v1/overview", context.signal);
  if (overview.domain === null) return [h("h1", null, "Lookups"), card(null, h("p", { class: "calm" }, "This server is no domain: it is not asked for records of other deployments. The settings domain and [catalogs] make it one."))];
  const catalog = h("select", null, options(overview.catalogs.map((name) => ({ value: name, name: visible(name) }))));
  const input = h("input", { class: "key", required: true, autocomplete: "off", spellcheck: "false" });
  const fetch = h("input", { type: "checkbox" });
  const result = h("div", { "aria-live": "polite" });
  const hot = h("div", null);
  const form = h("form", { class: "row" }, field("Catalog", catalog), field("Key", input), field("Fetch the record", fetch), h("button", { class: "primary" }, "Look up"));
  const look = async () => {
    if (catalog.value === "") return;
    const told = await maybe(`/v1/lookup/${encodeURIComponent(catalog.value)}/hottest?count=20`, context.signal);
    if (told.refusal) hot.replaceChildren(h("p", { class: "calm" }, visible(told.refusal.message)));
    else hot.replaceChildren(told.keys.length === 0 ? h("p", { class: "calm" }, "Nobody has asked for anything yet.") : table("Hottest keys", ["Key", { name: "Times, about", number: true }], told.keys.map((one) => [visible(key(one.key)), count(one.count)])));
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const told = await post(`/v1/lookup/${encodeURIComponent(catalog.value)}`, { key: input.value, fetch: fetch.checked });
      result.replaceChildren(...found(told));
      await look();
    } catch (error) {
      say(error.message, true);
    }
  });
  catalog.addEventListener("change", () => look().catch((error) => say(error.message, true)));
  await look();
  let ticks = 0;
  context.live(() => { ticks += 1; if (ticks % EVERY === 0) look().catch(() => {}); });
  return [h("h1", null, "Lookups"), h("p", { class: "lead" }, `Asked as the domain ${visible(overview.domain)}`), card("Which domains may have it", form, result), card("Asked for most often", hot)];
}
