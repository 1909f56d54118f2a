// Settings in force, where each came from, and what it is for.

import { get } from "./api.js";
import { card, field, h, table } from "./dom.js";
import { visible } from "./words.js";

export async function show(context) {
  const { settings } = await get("/v1/settings", context.signal);
  const search = h("input", { type: "search", autocomplete: "off", placeholder: "name or meaning" });
  const changed = h("input", { type: "checkbox" });
  const place = h("div", null);
  const draw = () => {
    const words = search.value.toLowerCase();
    const shown = settings.filter((one) => (!changed.checked || one.source !== "default") && `${one.name} ${one.redis} ${one.meaning}`.toLowerCase().includes(words));
    const rows = shown.map((one) => [h("code", null, one.name), h("code", null, visible(one.value === "" ? "–" : one.value)), visible(one.source), one.live ? "yes" : "no", one.meaning]);
    place.replaceChildren(rows.length === 0 ? h("p", { class: "calm" }, "None.") : table("Settings", ["Name", "Value", "From", "Live", "Meaning"], rows));
  };
  search.addEventListener("input", draw);
  changed.addEventListener("change", draw);
  draw();
  return [h("h1", null, "Settings"), h("p", { class: "lead" }, "What is in force. Passwords and secrets are not shown."), card(null, h("div", { class: "row" }, field("Search", search), field("Only what somebody set", changed)), place)];
}
