// The ring: slots around a circle, coloured by the nodes that host them, one circle for each copy.

import { h, s } from "./dom.js";

const [SIZE, OUTER, THICK, GAP] = [420, 196, 26, 4];

/** The path of a piece of a ring. */
function piece(from, to, inner, outer) {
  const at = (share, radius) => {
    const angle = share * 2 * Math.PI - Math.PI / 2;
    return `${(SIZE / 2 + radius * Math.cos(angle)).toFixed(2)} ${(SIZE / 2 + radius * Math.sin(angle)).toFixed(2)}`;
  };
  const large = to - from > 0.5 ? 1 : 0;
  return `M${at(from, outer)}A${outer} ${outer} 0 ${large} 1 ${at(to, outer)}L${at(to, inner)}A${inner} ${inner} 0 ${large} 0 ${at(from, inner)}Z`;
}

/** Whether somebody who should serve a partition does not yet. Who need not any more lets go of it later. */
export const moves = (host) => host.wanted.some((name) => !host.serving.includes(name));

/** Draws `slots` slots; slot s is in partition s mod the number of `hosts`. */
export function ring(slots, hosts, nodes) {
  const colour = new Map(nodes.map((node, index) => [node.name, (index % 8) + 1]));
  const copies = Math.max(1, ...hosts.map((host) => host.wanted.length));
  const pieces = [];
  // Slots of a partition stand together.
  const order = Array.from({ length: slots }, (_, slot) => slot).sort((one, other) => (one % hosts.length) - (other % hosts.length) || one - other);
  for (const [place, slot] of order.entries()) {
    const host = hosts[slot % hosts.length];
    const [from, to] = [place / slots, (place + 1) / slots - 0.0004];
    for (let copy = 0; copy < copies; copy += 1) {
      const outer = OUTER - copy * (THICK + GAP);
      const name = host.serving[copy];
      const told = `slot ${slot}, partition ${host.partition}: ${name ?? "nobody"}${copy === 0 ? ", asked first" : ""}`;
      pieces.push(s("path", { class: `piece ${name === undefined ? "none" : `node-${colour.get(name) ?? 8}`}${moves(host) ? " moving" : ""}`, d: piece(from, to, outer - THICK, outer) }, s("title", null, told)));
    }
  }
  const middle = [s("text", { x: SIZE / 2, y: SIZE / 2 - 4, "text-anchor": "middle", class: "large" }, String(nodes.length)), s("text", { x: SIZE / 2, y: SIZE / 2 + 18, "text-anchor": "middle" }, nodes.length === 1 ? "node" : "nodes")];
  const told = `The ring: ${slots} slots in ${hosts.length} partitions on ${nodes.length} nodes, ${copies} copies.`;
  return h("figure", { class: "ring" },
    s("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": told }, pieces, middle),
    h("ul", { class: "legend" }, nodes.map((node) => h("li", { class: `key-node-${colour.get(node.name)}` }, node.name))));
}
