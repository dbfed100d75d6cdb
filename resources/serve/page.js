"use strict";
// The page of `shardscope serve`. Every text of a checkpoint goes in through textContent, never as markup.

const byId = (id) => document.getElementById(id);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  for (const child of children) made.append(child);
  return made;
}

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) { bytes /= 1024; ++unit; }
  return (unit === 0 || bytes >= 100 ? bytes.toFixed(0) : bytes.toPrecision(3)) + " " + units[unit];
}
const countText = (n) => n.toLocaleString("en");
function timeText(seconds) {
  if (!(seconds >= 0)) return "";
  if (seconds < 60) return Math.round(seconds) + " s";
  if (seconds < 3600) return Math.round(seconds / 60) + " min";
  return (seconds / 3600).toFixed(1) + " h";
}

function table(titles, rows) {
  const head = element("tr");
  for (const title of titles) head.append(element("th", title.number ? { class: "number", scope: "col" } : { scope: "col" }, title.text));
  const body = element("tbody");
  for (const cells of rows) {
    const row = element("tr");
    cells.forEach((cell, i) => row.append(element("td", titles[i].number ? { class: "number" } : {}, cell)));
    body.append(row);
  }
  return element("table", {}, element("thead", {}, head), body);
}

// ------------------------------------------------------------------ pages

const pages = ["overview", "placement", "findings", "jobs"];
let current = "";
function show(name) {
  current = name;
  for (const page of pages) {
    byId(page).hidden = page !== name;
    byId("tab-" + page).setAttribute("aria-selected", page === name);
    byId("tab-" + page).tabIndex = page === name ? 0 : -1;
  }
  if (name === "placement") map.layout();
}
function visibleTabs() { return pages.filter((page) => !byId("tab-" + page).hidden); }
for (const page of pages) byId("tab-" + page).addEventListener("click", () => show(page));
byId("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = visibleTabs();
  const next = tabs[(tabs.indexOf(current) + step + tabs.length) % tabs.length];
  show(next);
  byId("tab-" + next).focus();
});

// ------------------------------------------------------------------ overview

function showOverview(info) {
  document.title = info.path + " – Shardscope";
  byId("title").textContent = info.path;
  const card = (value, name) => element("div", { class: "card" }, element("b", {}, value), element("span", {}, name));
  const totals = info.totals;
  const page = byId("overview");
  page.replaceChildren(
    element("div", { class: "cards" },
      card(info.format + (info.variant ? ", " + info.variant : ""), "format"),
      card(countText(totals.tensors), "tensors"),
      card(countText(totals.chunks), "chunks"),
      card(countText(totals.parameters), "parameters"),
      ...(totals.optimizer_elements ? [card(countText(totals.optimizer_elements), "optimizer elements")] : []),
      card(bytesText(totals.bytes), "data"),
      card(countText(totals.files), "files"),
      card(countText(totals.ranks), "ranks"),
      card(countText(totals.objects), "objects")));
  if (info.writer) page.append(element("p", { class: "quiet" }, "written by " + info.writer));
  page.append(element("h2", {}, "Mesh"));
  if (info.mesh) {
    page.append(element("p", {}, info.mesh.axes.map((axis) => axis.name + " = " + axis.size).join(", ") + " (" + info.mesh.source + ")"));
    const evidence = element("ul", { class: "quiet" });
    for (const line of info.mesh.evidence) evidence.append(element("li", {}, line));
    page.append(evidence);
  } else {
    page.append(element("p", { class: "quiet" }, "Not declared, and the chunks suggest none."));
  }
  page.append(element("h2", {}, "Types"), table([{ text: "dtype" }, { text: "tensors", number: true }, { text: "bytes", number: true }],
    Object.entries(info.dtypes).map(([name, share]) => [name, countText(share.tensors), bytesText(share.bytes)])));
  page.append(element("h2", {}, "Biggest modules"), table([{ text: "module" }, { text: "tensors", number: true }, { text: "bytes", number: true }],
    info.modules.map((module) => [module.name, countText(module.tensors), bytesText(module.bytes)])));
  if (info.notes.length) {
    const notes = element("ul");
    for (const note of info.notes.slice(0, 100)) notes.append(element("li", {}, element("span", { class: note.severity }, note.severity), " " + note.rule + ": " + note.message));
    page.append(element("h2", {}, "Notes"), notes);
  }
}

// ------------------------------------------------------------------ findings

