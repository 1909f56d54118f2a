// Elements made from data. Text is always text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "text") element.textContent = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element of HTML: h("p", { class: "note", on: { click } }, "text", child). */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** The same for a picture. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** A table with a caption for those who do not see it; rows are arrays of text or elements. */
export function table(caption, columns, rows) {
  const head = columns.map((column) => h("th", { scope: "col", class: column.number && "number" }, column.name ?? column));
  const cell = (value, index) => (index === 0 ? h("th", { scope: "row" }, value ?? "") : h("td", { class: columns[index]?.number && "number" }, value ?? ""));
  const body = rows.map((row) => h("tr", null, row.map(cell)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", { class: "hidden" }, caption), h("thead", null, h("tr", null, head)), h("tbody", null, body)));
}

/** A figure with its name below it. */
export function figure(name, value, note) {
  const number = h("span", { class: "value" });
  const more = h("span", { class: "note" }, note ?? "");
  const set = (text, extra) => {
    number.textContent = text;
    number.classList.toggle("long", text.length > 12);
    if (extra !== undefined) more.textContent = extra;
  };
  set(value);
  return { element: h("div", { class: "figure" }, h("span", { class: "name" }, name), number, more), set };
}

/** How much of something is used, drawn and said. */
export function bar(share, label) {
  const percent = Math.max(0, Math.min(1, share || 0)) * 100;
  const level = percent >= 95 ? "bad" : percent >= 80 ? "warning" : "good";
  return s("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "track", width: 100, height: 8 }), s("rect", { class: level, width: percent.toFixed(2), height: 8 }));
}

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", null, title), ...children);

/** A field with its name; what is put in is read from the second. */
export function field(name, input, note) {
  const id = `field-${(field.count = (field.count ?? 0) + 1)}`;
  input.id = id;
  if (note) input.setAttribute("aria-describedby", `${id}-note`);
  return h("div", { class: "field" }, h("label", { for: id }, name), input, note && h("span", { class: "note", id: `${id}-note` }, note));
}

export const options = (values) => values.map((value) => h("option", { value: value.value ?? value }, value.name ?? value));

/** A word at the foot of the page, which readers of screens hear, too. */
export function say(text, isBad = false) {
  const place = document.getElementById("said");
  place.textContent = text;
  place.classList.toggle("bad", isBad);
  place.classList.add("shown");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => {
    place.textContent = "";
    place.classList.remove("shown");
  }, 6000);
}
