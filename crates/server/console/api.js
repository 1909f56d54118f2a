// The API of the server that this page came from, with the token that its user gave.

const KEPT = "umbel-token";

/** What the API says that is not what was wanted. */
export class Trouble extends Error {
  constructor(status, code, message) {
    super(message);
    [this.status, this.code] = [status, code];
  }
}

let asker = null;
/** Who asks for a token when one is needed. */
export const askWith = (ask) => { asker = ask; };
export const token = () => sessionStorage.getItem(KEPT);
export function setToken(text) {
  if (text) sessionStorage.setItem(KEPT, text);
  else sessionStorage.removeItem(KEPT);
}

/** A name as a part of a path. Browsers take `.` and `..` for folders, however they are written. */
export function part(name) {
  if (name === "" || name === "." || name === "..") throw new Trouble(0, "name", `browsers cannot ask for a filter that is called “${name}”: use a Redis client`);
  return encodeURIComponent(name);
}

export const ofFilter = (name, rest = "") => `/v1/filters/${part(name)}${rest}`;

/** Sends a request; the answer as it comes. */
export async function raw(method, path, { body, type, signal } = {}) {
  const headers = {};
  const known = token();
  if (known) headers.authorization = `Bearer ${known}`;
  if (body !== undefined) headers["content-type"] = type ?? "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble(0, "network", "the server cannot be reached");
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && asker && (await asker(known !== null))) return raw(method, path, { body, type, signal });
  const told = await answer.json().catch(() => null);
  throw new Trouble(answer.status, told?.error?.code ?? "unknown", told?.error?.message ?? `the server answers ${answer.status}`);
}

async function json(method, path, more) {
  const answer = await raw(method, path, more);
  return answer.status === 204 ? null : answer.json();
}

export const get = (path, signal) => json("GET", path, { signal });
export const post = (path, body) => json("POST", path, { body });
export const put = (path, body) => json("PUT", path, { body });
export const remove = (path) => json("DELETE", path);

/** The same, where nothing may be there. */
export async function maybe(path, signal) {
  try {
    return await get(path, signal);
  } catch (error) {
    if (error.status === 404 || error.status === 403 || error.status === 400) return { refusal: error };
    throw error;
  }
}
