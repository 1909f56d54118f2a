// Which page is shown, and what all pages share.

import { askWith } from "./api.js";
import { askToken } from "./confirm.js";
import { h } from "./dom.js";
import * as live from "./live.js";

const PAGES = {
  overview: () => import("./overview.js"),
  filters: () => import("./filters.js"),
  filter: () => import("./filter.js"),
  cluster: () => import("./cluster.js"),
  sync: () => import("./sync.js"),
  lookups: () => import("./lookups.js"),
  slowlog: () => import("./slowlog.js"),
  settings: () => import("./settings.js"),
  explain: () => import("./explain.js"),
};

let leave = () => {};

/** What the address says: a page, and a name. */
function route() {
  const [page, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  let name = "";
  try {
    name = decodeURIComponent(rest.join("/"));
  } catch {
    // An address that nobody made here.
  }
  if (page === "filters" && rest.length > 0) return { page: "filter", name };
  return { page: page in PAGES ? page : "overview", name };
}

async function show() {
  if (location.hash === "#main") return;
  leave();
  const { page, name } = route();
  const main = document.getElementById("main");
  const gone = new AbortController();
  const ends = [];
  leave = () => {
    gone.abort();
    ends.forEach((end) => end());
  };
  for (const link of document.querySelectorAll("[data-page]")) {
    const isHere = link.dataset.page === page || (page === "filter" && link.dataset.page === "filters");
    if (isHere) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  const context = {
    signal: gone.signal,
    name,
    /** Calls with samples while the page is shown. */
    live: (listener) => gone.signal.aborted || ends.push(live.listen(listener)),
    again: show,
  };
  try {
    const module = await PAGES[page]();
    const shown = await module.show(context);
    if (gone.signal.aborted) return;
    main.replaceChildren(...[shown].flat());
    document.title = `${main.querySelector("h1")?.textContent ?? "Umbel"} · Umbel`;
    module.shown?.(context);
    if (show.wasHere) main.focus({ preventScroll: true });
    show.wasHere = true;
  } catch (error) {
    if (gone.signal.aborted) return;
    main.replaceChildren(h("h1", null, "This cannot be shown"), h("p", { class: "problem", role: "alert" }, error.message),
      h("button", { type: "button", on: { click: show } }, "Try again"));
  }
}

const WORDS = { live: "live", paused: "paused", lost: "not connected" };
live.watch((state, why) => {
  const place = document.getElementById("link");
  const text = WORDS[state];
  if (place.textContent !== text) place.textContent = text;
  place.className = `dot ${state}`;
  place.title = why ?? "";
});

askWith(askToken);
document.getElementById("token").addEventListener("click", async () => {
  await askToken(false);
  live.start();
  show();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
addEventListener("hashchange", show);
live.start();
show();
