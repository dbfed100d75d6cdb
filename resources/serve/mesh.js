// The picture of the mesh, as the server draws it: stages, in each its ranks with bytes and states. The groups of a rank light up under the
// pointer; a click shows the rank in the placement map.
import { button, drawnBy, element, fill, follow, get, getBytes, printable, shown, tell } from "./common.js";

const kHeight = 320, kStep = 40;  // pixels; the picture is asked for anew when the width changes by a step
let place = null, line, mesh = null, cells = [], current = -1, drawnWidth = 0, generation = 0;

// "0-3 8"
export const numbersOf = (text) => (text ? text.split(" ") : []).flatMap((span) => {
  const [from, to = from] = span.split("-").map(Number);
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
});

function light(index) {
  for (const cell of cells) cell.node.classList.remove("lit", ...mesh.axes.map((axis) => axis.kind));
  if (index < 0) { fill(line, printable(mesh.remarks) || "Point at a rank, or use the arrow keys; Enter shows it in the map."); return; }
  const cell = cells[index], rank = cell.ranks[0];
  for (const axis of mesh.axes) {
    if (axis.size < 2) continue;
    const first = rank - Math.floor(rank / axis.stride) % axis.size * axis.stride, group = new Set(Array.from({ length: axis.size }, (_, i) => first + i * axis.stride));
    for (const one of cells) if (one !== cell && one.ranks.some((r) => group.has(r))) one.node.classList.add("lit", axis.kind);
  }
  cell.node.classList.add("lit");
  fill(line, cell.node.querySelector("title").textContent.split("\n").join(" · "));
}

// The nearest cell of the same line.
function next(dx, dy) {
  if (current < 0) return 0;
  const at = cells[current];
  let best = current, least = Infinity;
  cells.forEach((cell, i) => {
    const x = cell.x - at.x, y = cell.y - at.y, along = x * dx + y * dy;
    if (along > 0.5 && Math.abs(x * dy) + Math.abs(y * dx) < 0.6 && along < least) { least = along; best = i; }
  });
  return best;
}

function key(event) {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (step) current = next(...step);
  else if (event.key === "Home") current = 0;
  else if (event.key === "End") current = cells.length - 1;
  else if (event.key === "Enter" && current >= 0) return tell("rank", cells[current].ranks[0]);
  else return;
  event.preventDefault();
  light(current);
}

async function draw(width) {
  const now = ++generation;
  const [said, svg] = await Promise.all([get("mesh"), getBytes("mesh/svg", { width, height: kHeight })]);
  if (now !== generation) return;
  mesh = said;
  const picture = drawnBy(svg), rank = cells[current]?.ranks[0]; // stays where the reader is
  cells = [...picture.querySelectorAll(".cell")].map((node) => {
    const back = node.querySelector("rect");
    return { node, ranks: numbersOf(node.dataset.ranks), x: Number(back.getAttribute("x")), y: Number(back.getAttribute("y")) };
  });
  current = cells.findIndex((cell) => cell.ranks.includes(rank));
  const over = (event) => cells.findIndex((cell) => cell.node.contains(event.target));
  picture.addEventListener("pointermove", (event) => light(over(event)));
  picture.addEventListener("pointerleave", () => light(current));
  picture.addEventListener("click", (event) => { const index = over(event); if (index >= 0) tell("rank", cells[index].ranks[0]); });
  place.replaceChildren(picture);
  light(current);
}

async function save() {
  const link = element("a", { href: URL.createObjectURL(new Blob([await getBytes("mesh/svg")], { type: "image/svg+xml" })), download: "mesh.svg" });
  link.click();
  URL.revokeObjectURL(link.href);
}

export function meshPanel(more) {
  const info = shown.info;
  if (info.totals.ranks < 2) return null;
  line = element("p", { id: "mesh-line", class: "quiet small", role: "status" });
  place = element("div", { id: "mesh", tabindex: "0", role: "application", "aria-label": "Mesh of ranks", "aria-describedby": "mesh-line", onkeydown: (event) => { if (cells.length) key(event); } });
  drawnWidth = 0;
  cells = [];
  current = -1;
  new ResizeObserver(() => {
    const width = Math.floor(place.clientWidth / kStep) * kStep;
    if (width === drawnWidth || width === 0) return;
    drawnWidth = width;
    draw(width).catch((error) => fill(line, error.message));
  }).observe(place);
  return element("section", { id: "mesh-panel", "aria-label": "Mesh of ranks" }, place, line,
    info.mesh ? element("details", { class: "quiet small" }, element("summary", {}, "Why this mesh"),
      element("ul", {}, ...(info.mesh.source === "declared" ? ["Declared by the checkpoint."] : []).concat(info.mesh.evidence).map((text) => element("li", {}, text)))) : null,
    element("p", {}, button("Save as SVG", save)), more);
}

// What a validation finds changes the states.
let seen = null;
follow("accepted", (said) => {
  if (place?.isConnected && seen != null && seen !== said.generation && drawnWidth) draw(drawnWidth);
  seen = said.generation;
});
