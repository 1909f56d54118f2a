// The nodes of a cluster: who hosts what, how far behind this one is, and what moves.

import { maybe } from "./api.js";
import { card, figure, h, table } from "./dom.js";
import { moves, ring } from "./ring.js";
import { bytes, count, span, visible } from "./words.js";

const EVERY = 5;

function drawn(told) {
  const moving = told.hosts.filter(moves);
  const oldest = Math.max(0, ...told.here.map((one) => one.age_ms));
  const figures = [
    figure("Nodes", count(told.nodes.length), told.settled ? "all act on the same" : "not all know of the newest change yet"),
    figure("Partitions", count(told.partitions), `${count(told.slots)} slots, ${told.copies} copies`),
    figure("Moves in progress", count(moving.length), moving.length === 0 ? "all who should serve a partition do" : "partitions on their way"),
    figure("Lag of this node", span(oldest / 1000), "since all of the log was folded here, at most"),
  ];
  const nodes = told.nodes.map((node) => [visible(node.name) + (node.name === told.node ? " (this one)" : ""), visible(node.address), visible(node.zone || "–"), count(node.weight), count(node.serves), count(node.wanted), count(node.first), node.isolated ? "isolated" : node.leaving ? "leaving" : "serving"]);
  const moved = moving.map((host) => [String(host.partition), host.serving.map(visible).join(", ") || "nobody", host.wanted.map(visible).join(", ")]);
  const late = told.hosts.filter((host) => host.serving.length > host.wanted.length && !moves(host)).length;
  const here = told.here.map((one) => [String(one.partition), one.first ? "yes" : "no", span(one.age_ms / 1000), bytes(one.uncheckpointed_bytes)]);
  return [
    h("div", { class: "figures" }, figures.map((one) => one.element)),
    h("div", { class: "pair" }, card("The ring", ring(told.slots, told.hosts, told.nodes)), card("Moves in progress", moved.length === 0 ? h("p", { class: "calm" }, late === 0 ? "None." : `None. ${late} partition${late === 1 ? " is" : "s are"} also on a node that will let go of it.`) : table("Moves", ["Partition", "Served by", "Should be on"], moved))),
    card("Nodes", table("Nodes", ["Name", "Address", "Zone", { name: "Weight", number: true }, { name: "Hosts", number: true }, { name: "Should host", number: true }, { name: "Asked first", number: true }, "State"], nodes)),
    card("Partitions on this node", table("Partitions", ["Partition", "Asked first", { name: "Lag", number: true }, { name: "Not in checkpoints", number: true }], here)),
  ];
}

export async function show(context) {
  const place = h("div", null);
  const look = async () => {
    const told = await maybe("/v1/cluster", context.signal);
    if (told.refusal) {
      place.replaceChildren(card(null, h("p", { class: "calm" }, told.refusal.status === 404 ? "This server is not a cluster: it runs by itself, with all slots. The settings cluster, node, log, blobs and registry make it a node of one." : told.refusal.message)));
      return false;
    }
    place.replaceChildren(...drawn(told));
    return true;
  };
  let ticks = 0;
  if (await look()) context.live(() => { ticks += 1; if (ticks % EVERY === 0) look().catch(() => {}); });
  return [h("h1", null, "Cluster"), place];
}