const marked = new Set();  // "tensor\nrank" of findings, for the map; "tensor" of those that name it at all
function showFindings(report) {
  const page = byId("findings");
  marked.clear();
  if (report.state === "running") {
    page.replaceChildren(element("p", { class: "quiet" }, "Validating …"));
    byId("tab-findings").textContent = "Findings …";
    return;
  }
  if (report.schema === "shardscope.error/1") {
    page.replaceChildren(element("p", { class: "error" }, "The validation failed: " + report.message));
    byId("tab-findings").textContent = "Findings !";
    return;
  }
  const style = { safe: "safe", care: "warning", unsafe: "error" }[report.verdict];
  page.replaceChildren(element("p", { class: "verdict " + style }, "Verdict: " + report.verdict));
  byId("tab-findings").textContent = "Findings (" + report.findings.length + ")";
  if (!report.findings.length) page.append(element("p", {}, "Nothing was found."));
  for (const finding of report.findings) {
    const box = element("div", { class: "finding " + finding.severity },
      element("b", { class: finding.severity }, finding.severity), " ", element("code", {}, finding.rule), ": " + finding.message);
    if (finding.cause) box.append(element("div", { class: "quiet" }, "cause: " + finding.cause));
    const list = element("ul", { class: "mono" });
    finding.examples.forEach((example, i) => {
      if (example.tensor && finding.severity !== "info") {
        marked.add(example.tensor);
        if (example.rank != null) marked.add(example.tensor + "\n" + example.rank);
      }
      if (i >= 20) return;
      const parts = [];
      if (example.tensor) parts.push(example.tensor);
      if (example.offsets) parts.push("[" + example.offsets.map((from, d) => from + ":" + (from + example.lengths[d])).join(", ") + "]");
      if (example.rank != null) parts.push("rank " + example.rank);
      if (example.file) parts.push("in " + example.file);
      if (example.offset != null) parts.push("at byte " + example.offset);
      list.append(element("li", {}, parts.join(" ")));
    });
    if (finding.count > 20) list.append(element("li", {}, "… " + countText(finding.count) + " in all"));
    box.append(list);
    page.append(box);
  }
  page.append(element("p", {}, "Checked: " + report.checked.join(", ") + "."));
  if (report.not_checked.length) page.append(element("p", { class: "warning" }, "Not checked: " + report.not_checked.join(", ") + "."));
  map.draw();
}

// ------------------------------------------------------------------ jobs

function showJobs(list) {
  const page = byId("jobs");
  const active = list.jobs.filter((job) => job.state === "running" || job.state === "starting").length;
  byId("tab-jobs").textContent = active ? "Jobs (" + active + ")" : "Jobs";
  if (!list.jobs.length) {
    page.replaceChildren(element("p", { class: "quiet" }, "No job was started yet: shardscope jobs run, or the window's wizard, starts one."));
    return;
  }
  page.replaceChildren(table([{ text: "job" }, { text: "what" }, { text: "state" }, { text: "progress" }],
    list.jobs.map((job) => {
      const progress = element("span");
      const now = job.overall;
      if (job.state === "running" && now) {
        if (now.share != null) progress.append(element("progress", { value: now.share, max: 1, "aria-label": "done" }), " ");
        progress.append(now.text);
      } else if (job.result && job.result.message) {
        progress.append(element("span", { class: "error" }, job.result.message));
      } else if (job.result && job.result.bytes_written != null) {
        progress.append(bytesText(job.result.bytes_written) + " in " + timeText(job.result.seconds) + (job.result.verified ? ", verified" : ""));
      }
      const workers = Array.isArray(job.workers) ? job.workers : [];
      if (workers.length) {
        const lines = element("ul", { class: "quiet" });
        for (const worker of workers) lines.append(element("li", {}, worker.name + ": " + worker.state + ", " + bytesText(worker.bytes) + (worker.why ? " (" + worker.why + ")" : "")));
        progress.append(lines);
      }
      const state = element("span", { class: { done: "safe", failed: "error", lost: "error", cancelled: "warning" }[job.state] || "" }, job.state);
      return [element("code", {}, job.id), job.title, state, progress];
    })));
}

// ------------------------------------------------------------------ placement map

