// What the modules of the page share. Every text of a checkpoint goes in through textContent, never as markup.

export const byId = (id) => document.getElementById(id);

// Which step of a run the page shows; empty otherwise.
export const step = new URLSearchParams(location.search).get("step") || "";

export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...there(children));
  return made;
}
// What is false, null or empty is left out.
const there = (children) => children.filter((child) => child || child === 0).map((child) => (typeof child === "string" ? printable(child) : child));

// Control characters, and the invisible and bidirectional ones that make a name look like another one, as the other verbs show them.
export const printable = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, (c) => "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0"))
  .replace(/[\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16));
export const fill = (node, ...children) => node.replaceChildren(...there(children));

export function address(path, parameters) {
  const query = new URLSearchParams(parameters || {});
  if (step) query.set("step", step);
  const text = query.toString();
  return "api/" + path + (text ? "?" + text : "");
}

// The token of the address is in its fragment, which goes nowhere. It is kept for this tab and this address (port included), and taken out of
// what is seen and bookmarked. A browser that keeps nothing asks for the printed address again when the page is loaded again.
const secret = takeToken();
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    history.replaceState(null, "", location.pathname + location.search);
    try { sessionStorage.setItem("token", given); } catch { /* not kept */ }
    return given;
  }
  try { return sessionStorage.getItem("token") || ""; } catch { return ""; }
}
// Another address of this server, given to a tab that shows it already, is only another fragment.
addEventListener("hashchange", () => { if (location.hash.startsWith("#token=")) location.reload(); });
async function ask(path, parameters, more) {
  try {
    return await fetch(address(path, parameters), { ...more, headers: { ...more?.headers, "X-Shardscope-Token": secret } });
  } catch {
    throw new Error("The server does not answer.");
  }
}

// Options that a hint names, as the fields of this page's forms; what stands in a command stays.
const fields = { overwrite: "Overwrite", resume: "Resume", strict: "Leave nothing out", "weights-only": "Weights only", "skip-damaged": "Skip what is damaged", mesh: "Mesh", shard: "Sharding",
  stage: "Stages", select: "Only tensors", exclude: "Without tensors", rename: "Rename", dtype: "Cast", map: "Names", set: "Recipe parameters", "fill-gaps": "Gaps", "master-weights": "fp32 masters", dequantize: "Quantized weights", adapter: "LoRA adapter" };
export const advice = (text) => text.replace(/'[^']*'|--([a-z][a-z-]*)/g, (all, name) => (fields[name] ? "“" + fields[name] + "”" : all));

// Errors of the server as their message and hint.
async function checked(answer) {
  if (answer.ok) return answer;
  const text = await answer.text();
  let said = null;
  try { said = JSON.parse(text); } catch { /* plain words */ }
  const error = new Error(said && said.message ? advice(said.message) + (said.hint ? " (" + advice(said.hint) + ")" : "") : text.trim() || "error " + answer.status);
  error.status = answer.status;
  throw error;
}
export const get = async (path, parameters) => (await checked(await ask(path, parameters))).json();
export const getBytes = async (path, parameters) => new Uint8Array(await (await checked(await ask(path, parameters))).arrayBuffer());
export async function post(path, body, parameters) {
  const answer = await ask(path, parameters, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  return (await checked(answer)).json();
}

// Follows the documents that the server sends as they change (server-sent events; EventSource cannot send the token). Asks again when it ends,
// and at once when listenAgain() is called.
export let listenAgain = () => {};
export async function listen(path, told, opened, lost) {
  for (;;) {
    let why = null;
    try {
      const reader = (await checked(await ask(path))).body.pipeThrough(new TextDecoderStream()).getReader();
      opened();
      for (let text = "";;) {
        const { value, done } = await reader.read();
        if (done) break;
        const events = (text + value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const said = /^event: (.*)\ndata: (.*)$/.exec(event);
          if (said) told(said[1], JSON.parse(said[2]));
        }
      }
    } catch (error) { why = error; }
    lost(why);
    await new Promise((again) => { listenAgain = again; setTimeout(again, 3000); });
  }
}

// Sizes and times as window and command line write them (core/base/units.h).
export function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (bytes >= 1023.95 && unit + 1 < units.length) { bytes /= 1024; ++unit; }
  return (unit === 0 ? bytes : bytes.toFixed(bytes < 10 ? 2 : 1)) + " " + units[unit];
}
export const countText = (n) => n.toLocaleString("en");
// "8.03 B"
export function bigCount(n) {
  const [unit, name] = [[1e12, " T"], [1e9, " B"], [1e6, " M"]].find(([least]) => n >= least) || [1, ""];
  return name ? (n / unit).toFixed(2) + name : countText(n);
}
export const counted = (n, one, many) => countText(n) + " " + (n === 1 ? one : many);
export function timeText(seconds) {
  if (!(seconds >= 0)) return "";
  if (seconds < 0.0009995) return (seconds * 1e6).toFixed(0) + " us";
  if (seconds < 0.9995) return (seconds * 1e3).toFixed(0) + " ms";
  const whole = Math.round(seconds);
  if (seconds < 59.95) return seconds.toFixed(1) + " s";
  if (seconds < 3600) return Math.floor(whole / 60) + " min " + whole % 60 + " s";
  return Math.floor(whole / 3600) + " h " + Math.floor(whole % 3600 / 60) + " min";
}
// When something was, in the time of this machine: "2026-11-26 14:05".
export function momentText(utc) {
  const at = new Date(utc), two = (n) => String(n).padStart(2, "0");
  return at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate()) + " " + two(at.getHours()) + ":" + two(at.getMinutes());
}
export const numberText = (value) => (typeof value === "number" ? (Number.isInteger(value) && Math.abs(value) < 1e9 ? countText(value) : value.toPrecision(6)) : String(value ?? "–"));
export const shapeText = (shape) => "[" + shape.join(", ") + "]";
export function boxText(part) {
  const box = part.flat || part;
  const text = "[" + box.offsets.map((from, d) => from + ":" + (from + box.lengths[d])).join(", ") + "]";
  return part.flat ? text + " elements " + part.flat.start + ".." + part.flat.stop : text;
}

