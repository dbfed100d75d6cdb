// The resume card, figures, types, modules, mesh and notes; and the verdict above all pages.
import { allowed, bigCount, bytesText, button, byId, countText, counted, element, fill, follow, listenAgain, post, printable, shown, table, tell } from "./common.js";
import { asIf } from "./as_if.js";
import { meshPanel } from "./mesh.js";

// What a line of the card is about is a click away; what is against it, too.
function readyLine(line) {
  const about = line.shows && (() => tell(line.shows, line[line.shows]));
  const against = line.mark === "no" && line.evidence, rule = against && against.split(":")[0];
  return element("li", { class: "is-" + line.mark, title: !against && line.evidence && printable(line.evidence) },
    element("b", { role: "img", "aria-label": line.mark }, { yes: "✓", no: "✕", none: "–" }[line.mark]), element("span", {}, line.title),
    element("div", {}, about ? button(line.text, about, { class: "link" }) : line.text,
      against && element("p", {}, button(rule, () => tell("finding", line.evidence), { class: "link" }), against.slice(rule.length))));
}

function showReady() {
  const card = byId("ready");
  if (!card) return;
  card.hidden = !shown.ready;
  if (shown.ready) fill(card, element("ul", {}, ...shown.ready.lines.map(readyLine)));
}
follow("ready", showReady);

// Everything that is counted, once and in one line.
function figures({ format, variant, writer, totals }) {
  return [format + (variant ? ", " + variant : ""), writer, bigCount(totals.parameters) + " parameters" + (totals.optimizer_elements ? " (+ " + bigCount(totals.optimizer_elements) + " in the optimizer)" : ""),
    counted(totals.tensors, "tensor", "tensors"), counted(totals.chunks, "chunk", "chunks"), bytesText(totals.bytes), counted(totals.files, "file", "files"),
    counted(totals.ranks, "rank", "ranks"), totals.objects && counted(totals.objects, "object", "objects")].filter(Boolean).join(" · ");
}

export function showOverview(page) {
  const info = shown.info;
  const other = asIf(), below = element("div"), beside = element("div", {}, meshPanel(other.form));
  fill(page,
    element("p", { id: "figures" }, figures(info)),
    info.data_elsewhere && element("p", { class: "care" }, "Read from " + info.data_elsewhere + ": the data is not here."),
    element("div", { class: "columns" }, element("section", { id: "ready", "aria-label": "Resume card" }), beside),
    other.answer,
    element("div", { class: "columns" }, below));
  showReady();
  const types = Object.entries(info.dtypes).sort((a, b) => b[1].bytes - a[1].bytes);
  // A dtype has one color everywhere, as in the window.
  const usual = ["float32", "bfloat16", "float16", "int64"];
  const hue = (name) => "var(--c" + (usual.includes(name) ? usual.indexOf(name) : 4 + name.length % 4) + ")";
  const swatch = (name) => { const made = element("span", { class: "swatch" }); made.style.background = hue(name); return made; };
  const bar = element("div", { class: "share", role: "img", "aria-label": "Shares of the types" },
    ...types.map(([name, share]) => { const part = element("i"); part.style.flexGrow = share.bytes; part.style.background = hue(name); return part; }));
  beside.append(element("h2", {}, "Types"), bar,
    table(["dtype", { text: "tensors", number: true }, { text: "size", number: true }],
      types.map(([name, share]) => [element("span", {}, swatch(name), name), countText(share.tensors), bytesText(share.bytes)])));
  below.append(element("h2", {}, "Biggest modules"),
    table(["module", { text: "tensors", number: true }, { text: "size", number: true }],
      info.modules.map((module) => [button(module.name, () => tell("filter", module.name + "*"), { class: "link", title: "Show it in the placement map" }),
        countText(module.tensors), bytesText(module.bytes)])));
  if (info.specials.length)
    below.append(element("h2", {}, "Tensors that are not plain arrays"),
      element("ul", {}, ...info.specials.map((special) => element("li", {}, special.name + ": " + special.kind + " " + special.dtype))));
  const kMost = 100;
  if (info.notes.length)
    page.append(element("h2", {}, "Notes"), element("ul", {},
      ...info.notes.slice(0, kMost).map((note) => element("li", {}, element("span", { class: note.severity }, note.severity), " ", element("code", {}, note.rule), ": " + note.message)),
      info.notes.length > kMost && element("li", { class: "quiet" }, countText(info.notes.length - kMost) + " more")));
}

const kCauses = 3, kDepths = { metadata: "Metadata checked", files: "Files checked", values: "Every value read" };
let lastReport = null;  // what was found before stays while another check runs

// Findings that the verdict follows from: those that nobody accepted, of the worst severity.
function causesOf(report) {
  const open = report.findings.filter((finding) => !finding.accepted);
  return ["error", "warning"].map((severity) => open.filter((finding) => finding.severity === severity)).find((some) => some.length) || [];
}

// "rank 22, 678 tensors"
function causeLinks(causes) {
  const lines = causes.slice(0, kCauses).map((finding) => {
    return element("p", {}, button(finding.cause || finding.message, () => tell("finding", finding.rule + ": " + finding.message), { class: "link" }), finding.about && " (" + finding.about + ")");
  });
  return causes.length > kCauses ? [...lines, element("p", {}, button(countText(causes.length - kCauses) + " more", () => tell("open", "findings"), { class: "link" }))] : lines;
}