const map = {
  rowHeight: 18, nameWidth: 300, headHeight: 22,
  ranks: 0, total: 0, pattern: "*", blocks: new Map(), asked: new Set(), generation: 0, cursor: null,
  kShares: ["nothing", "up to an eighth", "up to a quarter", "up to a half", "nearly all", "all of it"],

  cellWidth() {
    const room = byId("map-scroll").clientWidth - this.nameWidth - 2;
    return Math.max(4, Math.min(28, Math.floor(room / Math.max(1, this.ranks))));
  },
  reset(pattern) {
    this.pattern = pattern;
    this.blocks.clear();
    this.asked.clear();
    this.cursor = null;
    ++this.generation;
    byId("map-scroll").scrollTop = 0;
    this.ask(0);
  },
  async ask(block) {
    if (this.asked.has(block)) return;
    this.asked.add(block);
    const generation = this.generation;
    const answer = await fetch("api/map?first=" + block * 256 + "&count=256&pattern=" + encodeURIComponent(this.pattern));
    if (generation !== this.generation) return;
    if (!answer.ok) { byId("map-cell").textContent = (await answer.text()).trim(); return; }
    const rows = await answer.json();
    if (generation !== this.generation) return;
    this.ranks = rows.ranks;
    this.total = rows.total;
    this.blocks.set(block, rows.rows);
    if (!this.total) byId("map-cell").textContent = "No tensor has such a name.";
    else if (!this.cursor) byId("map-cell").textContent = countText(this.total) + " tensors on " + countText(this.ranks) + " ranks; point at a cell, or use the arrow keys";
    this.layout();
  },
  layout() {
    if (current !== "placement") return;
    const scroll = byId("map-scroll"), canvas = byId("map");
    const ratio = window.devicePixelRatio || 1;
    const width = scroll.clientWidth, height = scroll.clientHeight;
    byId("map-space").style.height = Math.max(height, this.headHeight + this.total * this.rowHeight) + "px";
    byId("map-space").style.width = Math.max(width, this.nameWidth + this.ranks * this.cellWidth()) + "px";
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    this.draw();
  },
  draw() {
    if (current !== "placement") return;
    const scroll = byId("map-scroll"), canvas = byId("map"), paint = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const cells = [0, 1, 2, 3, 4, 5].map((i) => color("--cell" + i));
    const ratio = window.devicePixelRatio || 1, width = canvas.width / ratio, height = canvas.height / ratio;
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.fillStyle = color("--panel");
    paint.fillRect(0, 0, width, height);
    const cell = this.cellWidth(), left = scroll.scrollLeft;
    const first = Math.floor(scroll.scrollTop / this.rowHeight);
    const last = Math.min(this.total, first + Math.ceil(height / this.rowHeight) + 1);
    const firstRank = Math.floor(left / cell), endRank = Math.min(this.ranks, Math.ceil((left + width) / cell) + 1);
    paint.font = "12px system-ui, sans-serif";
    paint.textBaseline = "middle";
    for (let row = first; row < last; ++row) {
      const block = Math.floor(row / 256), rows = this.blocks.get(block);
      const y = this.headHeight + row * this.rowHeight - scroll.scrollTop;
      if (!rows) { this.ask(block); continue; }
      const tensor = rows[row - block * 256];
      if (!tensor) continue;
      for (let rank = firstRank; rank < endRank; ++rank) {
        const x = this.nameWidth + rank * cell - left;
        paint.fillStyle = cells[tensor.cells.charCodeAt(rank) - 48];
        paint.fillRect(x, y + 1, Math.max(1, cell - 1), this.rowHeight - 2);
        if (marked.size && marked.has(tensor.name + "\n" + rank)) {
          // Told by more than its colour: a cross.
          paint.strokeStyle = color("--error");
          paint.lineWidth = 2;
          paint.beginPath();
          paint.moveTo(x + 1, y + 2); paint.lineTo(x + cell - 2, y + this.rowHeight - 2);
          paint.moveTo(x + cell - 2, y + 2); paint.lineTo(x + 1, y + this.rowHeight - 2);
          paint.stroke();
        }
        if (this.cursor && this.cursor.row === row && this.cursor.rank === rank) {
          paint.strokeStyle = color("--text");
          paint.lineWidth = 2;
          paint.strokeRect(x, y + 1, Math.max(2, cell - 1), this.rowHeight - 2);
        }
      }
      paint.fillStyle = color("--panel");
      paint.fillRect(0, y, this.nameWidth - 4, this.rowHeight);
      paint.fillStyle = color(this.cursor && this.cursor.row === row ? "--accent" : "--text");
      let name = tensor.name;
      if (marked.has(name)) {
        paint.fillStyle = color("--error");
        name = "\u2715 " + name;
      }
      if (paint.measureText(name).width > this.nameWidth - 16) {
        // The end tells layers and projections apart.
        let cut = name.length;
        while (cut > 1 && paint.measureText("…" + name.slice(-cut)).width > this.nameWidth - 16) --cut;
        name = "…" + name.slice(-cut);
      }
      paint.fillText(name, 8, y + this.rowHeight / 2);
    }
    paint.fillStyle = color("--panel");
    paint.fillRect(0, 0, width, this.headHeight);
    paint.fillStyle = color("--quiet");
    paint.fillText("tensor", 8, this.headHeight / 2);
    const every = Math.max(1, Math.ceil(40 / cell));
    for (let rank = Math.ceil(firstRank / every) * every; rank < endRank; rank += every) {
      const x = this.nameWidth + rank * cell - left;
      if (x >= this.nameWidth - 4) paint.fillText(rank === 0 ? "rank 0" : rank, x, this.headHeight / 2);
    }
  },
  tensorAt(row) {
    const rows = this.blocks.get(Math.floor(row / 256));
    return rows && rows[row % 256];
  },
  point(row, rank) {
    const tensor = this.tensorAt(row);
    if (!tensor || rank < 0 || rank >= this.ranks) return;
    this.cursor = { row, rank };
    const share = this.kShares[tensor.cells.charCodeAt(rank) - 48];
    const wrong = marked.has(tensor.name + "\n" + rank) ? "; a finding names this chunk" : marked.has(tensor.name) ? "; a finding names this tensor" : "";
    byId("map-cell").textContent = tensor.name + "  " + tensor.dtype + " " + tensor.shape + ", " + bytesText(tensor.bytes) + "; rank " + rank + " holds " + share + wrong;
    this.draw();
  },
};

