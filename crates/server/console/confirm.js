// Dialogs: nothing is changed before somebody said so, and the first button is the one that does nothing.

import { setToken, token } from "./api.js";
import { field, h } from "./dom.js";

function open(dialog) {
  const before = document.activeElement;
  document.body.append(dialog);
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      before?.focus?.();
      done(dialog.returnValue);
    });
    dialog.showModal();
  });
}

function framed(title, body, act, isDangerous) {
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" });
  const form = h("form", { method: "dialog" },
    h("h2", { id: "dialog-title" }, title),
    ...body,
    h("div", { class: "buttons" },
      h("button", { type: "button", autofocus: true, class: "quiet", on: { click: () => dialog.close("") } }, "Cancel"),
      h("button", { type: "submit", value: "yes", class: isDangerous ? "danger" : "primary" }, act)));
  dialog.append(form);
  return dialog;
}

/** Asks whether something is to be done: a title, sentences of what will happen, and the word for doing it. */
export async function confirm(title, sentences, act, isDangerous = false) {
  return (await open(framed(title, sentences.map((sentence) => h("p", null, sentence)), act, isDangerous))) === "yes";
}

let asking = null;
/** Asks for a token; true if there is another one. Whoever asks meanwhile waits for the same answer. */
export function askToken(wasRefused) {
  asking ??= ask(wasRefused).finally(() => { asking = null; });
  return asking;
}

async function ask(wasRefused) {
  const input = h("input", { type: "password", autocomplete: "off", spellcheck: "false", value: "" });
  const why = wasRefused ? "The token that you gave is not known, or has expired." : "This server asks who you are.";
  const dialog = framed("Token", [
    h("p", null, why),
    field("Bearer token", input, "It begins with umbel_ and is kept in this tab only. POST /v1/tokens makes one."),
    token() && h("button", { type: "button", class: "quiet", on: { click: () => { setToken(null); dialog.close(""); } } }, "Forget the token"),
  ].filter(Boolean), "Use it");
  if ((await open(dialog)) !== "yes" || input.value.trim() === "") return false;
  setToken(input.value.trim());
  return true;
}