// The words of the window's strip.
function verdictWords() {
  const said = shown.findings, validating = said.schema === "shardscope.validating/1";
  const doing = validating ? "Checking (" + said.level + ")" + (said.bytes_total > 0 ? ": " + bytesText(said.bytes_done) + " of " + bytesText(said.bytes_total) + " read" : "") + " … " : "";
  if (said.schema === "shardscope.error/1")
    return { tone: "care", mark: "?", head: said.code === "cancelled" ? "Not validated: it was canceled" : "Not validated", text: said.code === "cancelled" ? "" : said.message };
  const report = validating ? lastReport : said;
  if (!report) return { tone: "unknown", mark: "…", head: "Validating", text: doing };
  // The answer is that of the card; where only a part of the values was read there is none yet.
  const partly = report.words.startsWith("Not all"), ready = !partly && shown.ready, found = report.words.split(": ")[1];
  const tone = ready && ready.words.startsWith("do not") ? "unsafe" : report.verdict, causes = causesOf(report);
  const head = ready ? ready.words[0].toUpperCase() + ready.words.slice(1) : report.words;
  const unchecked = report.not_checked.map((item) => item.replace(/ \(--[^)]*\)/g, ""));
  // What no other level would check, else the first of them; the tooltip has all.
  const odd = unchecked.filter((item, i) => !report.not_checked_options[i]), short = odd.length ? odd : unchecked.slice(0, 1);
  const named = causes.some((finding) => head.endsWith(": " + finding.message));
  return { tone, mark: { safe: "✓", care: "▲", unsafe: "✕" }[tone], head: named ? head.split(":")[0] : head, causes,
    text: doing + (partly ? "" : (shown.info?.data_elsewhere ? "Index checked" : kDepths[report.level]) + (ready ? ": " + found : "") + ".") +
      (short.length ? " Not checked: " + short.join("; ") + (unchecked.length > short.length ? ", and " + (unchecked.length - short.length) + " more." : ".") : ""),
    tip: unchecked.length ? "Not checked: " + unchecked.join("; ") + "." : null };
}

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");
const command = () => "shardscope serve" + (shown.page.path ? " " + quoted(shown.page.path) : " --jobs") + (allowed() ? " --allow-jobs" : "");

function showBanner(tone, head, words, ...actions) {
  const strip = byId("verdict");
  strip.hidden = false;
  strip.className = "banner tone-" + tone;
  strip.dataset.key = "";
  strip.replaceChildren(element("span", { class: "mark", "aria-hidden": "true" }, "▲"),
    element("div", { class: "words", role: "alert" }, element("b", {}, head), words), element("div", { class: "actions" }, ...actions));
}

// A server that goes away takes the verdict with it: what is green may be so no longer.
function showLost() {
  const { since, refused } = shown.lost;
  const time = since.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (refused)
    return showBanner("care", "The server was started anew", element("p", {}, "Open the address that it printed. What is shown here is what was known at " + time + "."));
  showBanner("care", "The server has not answered since " + time, element("p", {}, "Showing the last known state. The server is started with ", element("code", {}, command())),
    button("Try again", () => listenAgain()));
}

// Instead of the page, when it may not ask or gets no answer.
export function refuse(error) {
  const words = error.status === 403 ? element("p", {}, "Open the address that ", element("code", {}, "shardscope serve"), " printed, with all that follows its “#”. It lets in nobody else.") : element("p", {}, "It is started with ", element("code", {}, "shardscope serve"), ".");
  showBanner("care", error.message, words, button("Try again", () => location.reload()));
}

export function showVerdict() {
  const strip = byId("verdict");
  if (shown.lost) return showLost();
  strip.hidden = !shown.info;
  if (!shown.info || !shown.findings) return;
  const { tone, mark, head, text, causes, tip } = verdictWords();
  strip.className = "tone-" + tone;
  const validating = shown.findings.schema === "shardscope.validating/1";
  const actions = element("div", { class: "actions" });
  const bad = shown.findings.findings && shown.findings.findings.length;
  if (bad) actions.append(button("Show findings", () => tell("open", "findings")));
  if (allowed() && validating) {
    actions.append(button("Cancel", () => post("validate/cancel", {})));
  } else if (allowed()) {
    const level = element("select", { "aria-label": "How deep to validate" },
      ...[["metadata", "metadata only"], ["files", "files and headers"], ["values", "every value"]].map(([value, words]) =>
        element("option", { value, selected: value === (shown.findings.level || shown.page.level) }, words)));
    const start = button("Validate", () => post("validate", { level: level.value }).catch((error) => { start.after(element("span", { class: "error" }, error.message)); }));
    actions.append(level, start);
  }
  // What a person is about to choose stays.
  const key = JSON.stringify([tone, head, text, causes, validating, bad]);
  if (strip.dataset.key === key) return;
  strip.dataset.key = key;
  strip.replaceChildren(element("span", { class: "mark", "aria-hidden": "true" }, mark),
    element("div", { class: "words", role: "status" }, element("b", {}, head), ...causeLinks(causes || []), text && element("p", { class: "quiet", title: tip || null }, text)), actions);
}
follow("findings", (said) => { if (said.verdict) lastReport = said; showVerdict(); });
follow("ready", showVerdict);
follow("lost", showVerdict);
