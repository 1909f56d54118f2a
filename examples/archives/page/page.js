// All that comes from elsewhere is put in as text, never as markup.
"use strict";

const element = (id) => document.getElementById(id);
const made = (name, text, kind) => {
  const node = document.createElement(name);
  node.textContent = text ?? "";
  if (kind) node.className = kind;
  return node;
};

const ask = async (path, method = "GET", body = undefined) => {
  const head = body === undefined ? {} : { "content-type": "application/json" };
  const answer = await fetch(path, { method, headers: head, body: body && JSON.stringify(body) });
  const told = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (!answer.ok) throw new Error(told.error ?? `status ${answer.status}`);
  return told;
};

const time = (us) => (us < 1000 ? `${us} µs` : us < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(1)} s`);
const say = (id, text, isBad = false) => {
  element(id).textContent = text;
  element(id).className = isBad ? "bad" : "";
};

const ORIGINS = { filter: "a filter in memory", network: "the network", source: "the database", cache: "the cache" };

const showArchives = async () => {
  const archives = await ask("/api/archives");
  element("archives").replaceChildren(...archives.map((archive) => {
    const card = made("article", "", "card");
    card.dataset.archive = archive.name;
    card.append(made("strong", archive.name), made("span", `${archive.records.toLocaleString("en")} records`, "records"),
      made("span", archive.http), made("span", `redis-cli -p ${archive.resp.split(":").pop()}`));
    return card;
  }));
  for (const id of ["room", "place"]) {
    if (element(id).options.length === 0) element(id).append(...archives.map((archive) => new Option(archive.name)));
  }
};

const showSteps = (told, total) => {
  const step = (what, began, ended, failed) => {
    const item = made("li");
    const line = made("div", "", "what");
    line.append(made("span", what, failed ? "failed" : ""), made("span", time(ended - began)));
    const bar = made("meter");
    bar.max = Math.max(total, 1);
    bar.value = ended - began;
    item.append(line, bar);
    return item;
  };
  const cached = told.domains.find((domain) => domain.from === "cache");
  const items = [step(`filters of all archives, in memory${cached ? ", and the cache" : ""}`, 0, told.looked_us, false)];
  for (const one of told.steps) {
    const place = one.asked === "source" ? `the database of ${one.domain}` : `${one.domain}, over the network`;
    items.push(step(one.failed ? `${place}: ${one.failed}` : place, one.began_us, one.ended_us, one.failed !== null));
  }
  element("steps").replaceChildren(...items);
};

const showFound = (told) => {
  element("standings").replaceChildren(...told.domains.map((domain) => {
    const row = made("tr");
    const age = domain.age_ms === null ? "unknown" : time(domain.age_ms * 1000);
    const [answer, kind] = domain.domain === told.record?.domain ? ["has it", "has"] : [domain.answer, domain.answer];
    row.append(made("td", domain.domain), made("td", answer, kind), made("td", ORIGINS[domain.from] ?? domain.from), made("td", age));
    return row;
  }));
  showSteps(told, told.took_us);
  const fields = told.record?.fields ?? [];
  element("record").replaceChildren(...fields.flatMap((field) => [made("dt", field.column), made("dd", field.value === null ? "–" : String(field.value))]));
  element("found").hidden = false;
  if (told.record) {
    const from = told.domains.find((domain) => domain.domain === told.record.domain)?.from;
    say("verdict", `${told.record.domain} has it: from ${ORIGINS[from] ?? "there"}, in ${time(told.took_us)}`);
  } else if (told.absent) {
    say("verdict", `No archive has it: certain, after ${time(told.took_us)}`);
  } else {
    say("verdict", "Not known: an archive could not be asked", true);
  }
};

const showHottest = async () => {
  const told = await ask(`/api/hottest?archive=${encodeURIComponent(element("room").value)}`);
  element("hottest").replaceChildren(...told.keys.map((hot) => {
    const item = made("li");
    const again = made("button", typeof hot.key === "string" ? hot.key : "(bytes)");
    again.type = "button";
    again.addEventListener("click", () => find(again.textContent));
    item.append(again, made("span", `${hot.count}×`));
    return item;
  }));
};

const find = async (number) => {
  element("number").value = number;
  try {
    showFound(await ask("/api/lookup", "POST", { archive: element("room").value, number }));
    await showHottest();
  } catch (error) {
    say("verdict", error.message, true);
  }
};

// Watches until every archive knows of a change.
let watching = 0;
const watch = async (place, number, expected) => {
  const [mine, began, learned] = [++watching, performance.now(), new Map()];
  while (mine === watching && performance.now() - began < 15000) {
    const seen = await ask("/api/seen", "POST", { number });
    for (const { archive, domains } of seen) {
      const answer = domains.find((domain) => domain.domain === place)?.answer;
      if (answer === expected && !learned.has(archive)) learned.set(archive, performance.now() - began);
    }
    element("learned").replaceChildren(...seen.map(({ archive }) => {
      const item = made("li");
      item.dataset.archive = archive;
      const after = learned.get(archive);
      item.append(made("span", archive), after === undefined ? made("span", "not yet", "unknown") : made("span", `knows, after ${after.toFixed(0)} ms`, "maybe"));
      return item;
    }));
    if (learned.size === seen.length) return;
    await new Promise((next) => setTimeout(next, 30));
  }
};

element("search").addEventListener("submit", (event) => {
  event.preventDefault();
  find(element("number").value.trim());
});
element("room").addEventListener("change", () => showHottest().catch((error) => say("verdict", error.message, true)));
element("change").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [archive, number, title] = [element("place").value, element("changed").value.trim(), element("title").value.trim()];
  const isErased = event.submitter?.value === "erase";
  try {
    const told = isErased
      ? await ask("/api/records", "DELETE", { archive, number })
      : await ask("/api/records", "POST", { archive, number, title: title || "Untitled" });
    say("changes", `${number} in ${archive}: ${told.done}`);
    await Promise.all([showArchives(), watch(archive, number, isErased ? "absent" : "maybe")]);
  } catch (error) {
    say("changes", error.message, true);
  }
});

showArchives().then(showHottest).catch((error) => say("verdict", error.message, true));
