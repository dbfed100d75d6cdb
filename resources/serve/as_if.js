// The checkpoint as if it were on another mesh: a line for the mesh, which stands under the picture of the mesh, and the answer, which is there
// once a mesh was entered. What is pointed at lights up with what it reads from. Nothing is written.
import { allowed, button, bytesText, counted, drawnBy, element, fill, follow, get, getBytes, table, tell } from "./common.js";
import { numbersOf } from "./mesh.js";

const kHeight = 560, kTyping = 300;
const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
let redraw = null;
follow("theme", () => redraw && redraw());

// Which files and ranks of the target a cell speaks of, by what is read.
function meant(cell, flow) {
  const files = new Set(), ranks = new Set(), within = (text) => new Set(numbersOf(text));
  const own = within(cell.dataset.ranks || ""), from = within(cell.dataset.files || ""), to = within(cell.dataset.to || "");
  const before = cell.closest(".before"), after = cell.closest(".after");
  for (const [file, rank] of flow.cells) {
    if (!(before ? own.has(flow.files[file].rank) : after ? own.has(rank) : from.has(file) && to.has(rank))) continue;
    files.add(file);
    ranks.add(rank);
  }
  return { files, ranks };
}

function light(picture, cell, flow) {
  for (const one of picture.querySelectorAll(".lit")) one.classList.remove("lit");
  if (!cell) return;
  const { files, ranks } = meant(cell, flow), writers = new Set([...files].map((file) => flow.files[file].rank));
  for (const one of picture.querySelectorAll(".before .cell")) if (numbersOf(one.dataset.ranks).some((rank) => writers.has(rank))) one.classList.add("lit");
  for (const one of picture.querySelectorAll(".after .cell")) if (numbersOf(one.dataset.ranks).some((rank) => ranks.has(rank))) one.classList.add("lit");
  cell.classList.add("lit");
}

// The line and the answer, as two nodes.
export function asIf() {
  const mesh = element("input", { type: "text", id: "as-if-mesh", placeholder: "another mesh, for example tp=8", spellcheck: "false", autocomplete: "off" });
  const problem = element("p", { id: "as-if-problem", class: "error small", role: "status" });
  const headline = element("p", { id: "as-if-headline", role: "status" }), line = element("p", { class: "quiet small", role: "status" });
  const notes = element("ul", { class: "quiet" }), ranks = element("div");
  const place = element("div", { id: "as-if-picture", class: "flow-box", tabindex: "0", role: "application", "aria-label": "Now and as if on another mesh, and who reads what" });
  let said = null, asked = "", waiting = 0, width = 0;

  async function draw() {
    const of = asked, wide = Math.max(320, Math.floor(place.clientWidth));
    width = place.clientWidth;
    const picture = drawnBy(await getBytes("as-if/svg", { mesh: of, width: wide, height: kHeight, dark: dark() ? 1 : 0 }));
    if (of !== asked) return;
    const cells = [...picture.querySelectorAll(".cell")];
    let current = -1;
    const show = (cell) => { light(picture, cell, said.flow); fill(line, cell ? cell.querySelector("title").textContent.split("\n").join(" · ") : ""); };
    picture.addEventListener("pointermove", (event) => show(event.target.closest(".cell") || cells[current]));
    picture.addEventListener("pointerleave", () => show(cells[current]));
    place.onkeydown = (event) => {
      const to = { ArrowRight: current + 1, ArrowDown: current + 1, ArrowLeft: current - 1, ArrowUp: current - 1, Home: 0, End: cells.length - 1 }[event.key];
      if (to == null) return;
      event.preventDefault();
      current = Math.max(0, Math.min(cells.length - 1, to));
      show(cells[current]);
    };
    place.replaceChildren(picture);
  }
  async function ask() {
    clearTimeout(waiting);
    const of = asked = mesh.value.trim();
    fill(problem);
    if (!of) { answer.hidden = true; return; }
    try {
      const answered = await get("as-if", { mesh: of });
      if (of !== asked) return;
      said = answered;
      fill(headline, said.headline);
      fill(notes, ...said.notes.map((note) => element("li", {}, "▲ " + note)));
      const at = (picture, rank) => (picture && picture.ranks[rank] ? bytesText(picture.ranks[rank].bytes) : "");
      const reads = new Map();
      for (const [, rank, bytes] of said.flow.cells) { const sum = reads.get(rank) || [0, 0]; reads.set(rank, [sum[0] + bytes, sum[1] + 1]); }
      const count = Math.max(said.before ? said.before.ranks.length : 1, said.flow.ranks), kMost = 512;
      fill(ranks, table([{ text: "rank", number: true }, { text: "bytes now", number: true }, { text: "bytes as if", number: true }, { text: "reads", number: true }, { text: "from", number: true }],
        Array.from({ length: Math.min(kMost, count) }, (_, rank) => [String(rank), at(said.before, rank), at(said.after, rank), reads.has(rank) ? bytesText(reads.get(rank)[0]) : "", reads.has(rank) ? counted(reads.get(rank)[1], "file", "files") : ""])),
      count > kMost && element("p", { class: "quiet" }, count - kMost + " more; shardscope map --as-if lists all."));
      answer.hidden = false;
      await draw();
    } catch (error) {
      if (of !== asked) return;
      answer.hidden = true;
      fill(problem, "▲ " + error.message);
    }
  }
  async function save() {
    const link = element("a", { href: URL.createObjectURL(new Blob([await getBytes("as-if/svg", { mesh: asked })], { type: "image/svg+xml" })), download: "as-if.svg" });
    link.click();
    URL.revokeObjectURL(link.href);
  }
  const answer = element("section", { id: "as-if", "aria-label": "As if on another mesh", hidden: true }, headline, notes, place, line,
    element("p", {}, allowed() && button("Reshard like this…", () => tell("reshard", asked), { id: "as-if-reshard" }), button("Save as SVG", save)),
    element("details", {}, element("summary", {}, "Rank by rank"), ranks));
  mesh.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(ask, kTyping); });
  redraw = () => { if (!answer.hidden && said) draw().catch((error) => fill(line, error.message)); };
  new ResizeObserver(() => { if (Math.abs(place.clientWidth - width) > 20) redraw(); }).observe(place);
  const form = element("form", { class: "as-if-line", onsubmit: (event) => { event.preventDefault(); ask().then(() => answer.scrollIntoView({ block: "nearest" })); } },
    element("label", { for: "as-if-mesh" }, "As if on "), mesh, problem);
  return { form, answer };
}
