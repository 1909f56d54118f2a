// All that can be done to a filter, each with its dialog.

import { get, ofFilter, post, put, raw, remove } from "./api.js";
import { confirm } from "./confirm.js";
import { field, h, options, say, table } from "./dom.js";
import { bytes, chance, count, date, visible } from "./words.js";

const FORMATS = [{ value: "native", name: "Umbel" }, { value: "guava", name: "Guava (Java, Go, Python)" }, { value: "redisbloom", name: "RedisBloom" }];

/** Versions that are listed. */
const SHOWN = 8;

/** A form that does something after a dialog, and says what came of it. */
function form(id, fields, word, isDangerous, act) {
  const made = h("form", { class: "row", id }, ...fields, h("button", { class: isDangerous ? "danger" : "" }, `${word}…`));
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await act();
    } catch (error) {
      say(error.message, true);
    }
  });
  return made;
}

function resizing(name, filter, again) {
  const capacity = h("input", { type: "number", min: 1, value: filter.capacity, required: true });
  const error = h("input", { type: "number", min: 0, max: 1, step: "any", value: filter.error, required: true });
  return form("resize", [field("Capacity", capacity), field("Error rate", error)], "Resize", false, async () => {
    const wanted = { capacity: Number(capacity.value), error: Number(error.value) };
    const plan = await get(`/v1/plan?${new URLSearchParams({ ...wanted, kind: filter.kind, shards: filter.shards })}`);
    const sure = await confirm("Resize the filter", [
      `${visible(name)} will be built anew for ${count(wanted.capacity)} keys at an error rate of ${chance(wanted.error)}, from the keys that it kept.`,
      `That takes ${bytes(plan.bytes)} of memory instead of ${bytes(filter.bytes)}. It answers and takes keys meanwhile.`], "Resize");
    if (!sure) return;
    await post(ofFilter(name, "/resize"), wanted);
    say(`${visible(name)} has another size.`);
    again();
  });
}

function merging(name, again) {
  const from = h("select", { required: true }, h("option", { value: "" }, "choose a filter"));
  get("/v1/filters?limit=1000").then((found) => from.append(...found.filters.filter((other) => other.name !== name).map((other) => h("option", { value: other.name }, visible(other.name)))), () => {});
  return form("merge", [field("Keys of", from)], "Merge", false, async () => {
    if (!(await confirm("Merge filters", [`All keys of ${visible(from.value)} will be added to ${visible(name)}. ${visible(from.value)} stays as it is. This cannot be undone.`], "Merge"))) return;
    const told = await post(ofFilter(name, "/merge"), { from: [from.value] });
    say(`${count(told.added)} keys were new.`);
    again();
  });
}

function exporting(name) {
  const format = h("select", null, options(FORMATS));
  return form("export", [field("Format", format)], "Export", false, async () => {
    if (!(await confirm("Export the filter", [`A snapshot of ${visible(name)} will be saved as a file. Whoever has it can ask it for keys.`], "Export"))) return;
    const answer = await raw("GET", ofFilter(name, `/snapshot?format=${format.value}`));
    const address = URL.createObjectURL(await answer.blob());
    h("a", { href: address, download: `${name.replace(/[^\w.-]/g, "_").slice(0, 80)}.${format.value}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
    say("The file is saved.");
  });
}

/** Versions, with the way back to each. */
export function versionTable(name, versions, again) {
  if (versions.refusal) return h("p", { class: "calm" }, visible(versions.refusal.message));
  if (versions.versions.length === 0) return h("p", { class: "calm" }, "Nobody has published a version yet.");
  const back = (version) => h("button", { type: "button", class: "small danger", disabled: version.current, on: { click: async () => {
    const sure = await confirm("Roll back", [`All copies will answer from version ${version.number} of ${date(version.made_ms)}, with ${count(version.items)} keys.`, "Copies that follow every change are not concerned. You can come back by the same way."], `Serve version ${version.number}`, true);
    if (!sure) return;
    try {
      await put(ofFilter(name, "/current"), { version: version.number });
      say(`Version ${version.number} is current.`);
      again();
    } catch (error) {
      say(error.message, true);
    }
  } } }, version.current ? "current" : "Roll back…");
  // The newest, and the one that is served; older ones are listed by `umbel status` and the API.
  const newest = [...versions.versions].reverse().filter((version, index) => index < SHOWN || version.current);
  const rows = newest.map((version) => [String(version.number), date(version.made_ms), count(version.items), bytes(version.bytes), back(version)]);
  const hidden = versions.versions.length - newest.length;
  const note = hidden > 0 && h("p", { class: "note" }, `${count(hidden)} older versions are kept, too.`);
  return h("div", null, table("Versions", ["Version", "Made", { name: "Keys", number: true }, { name: "Size", number: true }, "Serve"], rows), note);
}

export function publishing(name, again) {
  return form("publish", [], "Publish a version", false, async () => {
    if (!(await confirm("Publish a version", [`${visible(name)} as it is now becomes a version. Copies that follow versions take it at once, unless an older one is pinned.`], "Publish"))) return;
    const made = await post(ofFilter(name, "/versions"), {});
    say(`Version ${made.number} is published.`);
    again();
  });
}

export function changes(name, filter, versions, again) {
  const clear = form("clear", [], "Clear", true, async () => {
    if (!(await confirm("Clear the filter", [`All ${count(filter.items)} keys of ${visible(name)} will be forgotten. This cannot be undone.`], "Clear", true))) return;
    await post(ofFilter(name, "/clear"), {});
    say("It holds nothing now.");
    again();
  });
  const drop = form("drop", [], "Drop", true, async () => {
    if (!(await confirm("Drop the filter", [`${visible(name)} with its ${count(filter.items)} keys will be gone, here and on all nodes. This cannot be undone.`], "Drop", true))) return;
    await remove(ofFilter(name));
    say(`${visible(name)} is gone.`);
    location.hash = "#/filters";
  });
  const heading = (text) => h("h3", null, text);
  return h("div", { class: "changes" },
    h("div", null, heading("Size"), resizing(name, filter, again)),
    h("div", null, heading("Union"), merging(name, again)),
    h("div", null, heading("Versions"), versionTable(name, versions, again), publishing(name, again)),
    h("div", null, heading("File"), exporting(name)),
    h("div", null, heading("For good"), h("div", { class: "row" }, clear, drop)));
}
