// A key tried out: what the filter answers, and the cells that say so, drawn.

import { ofFilter, post } from "./api.js";
import { confirm } from "./confirm.js";
import { field, h, options, s, say } from "./dom.js";
import { bytes, count, visible } from "./words.js";

const [CELL, GAP] = [9, 2];

/** A line of eight words, with the key's cell in each of them. */
function line(touched, cellBits, number) {
  const perWord = 64 / cellBits;
  const [width, height] = [perWord * (CELL + GAP) + 70, 8 * (CELL + GAP) + 4];
  const cells = [];
  let used = 0;
  touched.words.forEach((word, row) => {
    const bits = BigInt(`0x${word}`);
    const mask = (1n << BigInt(cellBits)) - 1n;
    const own = touched.cells[row] / cellBits;
    cells.push(s("text", { x: 0, y: row * (CELL + GAP) + CELL }, `word ${row}`));
    for (let place = 0; place < perWord; place += 1) {
      const isSet = ((bits >> BigInt(place * cellBits)) & mask) !== 0n;
      const isOwn = place === own;
      if (isOwn && isSet) used += 1;
      cells.push(s("rect", { class: `cell${isSet ? " set" : ""}${isOwn ? (isSet ? " own" : " own missing") : ""}`, x: 62 + place * (CELL + GAP), y: row * (CELL + GAP) + 2, width: CELL, height: CELL, rx: 1.5 }));
    }
  });
  const told = `Line ${touched.line}: ${used} of the key's 8 cells are in use.`;
  return h("figure", { class: "array" }, h("figcaption", null, `Line ${count(touched.line)} of ${count(number)}${touched.bank > 0 ? `, bank ${touched.bank}` : ""}: ${used} of 8 cells in use`),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": told }, s("svg", { class: "cells", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": told }, cells)));
}

/** Bits anywhere in an array: where each is, and whether it is set. */
function bits(array) {
  const width = 640;
  const marks = array.touched.map((bit) => {
    const x = 4 + (bit.position / array.bits) * (width - 8);
    return s("line", { class: bit.set ? "own" : "own missing", x1: x, x2: x, y1: 4, y2: 28 });
  });
  const set = array.touched.filter((bit) => bit.set).length;
  const told = `${set} of the key's ${array.hashes} bits are set, in an array of ${count(array.bits)} bits`;
  return h("figure", { class: "array" }, h("figcaption", null, told),
    s("svg", { class: "cells", viewBox: `0 0 ${width} 32`, role: "img", "aria-label": told }, s("rect", { class: "track", x: 0, y: 10, width, height: 12, rx: 3 }), marks),
    h("p", { class: "note" }, array.touched.map((bit) => `${count(bit.position)}${bit.set ? "" : " (not set)"}`).join(", ")));
}

function drawn(told) {
  if (told.arrays === null) return [h("p", { class: "note" }, told.hosts ? `Its arrays are on ${told.hosts.join(" and ")}: open the console there to see them.` : "Its arrays cannot be shown: the filter is a window, or not in memory.")];
  return told.arrays.flatMap((array) => (array.layout === "blocked" ? array.touched.map((touched) => line(touched, array.cell_bits, array.lines)) : [bits(array)]));
}

const VERDICTS = { absent: ["Absent", "It was never added: that is certain."], maybe: ["Maybe", "It was added, or other keys use all of its cells."], unknown: ["Unknown", "The filter cannot be asked at this moment."] };

function verdict(told) {
  const [word, why] = VERDICTS[told.answer];
  const where = `${told.sharded ? `Slot ${told.slot} of ${told.slots}, by the key's fingerprint` : `Slot ${told.slot} of ${told.slots}, where the whole filter lives`}; partition ${told.partition} of ${told.partitions}.`;
  const size = told.arrays?.[0] ? ` Its array there has ${bytes(told.arrays[0].bytes)}.` : "";
  return [h("p", { class: `verdict ${told.answer}` }, h("strong", null, word), " ", why), h("p", { class: "note" }, where + size), h("p", { class: "note mono" }, `fingerprint ${told.fingerprint}`)];
}

export function tryout(name, filter) {
  const input = h("input", { class: "key", autocomplete: "off", spellcheck: "false", required: true });
  const form = h("select", null, options([{ value: "text", name: "text" }, { value: "base64", name: "base64" }]));
  const result = h("div", { id: "tried", "aria-live": "polite" });
  const wanted = () => (form.value === "text" ? input.value : { base64: input.value });
  const ask = async () => {
    const told = await post(ofFilter(name, "/explain"), { key: wanted() });
    result.replaceChildren(...verdict(told), ...drawn(told), h("ul", { class: "legend" }, h("li", { class: "cell-set" }, "in use, by any key"), h("li", { class: "cell-own" }, "this key's, in use"), h("li", { class: "cell-missing" }, "this key's, not in use: so it is absent")));
  };
  const guarded = (work) => async (event) => {
    event?.preventDefault();
    try {
      await work();
    } catch (error) {
      say(error.message, true);
    }
  };
  const change = (what, title, sentence, dangerous) => guarded(async () => {
    if (!(await confirm(title, [sentence(visible(input.value))], title.split(" ")[0], dangerous))) return;
    const told = await post(ofFilter(name, `/${what}`), { keys: [wanted()] });
    const done = told.added ?? told.removed;
    say(what === "add" ? (done === 1 ? "It was new." : "It was there, or is taken for one that was.") : done === 1 ? "It was taken out." : "It was not there.");
    await ask();
  });
  const add = h("button", { type: "button", on: { click: change("add", "Add this key", (key) => `“${key}” will be added to ${visible(name)}, on all nodes and all copies.${filter.kind === "bloom" ? " A Bloom filter cannot take it out again." : ""}`) } }, "Add…");
  const take = h("button", { type: "button", class: "danger", disabled: filter.kind === "bloom", on: { click: change("remove", "Remove this key", (key) => `One occurrence of “${key}” will be taken out of ${visible(name)}.`, true) } }, "Remove…");
  const all = h("form", { class: "row", on: { submit: guarded(ask) } }, field("Key", input), field("As", form), h("button", { class: "primary" }, "Ask"), add, take);
  return h("div", null, all, result);
}
