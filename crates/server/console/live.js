// Samples of the server, one a second, while somebody looks at the page.

import { raw } from "./api.js";

const AGAIN_AFTER = [1000, 2000, 5000, 10000];
const listeners = new Set();
const watchers = new Set();
let running = null;
let newest = null;

/** Calls with every sample, the newest one first; gives what ends it. */
export function listen(listener) {
  listeners.add(listener);
  if (newest) listener(newest);
  return () => listeners.delete(listener);
}

/** Calls with how the connection is: live, paused or lost. */
export function watch(watcher) {
  watchers.add(watcher);
}

const tell = (state, why) => watchers.forEach((watcher) => watcher(state, why));

/** Reads events until there are no more. */
async function read(signal) {
  const answer = await raw("GET", "/v1/console/events", { signal });
  const [reader, decoder] = [answer.body.getReader(), new TextDecoder()];
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
      if (data === "") continue;
      newest = JSON.parse(data);
      tell("live");
      listeners.forEach((listener) => listener(newest));
    }
  }
}

async function follow(signal) {
  let failures = 0;
  while (!signal.aborted) {
    const before = newest;
    try {
      await read(signal);
    } catch (error) {
      if (signal.aborted) return;
      tell("lost", error.message);
    }
    failures = newest === before ? failures + 1 : 0;
    await new Promise((done) => setTimeout(done, AGAIN_AFTER[Math.min(failures, AGAIN_AFTER.length - 1)]));
  }
}

/** Begins, or begins anew: with another token, or when the page is looked at again. */
export function start() {
  stop();
  running = new AbortController();
  follow(running.signal);
}

export function stop() {
  running?.abort();
  running = null;
}

// A page that nobody looks at takes no connection.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stop();
    tell("paused");
  } else start();
});
