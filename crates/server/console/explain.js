// How a Bloom filter works, drawn, and what one takes.

import { card, field, h } from "./dom.js";
import { sizing } from "./sizing.js";
import { Blocks, Eleven, drawBlocks, drawEleven, drawNumbers } from "./textbook.js";
import { chance, count, visible } from "./words.js";

const FIRST = [25, 159, 585];
const WORDS = ["oak", "elm", "fir", "ash", "yew", "birch", "cedar", "maple", "larch", "rowan", "alder", "hazel", "beech", "aspen", "lime", "plane"];

function eleven() {
  let filter = new Eleven();
  const [picture, numbers] = [h("div", null), h("div", null)];
  const told = h("p", { class: "told", id: "eleven-told", "aria-live": "polite" });
  const input = h("input", { type: "number", min: 0, max: 999999, value: 118, required: true });
  const draw = (asked) => {
    picture.replaceChildren(drawEleven(filter, asked));
    numbers.replaceChildren(drawNumbers(filter));
  };
  const hashes = (number) => {
    const [odd, even] = Eleven.hashes(number);
    return `${number} is ${number.toString(2)} in binary; every other digit gives ${Eleven.digits(number, 0)} and ${Eleven.digits(number, 1)}, which modulo 11 are bits ${odd} and ${even}`;
  };
  const add = (number) => {
    filter.add(number);
    told.textContent = `Added. ${hashes(number)}: both are set now.`;
    draw(number);
  };
  const ask = () => {
    const number = Number(input.value);
    const answer = !filter.has(number) ? "One of them is 0: it was never added, for certain." : filter.keys.has(number) ? "Both are 1: maybe. It was added." : `Both are 1: maybe. But nobody added it: others set these bits (${[...new Set(Eleven.hashes(number).map((bit) => [...filter.bits[bit]][0]))].join(" and ")}). That is a false positive.`;
    told.textContent = `${hashes(number)}. ${answer}`;
    draw(number);
  };
  const next = () => {
    const number = FIRST.find((one) => !filter.keys.has(one)) ?? Math.floor(Math.random() * 1000);
    add(number);
  };
  const empty = () => {
    filter = new Eleven();
    told.textContent = "All bits are 0: every number is absent.";
    draw();
  };
  empty();
  const form = h("form", { class: "row", on: { submit: (event) => { event.preventDefault(); ask(); } } },
    h("button", { type: "button", class: "primary", on: { click: next } }, "Add the next number"),
    field("Number", input), h("button", null, "Ask"), h("button", { type: "button", on: { click: () => add(Number(input.value)) } }, "Add it"), h("button", { type: "button", class: "quiet", on: { click: empty } }, "Empty it"));
  return card("Eleven bits", h("p", null, "A filter does not keep keys. It keeps bits: a key is hashed to a few places, and adding it sets these bits to 1. Asking looks whether all of them are 1. The textbooks' example has eleven bits and two hash functions, which take every other binary digit of a number, modulo eleven, and adds 25, 159 and 585."), form, picture, told, numbers);
}

function blocked() {
  let filter = new Blocks();
  const picture = h("div", null);
  const told = h("p", { class: "told", id: "blocks-told", "aria-live": "polite" });
  const input = h("input", { value: "willow", required: true, autocomplete: "off" });
  const draw = (asked, text) => {
    picture.replaceChildren(drawBlocks(filter, asked));
    told.textContent = `${text} ${count(filter.keys.size)} keys; of 1,000 keys that were never added, it takes ${chance(filter.wrong(1000) * 100)} % for one that was.`;
  };
  const add = (text) => {
    filter.add(text);
    draw(text, `“${visible(text)}” is in line ${Blocks.place(text).line}, and sets one bit in each word of it.`);
  };
  const next = () => add(WORDS.find((word) => !filter.keys.has(word)) ?? `tree ${filter.keys.size}`);
  const ask = () => {
    const answer = !filter.has(input.value) ? "absent, for certain" : filter.keys.has(input.value) ? "maybe, and it was added" : "maybe, but nobody added it: a false positive";
    draw(input.value, `“${visible(input.value)}”: ${answer}. One line was looked at.`);
  };
  const empty = () => {
    filter = new Blocks();
    draw(undefined, "Empty.");
  };
  empty();
  const form = h("form", { class: "row", on: { submit: (event) => { event.preventDefault(); ask(); } } },
    h("button", { type: "button", class: "primary", on: { click: next } }, "Add the next word"), field("Word", input), h("button", null, "Ask"), h("button", { type: "button", on: { click: () => add(input.value) } }, "Add it"), h("button", { type: "button", class: "quiet", on: { click: empty } }, "Empty it"));
  return card("In blocks", h("p", null, "Bits anywhere in a large array are as many waits for memory. So Umbel chooses one cache line of 64 bytes for a key, and one bit in each of its eight words: a lookup waits once. Some lines get more keys than others, which costs a few percent of memory. Here is a small one, with eight lines of four words."), form, picture, told);
}

export async function show() {
  return [h("h1", null, "How it works"), h("p", { class: "lead" }, "“Absent” is certain. “Maybe” is wrong now and then, and you choose how often."), eleven(), blocked(), card("What would yours take?", sizing())];
}
