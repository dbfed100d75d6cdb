// The resume card, figures, types, modules, mesh and notes; and the verdict above all pages.
import { allowed, bytesText, button, byId, countText, element, fill, follow, post, printable, shown, table, tell } from "./common.js";

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

export function showOverview(page) {
  const info = shown.info, totals = info.totals;
  const card = (value, name) => element("div", { class: "card" }, element("b", {}, value), element("span", {}, name));
  fill(page,
    element("section", { id: "ready", "aria-label": "Resume card" }),
    element("div", { class: "cards" },
      card(info.format + (info.variant ? ", " + info.variant : ""), "format"),
      card(countText(totals.parameters), "parameters"),
      totals.optimizer_elements > 0 && card(countText(totals.optimizer_elements), "optimizer elements"),
      card(bytesText(totals.bytes), "data"),
      card(countText(totals.tensors), "tensors"),
      card(countText(totals.chunks), "chunks"),
      card(countText(totals.ranks), "ranks"),
      card(countText(totals.files), "files"),
      totals.objects > 0 && card(countText(totals.objects), "objects")),
    info.data_elsewhere && element("p", { class: "care" }, "Read from " + info.data_elsewhere + ": the data is not here."),
    info.writer && element("p", { class: "quiet" }, "Written by " + info.writer));
  showReady();
  const left = element("div"), right = element("div");
  page.append(element("div", { class: "columns" }, left, right));

  left.append(element("h2", {}, "Mesh"));
  if (info.mesh) {
    left.append(element("p", {}, info.mesh.axes.map((axis) => axis.name + " = " + axis.size).join(", ") + " (" + info.mesh.source + ")"),
      element("ul", { class: "quiet small" }, ...info.mesh.evidence.map((line) => element("li", {}, line))));
  } else {
    left.append(element("p", { class: "quiet" }, "Not declared, and the chunks suggest none."));
  }
  const types = Object.entries(info.dtypes).sort((a, b) => b[1].bytes - a[1].bytes);
  // A dtype has one color everywhere, as in the window.
  const usual = ["float32", "bfloat16", "float16", "int64"];
  const hue = (name) => "var(--c" + (usual.includes(name) ? usual.indexOf(name) : 4 + name.length % 4) + ")";
  const swatch = (name) => { const made = element("span", { class: "swatch" }); made.style.background = hue(name); return made; };
  const bar = element("div", { class: "share", role: "img", "aria-label": "Shares of the types" },
    ...types.map(([name, share]) => { const part = element("i"); part.style.flexGrow = share.bytes; part.style.background = hue(name); return part; }));
  left.append(element("h2", {}, "Types"), bar,
    table(["dtype", { text: "tensors", number: true }, { text: "size", number: true }],
      types.map(([name, share]) => [element("span", {}, swatch(name), name), countText(share.tensors), bytesText(share.bytes)])));
  right.append(element("h2", {}, "Biggest modules"),
    table(["module", { text: "tensors", number: true }, { text: "size", number: true }],
      info.modules.map((module) => [button(module.name, () => tell("filter", module.name + "*"), { class: "link", title: "Show it in the placement map" }),
        countText(module.tensors), bytesText(module.bytes)])));
  if (info.specials.length)
    right.append(element("h2", {}, "Tensors that are not plain arrays"),
      element("ul", {}, ...info.specials.map((special) => element("li", {}, special.name + ": " + special.kind + " " + special.dtype))));
  const kMost = 100;
  if (info.notes.length)
    page.append(element("h2", {}, "Notes"), element("ul", {},
      ...info.notes.slice(0, kMost).map((note) => element("li", {}, element("span", { class: note.severity }, note.severity), " ", element("code", {}, note.rule), ": " + note.message)),
      info.notes.length > kMost && element("li", { class: "quiet" }, countText(info.notes.length - kMost) + " more")));
}

// The words of the window's strip.
function verdictWords() {
  const report = shown.findings;
  if (report.schema === "shardscope.validating/1")
    return { tone: "unknown", mark: "…", head: "Validating (" + report.level + ")",
      text: report.bytes_total > 0 ? bytesText(report.bytes_done) + " of " + bytesText(report.bytes_total) + " read" : "" };
  if (report.schema === "shardscope.error/1")
    return { tone: "care", mark: "?", head: report.code === "cancelled" ? "Not validated: it was cancelled" : "Not validated", text: report.code === "cancelled" ? "" : report.message };
  // The answer is that of the card; where only a part of the values was read there is none yet.
  const ready = !report.words.startsWith("Not all") && shown.ready, found = report.words.split(": ")[1];
  const tone = ready && ready.words.startsWith("do not") ? "unsafe" : report.verdict;
  return { tone, mark: { safe: "✓", care: "▲", unsafe: "✕" }[tone], head: ready ? ready.words[0].toUpperCase() + ready.words.slice(1) : report.words,
    text: (ready ? found[0].toUpperCase() + found.slice(1) + ". " : "") + "Checked: " + report.checked.join(", ") + "." +
      (report.not_checked.length ? " Not checked: " + report.not_checked.map((item) => item.replace(/ \(--[^)]*\)/g, "")).join("; ") + "." : "") };
}

export function showVerdict() {
  const strip = byId("verdict");
  strip.hidden = !shown.info;
  if (!shown.info || !shown.findings) return;
  const { tone, mark, head, text } = verdictWords();
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
  const key = JSON.stringify([tone, head, text, validating, bad]);
  if (strip.dataset.key === key) return;
  strip.dataset.key = key;
  strip.replaceChildren(element("span", { class: "mark", "aria-hidden": "true" }, mark),
    element("div", { class: "words", role: "status" }, element("b", {}, head), text && element("p", {}, text)), actions);
}
follow("findings", showVerdict);
follow("ready", showVerdict);
