// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them, and strings of others as they may be shown. Nothing here knows the page.

const NONE = "–";

function known(x) {
  return typeof x === "number" && isFinite(x);
}

// 12 345 with thin spaces; small numbers keep up to three figures.
export function number(x) {
  if (!known(x)) return NONE;
  const size = Math.abs(x);
  if (size >= 100 || Number.isInteger(x))
    return Math.round(x)
      .toString()
      .replace(/\B(?=(\d{3})+$)/g, "\u202f");
  if (size >= 10) return x.toFixed(1);
  return size >= 1 ? x.toFixed(2) : size === 0 ? "0" : x.toPrecision(2);
}

// For counts that only need an idea of their size: 1.2 M.
export function short(x) {
  if (!known(x)) return NONE;
  for (const [limit, unit] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e4, "k"],
  ])
    if (Math.abs(x) >= limit) {
      const scaled = x / (limit === 1e4 ? 1e3 : limit);
      return scaled.toFixed(scaled >= 100 ? 0 : 1) + "\u202f" + unit;
    }
  return number(x);
}

export function bytes(x) {
  if (!known(x)) return NONE;
  let unit = 0;
  while (Math.abs(x) >= 1000 && unit < 5) {
    x /= 1024;
    unit++;
  }
  const figures = unit === 0 || x >= 100 ? 0 : x >= 10 ? 1 : 2;
  return x.toFixed(figures) + "\u202f" + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit];
}

// A time that something takes: 310 µs, 3.1 ms, 2.5 s.
export function seconds(x) {
  if (!known(x)) return NONE;
  if (x === 0) return "0";
  const [scaled, unit] = x < 0.9995e-3 ? [x * 1e6, "µs"] : x < 0.9995 ? [x * 1e3, "ms"] : [x, "s"];
  if (scaled >= 1000) return duration(x);
  return scaled.toFixed(scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2) + "\u202f" + unit;
}

// A time that went by: 42 s, 3 min 05 s, 2 h 14 min, 3 d 4 h.
export function duration(x) {
  if (!known(x)) return NONE;
  const s = Math.floor(x);
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return `${s}\u202fs`;
  if (s < 3600) return `${Math.floor(s / 60)}\u202fmin ${two(s % 60)}\u202fs`;
  if (s < 86400) return `${Math.floor(s / 3600)}\u202fh ${two(Math.floor(s / 60) % 60)}\u202fmin`;
  return `${Math.floor(s / 86400)}\u202fd ${Math.floor(s / 3600) % 24}\u202fh`;
}

export function percent(x) {
  if (!known(x)) return NONE;
  const p = x * 100;
  return (p > 0 && p < 9.95 ? p.toFixed(1) : p.toFixed(0)) + "\u202f%";
}

export function clock(unix) {
  return known(unix) ? new Date(unix * 1000).toTimeString().slice(0, 8) : NONE;
}

// Sample keys and messages are anybody's bytes. What would move the text around or is not to be seen is spelled out.
export function visible(text, most = 400) {
  const whole = String(text ?? "");
  const cut = whole.length > most ? whole.slice(0, most) + "…" : whole;
  return cut.replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")
  );
}

// The last part of a path, which is what tells datasets apart.
export function lastPart(path) {
  const parts = String(path ?? "")
    .split("/")
    .filter(Boolean);
  return visible(parts.length ? parts[parts.length - 1] : path || "dataset", 60);
}

// "decode_seconds" is shown as "decode" with a time: a name says what its number is.
const perSecond = (x) => number(x) + "/s";
const KINDS = [
  [/^seconds$/, "measured over", seconds],
  [/_bytes_per_second$/, "", (x) => bytes(x) + "/s"],
  [/_per_second$/, "", perSecond],
  [/_seconds$/, "", seconds],
  [/_bytes$/, "", bytes],
  [/^waited_for_|^stall$|^share$|_found$|_share$|_ratio$/, null, percent],
  [/(^|_)rate$/, null, perSecond],
];

// What is called so, and its value, for people. The middle of a kind: what the part that matched is shown as; null: as
// it is.
export function named(name, value) {
  const [match, word, display] = KINDS.find((kind) => kind[0].test(name)) ?? [/^$/, null, number];
  const plain = word === null ? name : name.replace(match, word);
  return [visible(plain, 60).replace(/_/g, " "), display(value)];
}
