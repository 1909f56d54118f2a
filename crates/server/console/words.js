// Numbers, sizes and times as people read them.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SOME = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const count = (number) => (number === null || number === undefined ? "–" : WHOLE.format(number));

/** A rate: exact where it is small, short where it is large. */
export function rate(number) {
  if (!Number.isFinite(number)) return "–";
  if (number >= 1e9) return `${SOME.format(number / 1e9)} bn`;
  if (number >= 1e6) return `${SOME.format(number / 1e6)} M`;
  if (number >= 1e4) return `${SOME.format(number / 1e3)} k`;
  return number >= 100 ? WHOLE.format(number) : SOME.format(number);
}

/** A size of memory. */
export function bytes(number) {
  if (!Number.isFinite(number)) return "–";
  let unit = 0;
  while (number >= 1024 && unit < UNITS.length - 1) [number, unit] = [number / 1024, unit + 1];
  return `${unit === 0 ? WHOLE.format(number) : SOME.format(number)} ${UNITS[unit]}`;
}

export const percent = (share) => (Number.isFinite(share) ? `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %` : "–");

/** An error rate. */
export function chance(number) {
  if (!Number.isFinite(number)) return "–";
  if (number === 0) return "0";
  return number < 0.001 ? number.toExponential(1) : SOME.format(number);
}

/** A time as one says it. */
export function span(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  for (const [unit, name] of [[86400, "day"], [3600, "hour"], [60, "minute"]]) {
    if (seconds >= 2 * unit) return `${Math.round(seconds / unit)} ${name}s`;
  }
  return seconds < 10 ? `${SOME.format(seconds)} s` : `${Math.round(seconds)} seconds`;
}

export const clock = (milliseconds) => new Date(milliseconds).toLocaleTimeString("en-GB");
export const date = (milliseconds) => new Date(milliseconds).toLocaleString("en-GB");

/** A key as the API gives it: text, or bytes in base64. */
export const key = (value) => (typeof value === "string" ? value : `base64:${value.base64}`);

/** What can be seen of a text: letters that are not printed are written out. */
export const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);
