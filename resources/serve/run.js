// The steps of a run: which are whole, how they follow one another, and which one to resume from.
import { averageOf } from "./average.js";
import { allowed, button, byId, bytesText, counted, countText, drawnBy, element, fill, get, getBytes, momentText, printable, shown, table, timeText } from "./common.js";

const marks = { safe: "✓", care: "▲", unsafe: "✕" }, verdicts = { safe: "whole", care: "resume with care", unsafe: "do not resume" };
const kHeight = 150, kLeft = 12, kTop = 40, kBottom = 26, kHead = 16;
const picked = new Set();  // names of steps that are to be compared

const sinceText = (step) => step.seconds_since_previous == null ? "" : step.seconds_since_previous < 1 ? "< 1 s" : timeText(step.seconds_since_previous);
function ranksText(step) {
  if (step.ranks == null) return "";
  const meshes = step.mesh && step.mesh_before && step.mesh !== step.mesh_before;
  const text = (ranks, mesh) => countText(ranks) + (meshes ? " (" + mesh + ")" : "");
  return text(step.ranks, step.mesh) + (step.ranks_before == null ? "" : ", before " + text(step.ranks_before, step.mesh_before));
}
const savedText = (step) => step.saved ? momentText(step.saved) : "unknown";
export const addressOf = (step) => "?step=" + encodeURIComponent(step.name);

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child));
  return made;
}

// Bars at the times of the saves, as high as the steps are large; by their order where times do not tell.
function timeline(run, width) {
  const steps = run.steps.slice().reverse();
  const timed = steps.every((step) => step.saved) && (steps.length === 1 || new Set(steps.map((step) => step.saved)).size > 1);
  const at = (step, i) => timed ? Date.parse(step.saved) : i;
  const placed = steps.map((step, i) => ({ step, at: at(step, i) })).sort((a, b) => a.at - b.at);
  const from = placed[0].at, to = placed[placed.length - 1].at;
  const most = Math.max(1, ...steps.map((step) => step.bytes));
  const bar = Math.max(1, Math.min(9, Math.floor((width - 2 * kLeft) / steps.length / 2)));
  const base = kHeight - kBottom;
  for (const one of placed) {
    one.x = kLeft + kHead / 2 + (to > from ? (one.at - from) / (to - from) : 0.5) * (width - 2 * kLeft - kHead);
    one.height = Math.max(1, one.step.bytes / most * (base - kTop - kHead));
    one.important = one.step.name === run.newest_whole ? 3 : one.step.verdict === "unsafe" ? 2 : one.step.ranks_before != null ? 1 : 0;
  }
  // A mark that has no room leaves it to those that matter more.
  const heads = [];
  for (const one of placed.slice().reverse().sort((a, b) => b.important - a.important))
    if (heads.every((other) => Math.abs(other.x - one.x) >= kHead)) heads.push(one);
  const line = (x, y, text, attributes) => drawn("text", { x, y, ...attributes }, text);
  const anchored = (x) => x < 70 ? { x: 2, "text-anchor": "start" } : x > width - 70 ? { x: width - 2, "text-anchor": "end" } : { x, "text-anchor": "middle" };
  const bars = placed.map(({ step, x, height }) => drawn("a", { href: addressOf(step), tabindex: -1, class: step.verdict || "quiet", "aria-label": step.name },
    drawn("title", {}, [step.name + ": " + (step.error ? "does not open" : verdicts[step.verdict] || "not checked"), savedText(step), sinceText(step) && sinceText(step) + " after the save before it", bytesText(step.bytes), ranksText(step) && "ranks: " + ranksText(step)].filter(Boolean).join("\n")),
    drawn("rect", { x: x - bar / 2, y: base - height, width: bar, height, class: step.verdict === "safe" || step.verdict === "care" ? "whole" : "other" })));
  const signs = heads.map(({ step, x, height }) => line(x, base - height - 5, step.verdict ? marks[step.verdict] : "○", { class: step.verdict || "quiet", "text-anchor": "middle" }));
  const lines = [], words = [];
  let right = width;
  for (const { step, x } of placed.slice().reverse().filter((one) => one.step.ranks_before != null)) {
    lines.push(drawn("line", { x1: x, x2: x, y1: kTop - 6, y2: base, class: "change" }));
    if (x + 50 > right && right < width) continue;
    right = x - 50;
    words.push(line(0, kTop - 10, step.ranks === step.ranks_before ? "other mesh" : countText(step.ranks_before) + " → " + countText(step.ranks) + " ranks", { ...anchored(x), class: step.ranks < step.ranks_before ? "care" : "quiet" }));
  }
  const newest = placed.find((one) => one.step.name === run.newest_whole);
  if (newest) {
    lines.push(drawn("line", { x1: newest.x, x2: newest.x, y1: newest.step.ranks_before == null ? 16 : kTop - 4, y2: base - newest.height - kHead - 2, class: "newest" }));
    words.push(line(0, 12, "newest whole step", { ...anchored(newest.x), class: "newest" }));
  }
  const ends = timed ? [line(2, kHeight - 6, savedText(placed[0].step), { class: "quiet" }), to > from && line(width - 2, kHeight - 6, savedText(placed[placed.length - 1].step), { class: "quiet", "text-anchor": "end" })] : [];
  return drawn("svg", { id: "timeline", viewBox: "0 0 " + width + " " + kHeight, role: "img", "aria-label": "Timeline of the run; the table below says the same" },
    drawn("line", { x1: 0, x2: width, y1: base + 0.5, y2: base + 0.5, class: "base" }), ...lines, ...bars, ...signs, ...words, ...ends);
}