const mapScroll = byId("map-scroll");
mapScroll.addEventListener("scroll", () => map.draw());
mapScroll.addEventListener("mousemove", (event) => {
  const box = mapScroll.getBoundingClientRect();
  const y = event.clientY - box.top - map.headHeight, x = event.clientX - box.left - map.nameWidth;
  if (y < 0 || x < 0) return;
  map.point(Math.floor((y + mapScroll.scrollTop) / map.rowHeight), Math.floor((x + mapScroll.scrollLeft) / map.cellWidth()));
});
mapScroll.addEventListener("keydown", (event) => {
  const page = Math.max(1, Math.floor(mapScroll.clientHeight / map.rowHeight) - 2);
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-page, 0], PageDown: [page, 0] }[event.key];
  if (!step || !map.total) return;
  event.preventDefault();
  const from = map.cursor || { row: -step[0], rank: 0 };
  const row = Math.max(0, Math.min(map.total - 1, from.row + step[0])), rank = Math.max(0, Math.min(map.ranks - 1, from.rank + step[1]));
  const top = row * map.rowHeight, bottom = top + map.rowHeight + map.headHeight;
  if (top < mapScroll.scrollTop) mapScroll.scrollTop = top;
  if (bottom > mapScroll.scrollTop + mapScroll.clientHeight) mapScroll.scrollTop = bottom - mapScroll.clientHeight;
  const left = rank * map.cellWidth(), room = mapScroll.clientWidth - map.nameWidth;
  if (left < mapScroll.scrollLeft) mapScroll.scrollLeft = left;
  if (left + map.cellWidth() > mapScroll.scrollLeft + room) mapScroll.scrollLeft = left + map.cellWidth() - room;
  map.point(row, rank);
});
byId("filter-form").addEventListener("submit", (event) => { event.preventDefault(); map.reset(byId("filter").value || "*"); });
byId("filter").addEventListener("change", () => map.reset(byId("filter").value || "*"));
window.addEventListener("resize", () => map.layout());
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => map.draw());

byId("legend").append("a rank holds");
map.kShares.forEach((words, i) => byId("legend").append(element("span", { class: "swatch s" + i }), words));

// ------------------------------------------------------------------ start

async function start() {
  const read = async (path) => (await fetch(path)).json();
  const [info, jobs] = await Promise.all([read("api/overview"), read("api/jobs")]);
  if (info) { showOverview(info); showFindings(await read("api/findings")); }
  if (jobs) showJobs(jobs);
  for (const page of ["overview", "placement", "findings"]) byId("tab-" + page).hidden = !info;
  byId("tab-jobs").hidden = !jobs;
  if (!info) byId("title").textContent = "Jobs";
  show(info ? "overview" : "jobs");
  if (info) map.ask(0);
  const events = new EventSource("api/events");
  events.addEventListener("open", () => { byId("state").textContent = "Live; this page only shows."; });
  events.addEventListener("error", () => { byId("state").textContent = "The server does not answer; what is shown is the last that it said."; });
  events.addEventListener("findings", (event) => showFindings(JSON.parse(event.data)));
  events.addEventListener("jobs", (event) => showJobs(JSON.parse(event.data)));
}
start().catch((error) => { byId("state").textContent = "The server does not answer: " + error.message; });