// A drawing of the server as a part of the page, which has its colors.
export const drawnBy = (bytes) => document.adoptNode(new DOMParser().parseFromString(new TextDecoder().decode(bytes), "image/svg+xml").documentElement);

// Columns are names, or {text, number, keep, lead}. On a narrow screen the cells of a row with many columns stand one after the other, each
// behind its column's name, and those that lead come first without it.
export function table(columns, rows) {
  const kinds = columns.map((column) => (typeof column === "string" ? { text: column } : column));
  const style = (kind) => (kind.number ? "number" : kind.keep ? "keep" : kind.lead ? "lead" : null);
  const head = element("tr", {}, ...kinds.map((kind) => element("th", { class: kind.number ? "number" : null, scope: "col" }, kind.text)));
  const body = element("tbody", {}, ...rows.map((cells) => element("tr", {}, ...cells.map((cell, i) => element("td", { class: style(kinds[i]), "data-column": kinds[i].text }, cell ?? "")))));
  return element("div", { class: "wide" }, element("table", { class: kinds.length > 3 ? "stacked" : null }, element("thead", {}, head), body));
}

export const button = (text, onclick, attributes) => element("button", { type: "button", onclick, ...attributes }, text);

// Leads from one entry back to its list; Escape does what it does. A user of the keyboard continues from it.
export function back(text, onclick) {
  const made = button(text, onclick, { class: "link", "data-escape": true });
  queueMicrotask(() => { if (document.activeElement === document.body) made.focus(); });
  return element("p", {}, made);
}

// Names that a list is filtered by; `go(pattern)` shows them.
export function filterBar(id, title, pattern, like, go, ...more) {
  const field = element("input", { type: "text", id, value: pattern, spellcheck: "false", autocomplete: "off" });
  return element("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); go(field.value || "*"); } },
    element("label", { for: id }, title), field, element("button", {}, "Filter"), ...more,
    element("span", { class: "quiet small" }, "a pattern such as ", element("code", {}, like), ", or ", element("code", {}, "re:"), " and a regular expression"));
}

// One page of a long list; `go(first)` shows another.
export function pager(first, count, total, what, go) {
  if (total <= count && first === 0) return null;
  const last = Math.min(total, first + count);
  return element("div", { class: "pager" },
    button("Earlier", () => go(Math.max(0, first - count)), { disabled: first === 0 }),
    button("Later", () => go(first + count), { disabled: last >= total }),
    element("span", { class: "quiet" }, countText(first + 1) + "–" + countText(last) + " of " + countText(total) + " " + what));
}

// The value of a color variable of page.css, as numbers, in the present theme.
const probe = element("span", { hidden: true });
export function color(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = "var(--" + name + ")";
  return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
}
export const css = ([r, g, b], alpha = 1) => "rgba(" + r + "," + g + "," + b + "," + alpha + ")";

// What all modules know of the server and of what it shows.
// `lost`: since when the server does not answer, and why; null while it does.
export const shown = { lost: null, page: null, info: null, findings: null, ready: null, accepted: null, rules: {}, run: null, several: null };
export const allowed = () => shown.page.allow_jobs;

// Who is told when one of them changes.
const followers = {};
export const follow = (name, told) => (followers[name] ||= []).push(told);
export function change(name, value) {
  shown[name] = value;
  for (const told of followers[name] || []) told(value);
}
export const tell = (name, value) => { for (const told of followers[name] || []) told(value); };
