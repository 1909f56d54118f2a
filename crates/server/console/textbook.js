// Two small filters that can be looked at bit by bit: the textbook's with eleven bits, and a blocked one.

import { h, s } from "./dom.js";

/** Eleven bits and two hash functions: the odd and the even binary digits of a number, each modulo eleven. */
export class Eleven {
  static BITS = 11;
  bits = Array.from({ length: Eleven.BITS }, () => new Set());
  keys = new Set();

  static digits(number, first) {
    const binary = number.toString(2).split("").reverse();
    return binary.filter((_, place) => place % 2 === first).reverse().join("") || "0";
  }

  static hashes(number) {
    return [0, 1].map((first) => Number.parseInt(Eleven.digits(number, first), 2) % Eleven.BITS);
  }

  add(number) {
    this.keys.add(number);
    Eleven.hashes(number).forEach((bit) => this.bits[bit].add(number));
  }

  has(number) {
    return Eleven.hashes(number).every((bit) => this.bits[bit].size > 0);
  }
}

/** Eight lines of four words of eight bits; a key has one line, and one bit in each word of it. */
export class Blocks {
  static LINES = 8;
  static WORDS = 4;
  static BITS = 8;
  lines = Array.from({ length: Blocks.LINES }, () => Array.from({ length: Blocks.WORDS }, () => new Array(Blocks.BITS).fill(false)));
  keys = new Set();

  /** Thirty-two bits of a text that look like chance. */
  static hash(text, seed) {
    let hash = 0x811c9dc5 ^ seed;
    for (const letter of text) hash = Math.imul(hash ^ letter.codePointAt(0), 0x01000193);
    hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
    return (hash ^ (hash >>> 16)) >>> 0;
  }

  static place(text) {
    const cells = Blocks.hash(text, 77);
    return { line: Blocks.hash(text, 1) % Blocks.LINES, bits: Array.from({ length: Blocks.WORDS }, (_, word) => (cells >>> (word * 3)) & 7) };
  }

  add(text) {
    const { line, bits } = Blocks.place(text);
    bits.forEach((bit, word) => { this.lines[line][word][bit] = true; });
    this.keys.add(text);
  }

  has(text) {
    const { line, bits } = Blocks.place(text);
    return bits.every((bit, word) => this.lines[line][word][bit]);
  }

  /** The share of keys nobody added that are taken for one, of so many. */
  wrong(tried) {
    let wrong = 0;
    for (let number = 0; number < tried; number += 1) wrong += this.has(`never added ${number}`) ? 1 : 0;
    return wrong / tried;
  }
}

/** The eleven bits, with those of a number marked. */
export function drawEleven(filter, asked) {
  const marked = asked === undefined ? [] : Eleven.hashes(asked);
  const boxes = filter.bits.map((keys, bit) => {
    const isOwn = marked.includes(bit);
    const classes = `cell${keys.size > 0 ? " set" : ""}${isOwn ? (keys.size > 0 ? " own" : " own missing") : ""}`;
    return s("g", null, s("rect", { class: classes, x: 4 + bit * 46, y: 22, width: 40, height: 40, rx: 4 }), s("text", { class: `bit${keys.size > 0 ? " in" : ""}`, x: 24 + bit * 46, y: 47, "text-anchor": "middle" }, keys.size > 0 ? "1" : "0"), s("text", { x: 24 + bit * 46, y: 15, "text-anchor": "middle" }, String(bit)), s("text", { class: "who", x: 24 + bit * 46, y: 78, "text-anchor": "middle" }, [...keys].slice(0, 2).join(" ") + (keys.size > 2 ? "…" : "")));
  });
  const told = `Bits: ${filter.bits.map((keys) => (keys.size > 0 ? 1 : 0)).join("")}`;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Eleven bits" }, s("svg", { class: "cells eleven", viewBox: "0 0 512 84", role: "img", "aria-label": told }, boxes));
}

/** Numbers up to 199: those that were added, those that are taken for one, and those that are certainly absent. */
export function drawNumbers(filter) {
  const boxes = [];
  let wrong = 0;
  for (let number = 0; number < 200; number += 1) {
    const kind = filter.keys.has(number) ? "added" : filter.has(number) ? "wrong" : "right";
    if (kind === "wrong") wrong += 1;
    boxes.push(s("rect", { class: `answer ${kind}`, x: (number % 40) * 13, y: Math.floor(number / 40) * 13, width: 11, height: 11, rx: 2 }, s("title", null, `${number}: ${kind === "added" ? "added" : kind === "wrong" ? "never added, but maybe" : "absent"}`)));
  }
  const absent = 200 - [...filter.keys].filter((number) => number < 200).length;
  const told = `Of the numbers from 0 to 199, ${wrong} of the ${absent} that were never added are taken for one that was: ${Math.round((wrong / absent) * 100)} %.`;
  return h("figure", { class: "numbers" }, s("svg", { viewBox: "0 0 519 64", role: "img", "aria-label": told }, boxes),
    h("figcaption", { id: "wrong-numbers" }, told),
    h("ul", { class: "legend" }, h("li", { class: "answer-added" }, "added"), h("li", { class: "answer-wrong" }, "never added, but “maybe”"), h("li", { class: "answer-right" }, "certainly absent")));
}

/** The small blocked filter, with the cells of a key marked. */
export function drawBlocks(filter, asked) {
  const marked = asked === undefined ? null : Blocks.place(asked);
  const [cell, gap] = [14, 3];
  const lines = filter.lines.map((words, line) => {
    const isTouched = marked?.line === line;
    const y = line * (cell + 12) + 4;
    const boxes = words.flatMap((bits, word) => bits.map((isSet, bit) => {
      const isOwn = isTouched && marked.bits[word] === bit;
      return s("rect", { class: `cell${isSet ? " set" : ""}${isOwn ? (isSet ? " own" : " own missing") : ""}`, x: 60 + word * (8 * (cell + gap) + 10) + bit * (cell + gap), y, width: cell, height: cell, rx: 2 });
    }));
    return s("g", null, s("rect", { class: isTouched ? "touched" : "untouched", x: 54, y: y - 4, width: 4 * (8 * (cell + gap) + 10), height: cell + 8, rx: 4 }), s("text", { x: 0, y: y + 11 }, `line ${line}`), boxes);
  });
  const told = marked === null ? "Eight lines of four words" : `The key touches line ${marked.line} alone`;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "A small blocked filter" }, s("svg", { class: "cells", viewBox: "0 0 650 212", width: 650, height: 212, role: "img", "aria-label": told }, lines));
}
