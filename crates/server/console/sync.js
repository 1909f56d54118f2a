// Copies of a filter elsewhere: who has which version, how old it is, and a version that goes out group by group.

import { get, maybe, ofFilter, post, put, remove } from "./api.js";
import { publishing, versionTable } from "./changes.js";
import { confirm } from "./confirm.js";
import { card, field, figure, h, say, table } from "./dom.js";
import { bytes, count, span, visible } from "./words.js";

const EVERY = 2;
const STATES = { running: "under way", done: "done", rolling_back: "rolling back", rolled_back: "rolled back" };

function byStrategy(replicas) {
  const groups = new Map();
  for (const replica of replicas) groups.set(replica.strategy, (groups.get(replica.strategy) ?? 0) + 1);
  return [...groups].map(([strategy, number]) => figure(strategy || "unnamed", count(number), number === 1 ? "copy" : "copies").element);
}

function replicaTable(replicas) {
  if (replicas.length === 0) return h("p", { class: "calm" }, "No copy was heard of in the last 15 seconds. Try: umbel replica NAME --strategy notify --stay");
  const agrees = (replica) => (replica.agrees === null ? "not known" : replica.agrees ? "same checksum" : replica.state === "moving" ? `moving to ${replica.serve}` : h("span", { class: "bad" }, replica.state === "cannot_be_held" ? `not held at ${replica.serve}` : "another checksum"));
  const version = (replica) => (replica.version === null ? "none" : replica.state === "held" ? `${replica.version}, pinned` : String(replica.version));
  const labels = (replica) => Object.entries(replica.labels).map(([name, value]) => `${name}=${value}`).join(" ");
  const rows = replicas.map((replica) => [visible(replica.id), visible(replica.strategy), version(replica), span(replica.age_ms / 1000), bytes(replica.lag_bytes), agrees(replica), count(replica.spooled), visible(labels(replica))]);
  return table("Copies", ["Copy", "Strategy", { name: "Version", number: true }, { name: "Age", number: true }, { name: "Log not seen", number: true }, "Agrees", { name: "Own adds waiting", number: true }, "Labels"], rows);
}

function guarded(work, again) {
  return async (event) => {
    event?.preventDefault();
    try {
      if (await work()) await again();
    } catch (error) {
      say(error.message, true);
    }
  };
}

/** A rollout as far as it has come, with what can be done to it. */
function rolloutCard(name, rollout, replicas, again) {
  if (rollout.refusal) return [h("p", { class: "calm" }, rollout.refusal.status === 404 ? "There was none." : visible(rollout.refusal.message))];
  const isRunning = rollout.state === "running";
  const have = replicas.filter((replica) => replica.version === rollout.target).length;
  const groups = Array.from({ length: rollout.stages }, (_, index) => {
    const state = rollout.state === "done" || index < rollout.stage ? "done" : rollout.state === "rolled_back" || rollout.state === "rolling_back" ? "back" : index === rollout.stage ? "now" : "later";
    const words = { done: "has it", back: "went back", now: rollout.well_ms === null ? "takes it" : "is well", later: "waits" };
    return h("li", { class: state }, `Group ${index + 1} ${words[state]}`);
  });
  const back = guarded(async () => {
    if (!(await confirm("Roll back", [`All copies go back to version ${rollout.previous ?? "that they had"}.`], "Roll back", true))) return false;
    await remove(ofFilter(name, "/rollout"));
    say("The rollout was given up: copies go back.");
    return true;
  }, again);
  const pause = guarded(async () => {
    const paused = !rollout.paused;
    if (!(await confirm(paused ? "Pause the rollout" : "Go on", [paused ? "No further group gets the version. Groups that have it keep it." : "The next group gets the version when this one is well."], paused ? "Pause" : "Go on"))) return false;
    await put(ofFilter(name, "/rollout"), { paused });
    return true;
  }, again);
  return [
    h("p", null, `Version ${rollout.target}${rollout.previous === null ? "" : ` after ${rollout.previous}`}: `, h("strong", { id: "rollout-state" }, isRunning && rollout.paused ? "paused" : STATES[rollout.state]), `, ${have} of ${replicas.length} copies have it.`),
    rollout.why && h("p", { class: "note" }, visible(rollout.why)),
    h("ol", { class: "stages" }, groups),
    isRunning && h("div", { class: "row" }, h("button", { type: "button", on: { click: pause } }, rollout.paused ? "Go on…" : "Pause…"), h("button", { type: "button", class: "danger", on: { click: back } }, "Roll back…")),
  ];
}