const room = (page) => Math.max(320, page.clientWidth - 40);
// In a window of another width; nothing else is made anew, as somebody may be writing.
export const fitTimeline = (page) => byId("timeline")?.replaceWith(timeline(shown.run, room(page)));

// Norms over the steps whose values were read, as the server draws them, with a sentence for each mark. Made anew when other steps have values.
let charts = null, chartsOf = "";
async function showCharts(place, run, width) {
  const read = run.steps.filter((step) => step.level === "values");
  const key = width + JSON.stringify(read.map((step) => [step.name, step.saved]));
  if (charts && key === chartsOf) return fill(place, charts);
  if (read.length < 2) return fill(place, read.length || run.steps.length < 2 ? "" : element("p", { class: "quiet small" }, "Norms over steps are drawn here once every value of two steps was checked: open steps and validate them with the level ", element("i", {}, "values"), ", or run ", element("code", {}, "shardscope stats"), "."));
  try {
    const [said, svg] = await Promise.all([get("stats"), getBytes("stats/svg", { width })]);
    chartsOf = key;
    charts = element("section", { id: "norms" }, element("h2", {}, "Norms over steps"),
      said.marks.length > 0 && element("ul", {}, ...said.marks.slice(0, 12).map((mark) => element("li", {}, element("b", { class: "care" }, "▲ "), printable(mark.text)))),
      said.marks.length > 12 && element("p", { class: "quiet small" }, "… and " + counted(said.marks.length - 12, "more mark", "more marks") + "; shardscope stats lists all."),
      drawnBy(svg));
    fill(place, charts);
  } catch { fill(place, ""); }
}

// What a directory of several checkpoints has, to choose from.
export function showSeveral(page) {
  const list = shown.several.checkpoints;
  fill(page,
    element("h2", {}, "This directory holds " + counted(list.length, "checkpoint", "checkpoints")),
    table([{ text: "name", lead: true }, "what", { text: "size", number: true }],
      list.map((one) => [element("a", { href: addressOf(one) }, one.name), one.what, one.bytes ? bytesText(one.bytes) : ""])));
}

export function showRun(page) {
  const run = shown.run;
  const verdict = (step) => {
    const newest = step.name === run.newest_whole && element("span", { class: "badge" }, "newest whole step");
    if (step.error) return element("span", { class: "error" }, "✕ does not open: " + step.error.message);
    if (!step.verdict) return element("span", { class: "quiet" }, "not checked");
    return element("span", {}, element("b", { class: step.verdict }, marks[step.verdict] + " " + verdicts[step.verdict]), step.reason && ": " + step.reason, element("span", { class: "quiet" }, " (" + step.level + ") "), newest);
  };
  const tracker = run.tracker;
  const about = !tracker ? "No file of the run names the step to resume from."
    : !tracker.exists ? null
      : tracker.file === tracker.names ? "★ is the last step of the run." : "★ is the step that " + tracker.file + " names: a framework resumes from it.";
  const newest = run.steps.findIndex((step) => step.name === run.newest_whole);
  const open = run.steps.slice(0, Math.max(0, newest)).filter((step) => !step.verdict).length;
  for (const name of picked) if (!run.steps.some((step) => step.name === name)) picked.delete(name);
  // The older one is opened and compared with the newer one.
  const compare = button("Compare the two", () => {
    const [b, a] = run.steps.filter((step) => picked.has(step.name));
    location.href = addressOf(a) + "&with=" + encodeURIComponent(b.name) + "#compare";
  });
  const allow = () => { compare.disabled = picked.size !== 2; };
  const pick = (step) => element("input", { type: "checkbox", checked: picked.has(step.name), "aria-label": "Compare " + step.name, onchange: (event) => { picked[event.target.checked ? "add" : "delete"](step.name); allow(); } });
  allow();
  const chartsPlace = element("div", {});
  showCharts(chartsPlace, run, room(page));
  fill(page,
    element("h2", {}, counted(run.steps.length, "step", "steps")),
    tracker && !tracker.exists && element("p", { class: "error" }, "✕ " + tracker.file + " names " + tracker.names + ", which is not there."),
    newest >= 0 && element("p", {}, element("b", { class: "safe" }, "✓ Resume from "), element("code", {}, run.steps[newest].path), ", the newest whole step.", open ? element("span", { class: "quiet" }, " " + counted(open, "newer step is", "newer steps are") + " not checked.") : ""),
    run.steps.length > 0 && timeline(run, room(page)),
    chartsPlace,
    run.steps.length
      ? table(["", { text: "step", lead: true }, { text: "saved", keep: true }, { text: "since the last save", number: true }, { text: "size", number: true }, { text: "files", number: true }, { text: "ranks", number: true }, "format", { text: "verdict", lead: true }],
        run.steps.map((step) => [pick(step),
          element("span", {}, element("a", { href: addressOf(step) }, step.name), tracker && tracker.exists && step.name === tracker.names ? " ★" : ""),
          savedText(step), sinceText(step), bytesText(step.bytes), countText(step.files), ranksText(step), step.format || "unknown", verdict(step)]))
      : element("p", { class: "empty" }, "No step was saved yet."),
    run.steps.length > 1 && element("p", {}, compare, element("span", { class: "quiet small" }, " Tick two steps.")),
    about && element("p", { class: "quiet small" }, about),
    element("p", { class: "quiet small" }, "Opening a step validates it; what was found is remembered until one of its files changes."),
    allowed() && averageOf(run));
}
