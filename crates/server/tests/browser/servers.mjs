// Real servers, copies and a Redis client for the console's test. All of them end with it.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const children = [];
const folder = mkdtempSync(join(tmpdir(), "umbel-console-"));

export const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Calls until it gives something that is true. */
export async function until(what, body, seconds = 30) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const found = await body();
    if (found) return found;
    if (Date.now() > end) throw new Error(`it did not come to this: ${what}`);
    await sleep(100);
  }
}

const freePort = () => new Promise((done) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => done(port));
  });
});

/** A process; what it says is shown if it fails. */
function start(program, words, input = "ignore") {
  const child = spawn(program, words, { stdio: [input, "pipe", "pipe"], cwd: folder });
  child.said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => { child.said = (child.said + data).slice(-4000); });
  children.push(child);
  return child;
}

/** A server that is ready. `toml` is its file of settings. */
export async function serve(binary, name, words, toml = "") {
  const [port, http] = [await freePort(), await freePort()];
  writeFileSync(join(folder, `${name}.toml`), toml);
  const child = start(binary, ["serve", "--config", join(folder, `${name}.toml`), "--port", String(port), "--http-port", String(http), "--data", join(folder, name), ...words]);
  const address = `http://127.0.0.1:${http}`;
  await until(`${name} serves`, async () => {
    if (child.exitCode !== null) throw new Error(child.said);
    return fetch(`${address}/readyz`).then((answer) => answer.ok, () => false);
  }, 120);
  return { port, address, child };
}

/** A copy of a filter in a process of its own. */
export const replicate = (binary, address, filter, label, strategy) => start(binary, ["replica", filter, "--server", address, "--strategy", strategy, "--label", label, "--stay"], "pipe");

/** A Redis server, for nodes of a cluster. */
export async function redis() {
  const port = await freePort();
  start("redis-server", ["--port", String(port), "--save", "", "--appendonly", "no", "--dir", folder]);
  await until("Redis answers", () => new Promise((done) => {
    const socket = connect(port, "127.0.0.1", () => { socket.destroy(); done(true); }).on("error", () => done(false));
  }));
  return port;
}

/** A client that speaks RESP: sends commands at once, and waits until each has a reply. */
export async function resp(port, commands) {
  const encoded = commands.map((words) => Buffer.concat([Buffer.from(`*${words.length}\r\n`), ...words.flatMap((word) => {
    const bytes = Buffer.from(word);
    return [Buffer.from(`$${bytes.length}\r\n`), bytes, Buffer.from("\r\n")];
  })]));
  const replies = [];
  await new Promise((done, failed) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(Buffer.concat(encoded)));
    let rest = "";
    socket.on("error", failed).on("data", (data) => {
      rest += data;
      const lines = rest.split("\r\n");
      rest = lines.pop();
      replies.push(...lines.filter((line) => /^[:+-]/.test(line)));
      if (replies.length >= commands.length) {
        socket.destroy();
        done();
      }
    });
  });
  const refused = replies.find((reply) => reply.startsWith("-"));
  if (refused) throw new Error(refused);
  return replies;
}

export async function end() {
  for (const child of children) child.kill("SIGKILL");
  await sleep(200);
  rmSync(folder, { recursive: true, force: true });
}