function starter(name, again) {
  const percent = h("input", { value: "10,50,100", pattern: "[0-9]{1,3}(,[0-9]{1,3})*", required: true });
  const pause = h("input", { type: "number", min: 0, value: 60, required: true });
  const probe = h("input", { autocomplete: "off", spellcheck: "false" });
  const start = guarded(async () => {
    const plan = { percent: percent.value.split(",").map(Number), pause_ms: Number(pause.value) * 1000, probe_present: probe.value === "" ? [] : [probe.value] };
    const sure = await confirm("Start a rollout", [`${visible(name)} as it is now becomes a version, which ${plan.percent.join(" %, then ")} % of the copies get, ${span(plan.pause_ms / 1000)} apart.`, "If a copy's checksum or probe keys are not right, all go back."], "Start");
    if (!sure) return false;
    const made = await post(ofFilter(name, "/rollout"), { plan });
    say(`Version ${made.target} goes out.`);
    return true;
  }, again);
  return h("form", { class: "row", id: "rollout", on: { submit: start } }, field("Shares of copies, %", percent), field("Seconds between", pause), field("Key that must be there", probe), h("button", null, "Start a rollout…"));
}

export async function show(context) {
  const found = await get("/v1/filters?limit=1000", context.signal);
  const names = found.filters.map((filter) => filter.name);
  if (names.length === 0) return [h("h1", null, "Copies"), card(null, h("p", { class: "calm" }, "There is no filter yet, so nobody has a copy."))];
  const name = names.includes(context.name) ? context.name : names[0];
  const choose = h("select", { on: { change: () => { location.hash = `#/sync/${encodeURIComponent(choose.value)}`; } } }, names.map((other) => h("option", { value: other, selected: other === name }, visible(other))));
  const places = { groups: h("div", { class: "figures few" }), replicas: h("div"), rollout: h("div", { "aria-live": "polite" }), versions: h("div"), start: h("div") };
  let seen = {};
  /** Only what changed is drawn again, so that buttons stay where they are. */
  const redraw = (place, value, make) => {
    const text = JSON.stringify(value);
    if (seen[place] === text) return;
    seen[place] = text;
    places[place].replaceChildren(...make().filter(Boolean));
  };
  // What does not come now comes with a later sample, unless the page was left.
  const again = () => look().catch(() => {});
  const look = async () => {
    const of = (rest) => maybe(ofFilter(name, rest), context.signal);
    const [replicas, rollout, versions] = await Promise.all([of("/replicas"), of("/rollout"), of("/versions")]);
    const list = replicas.replicas ?? [];
    redraw("groups", list.map((replica) => replica.strategy), () => byStrategy(list));
    redraw("replicas", replicas, () => [replicas.refusal ? h("p", { class: "calm" }, visible(replicas.refusal.message)) : replicaTable(list)]);
    redraw("rollout", [rollout, list.map((replica) => replica.version)], () => rolloutCard(name, rollout, list, again));
    redraw("versions", versions, () => [versionTable(name, versions, again)]);
    redraw("start", rollout.state === "running", () => [rollout.state === "running" ? null : starter(name, again)]);
  };
  await look();
  let ticks = 0;
  context.live(() => { ticks += 1; if (ticks % EVERY === 0) again(); });
  return [
    h("h1", null, "Copies"),
    h("div", { class: "row" }, field("Filter", choose)),
    places.groups,
    card("Copies", places.replicas),
    h("div", { class: "pair" }, card("Rollout", places.rollout, places.start), card("Versions", places.versions, publishing(name, again))),
  ];
}
