// The placement map: tensors by ranks, folded as in the window. What is drawn comes in tiles, one byte a cell (the
// worst of several where cells are smaller than pixels), and from 14 pixels on as the slices that each rank holds.
// Everything on screen is copied from small pictures, so that a frame costs the same however many chunks there are. What a
// frame needs is kept and used again: a collection of garbage would be longer than the frame.
import { kBlock, packed, paintCells } from "./cells.js";
import { byId, button, color, counted, countText, css, element, follow, get, getBytes, tell } from "./common.js";

const kTile = 256;          // cells a tile has each way; PageCheckpoint::kTile
const kReadable = 14;       // pixels from which a cell shows slices
const kLargest = 96, kTallest = 30e6;
const kMostScreens = 3;     // pictures of slices that are kept, in pixels of the map
const kMostTiles = 200, kMostSlices = 64, kMostRows = 400;  // that are kept: tiles, blocks of slices and of rows
const kMostAsked = 150;     // what waits behind that has scrolled by
const kSettle = 120;        // milliseconds without another step of zoom
const kBudget = 2, kBudgetAtRest = 4;  // milliseconds of a frame for new pictures
const kStates = ["ok", "unread", "nan/inf", "differs", "overlap", "missing", "gap"];
const kStateColors = ["ok", "unread", "nan", "differs", "overlap", "missing", "gap"];
const kMarks = ["", "", " N", " ≠", " 2", " /", " X"];  // beside the number of a rank, as in the window
const kStateWords = ["", "not checked", "NaN or infinities", "replicas that differ", "overlap", "missing or truncated", "no owner"];
const kGlyphs = ["", "", "N", "≠", "2", "/", "✕"];
const healthOfByte = (value) => (value < 165 ? 0 : value < 175 ? 1 : value < 185 ? 2 : value < 195 ? 3 : value < 210 ? 4 : value < 230 ? 5 : 6);

// What the script of each frame took, in milliseconds, and whether all is drawn; read by measurements and tests.
const frames = [];
frames.whole = false;
globalThis.shardscopeFrames = frames;

let box, scroll, space, canvas, paint, cellLine, opener, pinner, legend, page;
const options = { pattern: "*", fold: "1", alike: "0", axes: "", groups: "1" };
const opened = new Map();  // by key of a group that was opened or closed
let pins = [];  // rows at the top: "g" and the key of a group, whose sum it is, or "t" and the name of a tensor
let head = null, generation = 0, failed = "";
let cellWidth = 10, cellHeight = 18, fitted = true;
let cursor = null, hover = null, waiting = false;
let labels, labelWidth = 240, lineHeight = 17, textSize = 12.5, theme;
let viewWidth = 1, viewHeight = 1, spaceWidth = 0, spaceHeight = 0;  // what is seen of the map, and all of it
let drawnLeft = -1, drawnTop = -1, moved = -1e9, drawn = 0;
let minimap, minimapPen, minimapShown = false, minimapWanted = true;
let laidWidth = 0, laidRatio = 0, copies = false, ghosts = false, zoomed = -1e9, settling = 0;
let partRows = 8, partColumns = 16;  // cells of one painted picture: some 320 x 160 pixels, a millisecond or less to paint
let tiles, gaps, rowBlocks, sliceBlocks, parts, asked, bands;
let partPixels = 0;
const spare = [];  // pictures of slices that show nothing now

const parameters = (more) => ({ pattern: options.pattern, fold: options.fold, alike: options.alike, axes: options.axes, groups: options.groups, open: [...opened].map(([key, open]) => (open ? "+" : "-") + key).join("\n"), pin: pins.join("\n"), ...more });
const headHeight = () => (head ? (head.axes.length + 1) * lineHeight + 4 : lineHeight);
const gapWidth = () => (head && head.gaps ? 74 : 0);
const gridWidth = () => Math.max(1, viewWidth - labelWidth - gapWidth());
const gridHeight = () => Math.max(1, viewHeight - headHeight());
// Where the columns of ranks end: beside them is what no rank holds.
const gridEnd = () => labelWidth + Math.min(gridWidth(), head.column_count * cellWidth);
const ratio = () => window.devicePixelRatio || 1;
// Pinned rows that fit into half of the grid; they do not scroll.
const fixedRows = () => (head ? Math.min(head.pins.length, Math.floor(gridHeight() / 2 / cellHeight)) : 0);
const readable = () => Math.min(cellWidth, cellHeight) >= kReadable;

// Two numbers below 2^26 as one, so that looking something up makes no text.
const pairKey = (row, column) => row * 67108864 + column;

// ------------------------------------------------------------------ what is asked for

// Forgets what was shown longest ago; nothing that the last frames showed.
function evict(map) {
  let oldest = null, old = null;
  for (const [key, one] of map) if (one.used < drawn - 1 && (!old || one.used < old.used)) { oldest = key; old = one; }
  if (old) map.delete(oldest);
  return old;
}
function keep(map, most, key, value) {
  const old = map.size >= most ? evict(map) : null;
  value.used = drawn;
  map.set(key, value);
  return old;
}
function kept(map, key) {
  const known = map.get(key);
  if (known) known.used = drawn;
  return known;
}

function forgetParts() {
  for (const part of parts.values()) spare.push(part.picture);
  parts.clear();
}
function forget() {
  copies = ghosts = false;
  if (parts) forgetParts();
  tiles = new Map(); gaps = new Map(); rowBlocks = new Map(); sliceBlocks = new Map(); parts = new Map(); asked = new Set(); labels = new Map();
}

// With `again` the same map is asked for once more, as its states have changed: what is seen of it, and the chosen cell, stay.
// With `group` that one opened or closed: what is above it stays, and its sum is the chosen row. With `at`, which is a row as
// `pins` has them, that row is chosen and seen.
async function open(again, group, at) {
  const now = ++generation, before = again && head, chosen = cursor && { row: cursor.row, column: cursor.column };
  forget();
  head = null;
  failed = "";
  try {
    const said = await get("placement", parameters({ columns: 1, count: kBlock, at: at || "" }));
    if (now !== generation) return;
    head = said;
    keepRows(0, said.rows);
    laidWidth = 0;
    makeBands();
    explain();
    showAxes();
    if (at && head.at != null) { fitted = false; layout(); return select({ row: head.at, column: Math.min(chosen.column, head.column_count - 1) }); }
    if (before && before.row_count === head.row_count && before.column_count === head.column_count) { say(cursor, true); return layout(); }
    if (group && chosen.row < head.row_count) { fitted = false; choose(chosen); say(chosen, true); return layout(); }
    fitted = true;
    fit();
    choose(null);
    cellLine.textContent = head.row_count ? counted(head.row_count, "row", "rows") + " on " + counted(head.column_count, "rank", "ranks") + "; point at a cell, or use the arrow keys" : "No tensor has such a name.";
  } catch (error) {
    if (now !== generation) return;
    failed = error.message;
    cellLine.textContent = failed;
  }
  layout();
  if (head) takeRank();
}

// The latest wish is answered first: what has scrolled by can wait.
const queue = [];
let running = 0;
function ask(key, work) {
  if (asked.has(key)) return;
  asked.add(key);
  queue.push([generation, key, work]);
  if (queue.length > kMostAsked) asked.delete(queue.shift()[1]);
  pump();
}
function pump() {
  while (running < 4 && queue.length) {
    const [of, key, work] = queue.pop();
    if (of !== generation) continue;
    ++running;
    // What failed is not asked for again before it is seen again; what is forgotten later is.
    work().then(() => redraw(), () => {}).finally(() => { if (of === generation) asked.delete(key); --running; pump(); });
  }
}

// What a frame shows of a row, as it shows it.
function keepRows(block, rows) {
  keep(rowBlocks, kMostRows, block, { rows: rows.map((row, r) => ({ name: (block * kBlock + r < head.pins.length ? "⚑ " : "") + (row.text ?? row.name), mark: !row.group?.sum ? "" : row.group.open ? "▾" : "▸", indent: row.group ? 14 : 0, sum: row.group?.sum ? row.group : null, tensor: row.tensor, tensors: row.tensors, state: kStates.indexOf(row.health), badge: row.tensors > 1 && !row.group?.sum ? "×" + row.tensors : "" })) });
}

function rowAt(row) {
  const block = Math.floor(row / kBlock), known = kept(rowBlocks, block);
  if (known) return known.rows[row - block * kBlock];
  ask("r" + block, async () => {
    const of = generation, said = await get("placement", parameters({ first: block * kBlock, count: kBlock }));
    if (of === generation) keepRows(block, said.rows);
  });
  return null;
}

// Cells of a block of rows and columns.
function slicesAt(rowBlock, columnBlock) {
  const key = pairKey(rowBlock, columnBlock), known = kept(sliceBlocks, key);
  if (known) return known;
  ask("s" + key, async () => {
    const of = generation;
    const said = await get("placement", parameters({ first: rowBlock * kBlock, count: kBlock, slices: 1, from: columnBlock * kBlock, to: (columnBlock + 1) * kBlock }));
    if (of !== generation) return;
    keep(sliceBlocks, kMostSlices, key, packed(said.rows, columnBlock * kBlock));
    if (!rowBlocks.has(rowBlock)) keepRows(rowBlock, said.rows);
  });
  return null;
}

// ------------------------------------------------------------------ colors

function readTheme() {
  const from = color("hold-from"), to = color("hold-to");
  const states = kStateColors.map(color), surface = color("surface");
  const words = new Uint32Array(256);
  const pack = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
  for (let value = 0; value < 256; ++value) {
    const state = healthOfByte(value), share = value <= 1 ? 0 : Math.min(1, (value - 1) / 158);
    words[value] = pack(value === 0 ? surface : state ? states[state] : from.map((part, i) => Math.round(part + (to[i] - part) * share)));
  }
  const mixed = (a, b, part) => a.map((value, i) => Math.round(value + (b[i] - value) * part));
  theme = { words, states, surface, text: color("text"), quiet: color("quiet"), line: color("line"), panel: color("panel"), outline: color("outline"), accent: color("accent"),
    held: mixed(from, to, 0.8), empty: mixed(surface, states[0], 0.47) };
  // As words and as texts, so that no frame makes them.
  theme.packed = { surface: pack(theme.surface), text: pack(theme.text), quiet: pack(theme.quiet), held: pack(theme.held), empty: pack(theme.empty), edge: pack(mixed(theme.empty, theme.outline, 0.6)) };
  theme.axes = Object.fromEntries(["pipeline", "data", "tensor", "expert", "replica", "other"].map((kind) => [kind, color("axis-" + kind)]));
  theme.css = { empty: css(theme.empty), held: css(theme.held), outline: css(theme.outline, 0.6), 
    veil: css(theme.surface, 0.6), cursorRow: css(theme.accent, 0.18), cursorLines: css(theme.accent, 0.5), hoverLines: css(theme.accent, 0.35), states: states.map((one) => css(one)) };
  for (const name of ["surface", "text", "quiet", "line", "panel", "accent"]) theme.css[name] = css(theme[name]);
  theme.hatches = kStates.map((_, state) => hatch(state));
  theme.patterns = theme.hatches.map((made) => made && paint.createPattern(made, "repeat"));
}

// As the window hatches them: nothing is told by color alone.
function hatch(state) {
  if (state < 3) return null;
  const made = document.createElement("canvas");
  made.width = made.height = 6;
  const pen = made.getContext("2d");
  pen.fillStyle = css(state === 6 ? theme.surface : theme.states[state]);
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = state === 6 ? css(theme.states[6]) : "rgba(0,0,0,.6)";
  pen.lineWidth = 1.2;
  pen.beginPath();
  if (state === 3) { pen.moveTo(0, 3); pen.lineTo(6, 3); }
  if (state === 4 || state === 6) for (const at of [-6, 0, 6]) { pen.moveTo(at - 1, 7); pen.lineTo(at + 7, -1); }
  if (state === 5 || state === 6) for (const at of [-6, 0, 6]) { pen.moveTo(at - 1, -1); pen.lineTo(at + 7, 7); }
  pen.stroke();
  return made;
}

function paintState(pen, state, x, y, width, height) {
  pen.fillStyle = theme.patterns[state] && Math.min(width, height) >= 6 ? theme.patterns[state] : theme.css.states[state];
  pen.fillRect(x, y, width, height);
  if (Math.min(width, height) < 14 || !kGlyphs[state]) return;
  pen.font = "bold 11px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.fillStyle = theme.css.surface;
  pen.fillRect(x + width / 2 - 5, y + height / 2 - 5.5, 10, 11);
  pen.fillStyle = theme.css.text;
  pen.fillText(kGlyphs[state], x + width / 2, y + height / 2 + 0.5);
  pen.textAlign = "start";
}

// ------------------------------------------------------------------ pictures

function tileAt(down, across, row, column, mayPaint) {
  // A level has fewer than 2^20 tiles each way.
  const key = ((down * 32 + across) * 1048576 + row) * 1048576 + column, known = kept(tiles, key);
  if (known) {
    if (known.theme !== theme) {
      if (!mayPaint) return null;
      paintTile(known);
    }
    return known.picture;
  }
  ask("t" + key, async () => {
    const of = generation, bytes = await getBytes("placement/tile", parameters({ down, across, row, column }));
    if (of !== generation) return;
    // Painted here, and not in the frame that shows it.
    const tile = { bytes, picture: null, theme: null }, old = keep(tiles, kMostTiles, key, tile);
    tile.picture = old ? old.picture : element("canvas", { width: kTile, height: kTile });
    paintTile(tile);
  });
  return null;
}

const image = new ImageData(kTile, kTile), words = new Uint32Array(image.data.buffer);
function paintTile(tile) {
  if (!theme) readTheme();
  for (let i = 0; i < words.length; ++i) words[i] = theme.words[tile.bytes[i]];
  tile.picture.getContext("2d").putImageData(image, 0, 0);
  tile.theme = theme;
}

function gapsAt(down, row) {
  const key = pairKey(down, row), known = kept(gaps, key);
  if (known) return known.bytes;
  ask("g" + key, async () => {
    const of = generation, bytes = await getBytes("placement/tile", parameters({ down, row, gaps: 1 }));
    if (of === generation) keep(gaps, kMostTiles, key, { bytes });
  });
  return null;
}

// A picture that shows nothing now. One that is without pixels takes no memory.
function unused() {
  let free = null;
  while (partPixels > kMostScreens * canvas.width * canvas.height) {
    const old = spare.pop() || evict(parts)?.picture;
    if (!old) break;
    free = old;
    partPixels -= free.width * free.height;
    free.width = 0;
  }
  return free || spare.pop() || element("canvas", { width: 0 });
}

// Some cells with their slices; null until they are known. One of another size serves until the zoom has settled.
function partAt(row, column, mayPaint) {
  const key = pairKey(row, column), known = kept(parts, key);
  if (known && known.width === cellWidth && known.height === cellHeight) return known;
  const top = row * partRows, left = column * partColumns, rowBlock = Math.floor(top / kBlock), columnBlock = Math.floor(left / kBlock);
  const block = slicesAt(rowBlock, columnBlock);
  if (!block || !mayPaint || performance.now() - zoomed < kSettle) return known || null;
  const part = known || { picture: unused(), width: 0, height: 0 };
  if (!known) keep(parts, Infinity, key, part);
  partPixels -= part.picture.width * part.picture.height;
  const shown = { block, rows: partRows, columns: partColumns, top: top - rowBlock * kBlock, left: left - columnBlock * kBlock };
  const some = paintCells(part.picture, shown, { cellWidth, cellHeight, ratio: ratio(), colors: theme, paintState });
  partPixels += part.picture.width * part.picture.height;
  part.width = cellWidth;
  part.height = cellHeight;
  if ((some.copies && !copies) || (some.ghosts && !ghosts)) { copies ||= some.copies; ghosts ||= some.ghosts; explain(); }
  return part;
}

// ------------------------------------------------------------------ sizes

function measureLabels(rows) {
  // On a very wide screen the page's own text is larger, too.
  const large = viewWidth >= 2400;
  lineHeight = large ? 21 : 17;
  textSize = large ? 15 : 12.5;
  letters.clear();
  setFont();
  let widest = 60;
  for (const row of rows) widest = Math.max(widest, textWidth(row.name) + row.indent + (row.badge ? textWidth(row.badge) + 8 : 0) + (head.states.length > 1 ? 17 : 0));
  labelWidth = Math.round(Math.max(90, Math.min(widest + 22, viewWidth * (viewWidth < 500 ? 0.42 : 0.38), 37 * textSize)));
}

// The largest cells of a map that is seen whole.
const fitting = () => (gridWidth() > 2000 ? [kLargest, 40] : [48, 26]);

// All columns, and all rows where they stay readable.
function fit() {
  if (!head) return;
  cellWidth = Math.max(0.02, Math.min(fitting()[0], gridWidth() / Math.max(1, head.column_count)));
  cellHeight = Math.max(Math.min(lineHeight + 1, kTallest / Math.max(1, head.row_count)), Math.min(fitting()[1], gridHeight() / Math.max(1, head.row_count)));
}
function fitAll() {
  if (!head) return;
  fitted = false;
  cellWidth = Math.max(0.02, Math.min(fitting()[0], gridWidth() / Math.max(1, head.column_count)));
  cellHeight = Math.max(0.002, Math.min(fitting()[1], gridHeight() / Math.max(1, head.row_count)));
  layout();
}

// Steps of the wheel that come within one frame are one.
let wheel = null;
function zoomSoon(factor, x, y) {
  if (wheel) { wheel.factor *= factor; wheel.x = x; wheel.y = y; return; }
  wheel = { factor, x, y };
  redraw();
}

// `x` and `y`: what stays where it is, in pixels of the grid.
function zoom(factor, x = gridWidth() / 2, y = gridHeight() / 2) {
  if (!head) return;
  const column = (scroll.scrollLeft + x) / cellWidth, row = (scroll.scrollTop + y) / cellHeight;
  const leastWidth = Math.min(4, gridWidth() / Math.max(1, head.column_count)), leastHeight = Math.min(4, gridHeight() / Math.max(1, head.row_count));
  cellWidth = Math.min(kLargest, kTallest / head.column_count, Math.max(leastWidth, cellWidth * factor));
  cellHeight = Math.min(kLargest, kTallest / head.row_count, Math.max(leastHeight, cellHeight * factor));
  fitted = false;
  zoomed = moved = performance.now();
  layout();
  scroll.scrollTo(column * cellWidth - x, row * cellHeight - y);
}

// A style that is written has the browser lay out the page anew.
const set = (node, name, value) => { if (node.style[name] !== value) node.style[name] = value; };

function measure() { viewWidth = scroll.clientWidth; viewHeight = scroll.clientHeight; }

export function layout() {
  if (!scroll || page.hidden) return;
  if (fitted) { set(scroll, "right", "0px"); measure(); fit(); }
  placeMinimap();
  measure();
  // Another width or another screen: names have other room, pictures other pixels.
  const pixels = ratio();
  if (head && (laidWidth !== viewWidth || laidRatio !== pixels)) { laidWidth = viewWidth; laidRatio = pixels; measureLabels(rowBlocks.get(0)?.rows || []); labels.clear(); forgetParts(); }
  if (fitted) fit();
  if (head) {
    const width = Math.max(viewWidth, labelWidth + head.column_count * cellWidth + gapWidth()), height = Math.max(viewHeight, headHeight() + head.row_count * cellHeight);
    if (width !== spaceWidth) space.style.width = (spaceWidth = width) + "px";
    if (height !== spaceHeight) space.style.height = (spaceHeight = height) + "px";
    measure();  // a scroll bar may have come or gone
  }
  // The canvas reaches under the scroll bars: it keeps its size when they come and go.
  const wide = Math.round(box.clientWidth * pixels), high = Math.round(box.clientHeight * pixels);
  if (canvas.width !== wide || canvas.height !== high) { canvas.width = wide; canvas.height = high; canvas.style.width = box.clientWidth + "px"; canvas.style.height = box.clientHeight + "px"; }
  const cells = (pixels, size, least, most) => Math.max(least, Math.min(most, 2 ** Math.floor(Math.log2(pixels / size))));
  const rows = cells(160, cellHeight, 2, 8), columns = cells(320, cellWidth, 4, 16);
  if (rows !== partRows || columns !== partColumns) { partRows = rows; partColumns = columns; forgetParts(); }
  redraw();
}

// Where the pixels of the screen changed, the map is laid out anew.
export function followScreen() { if (laidRatio && laidRatio !== ratio()) layout(); }

// 1, 2, 5, 10, 20, ...: the first of these that is not below it.
const roundStep = (least) => { for (let ten = 1; ; ten *= 10) for (const step of [1, 2, 5]) if (step * ten >= least) return step * ten; };
const rankText = (column) => column[0] + (column[1] > 1 ? " ×" + column[1] : "");

function makeBands() {
  // Neighbors with one place on an axis and on those outside of it are one band.
  bands = head.axes.map((axis, a) => {
    const list = [];
    let last = null;
    head.columns.forEach((column, c) => {
      const places = column.slice(3, 3 + 2 * (a + 1)).join();
      if (last !== places) list.push({ begin: c, end: c, low: column[3 + 2 * a], high: column[4 + 2 * a] });
      list[list.length - 1].end = c + 1;
      last = places;
    });
    for (const band of list) band.text = axis.name + band.low + (band.high !== band.low ? "–" + band.high : "");
    return list;
  });
  head.marked = [];  // columns with damage
  head.column_states.forEach((state, c) => { if (state > 1) head.marked.push(c); });
  const last = head.columns[head.column_count - 1];
  head.rankLength = last ? rankText(last).length : 1;
  head.texts = [];  // as they are drawn
}

// ------------------------------------------------------------------ drawing

// More while nothing moves: a late frame is not seen then.
const budget = () => (performance.now() - moved < kSettle ? kBudget : kBudgetAtRest);

export function redraw() {
  if (waiting || !scroll || page.hidden) return;
  waiting = true;
  requestAnimationFrame(drawFrame);
}
function drawFrame() {
  const began = performance.now();
  if (wheel) {
    const { factor, x, y } = wheel;
    wheel = null;
    zoom(factor, x, y);  // asks for no other frame, as this one is not drawn yet
  }
  followScreen();
  waiting = false;
  const more = draw(began);
  frames.push(performance.now() - began);
  if (frames.length > 5000) frames.shift();
  if (more) redraw();
  if (!settling && performance.now() - zoomed < kSettle) settling = setTimeout(settle, kSettle + 10);
  frames.whole = !more && !running && !settling;
}
// What was stretched while it was zoomed is painted anew.
function settle() {
  const left = zoomed + kSettle - performance.now();
  settling = left > 0 ? setTimeout(settle, left + 10) : 0;
  if (!settling) redraw();
}

// Whether there is more to paint.
function draw(began) {
  if (!theme) readTheme();
  ++drawn;
  const scale = ratio(), width = viewWidth, height = viewHeight;
  paint.setTransform(scale, 0, 0, scale, 0, 0);
  paint.textBaseline = "middle";
  paint.fillStyle = theme.css.surface;
  paint.fillRect(0, 0, canvas.width, canvas.height);
  if (!head || !head.row_count) return false;
  const left = scroll.scrollLeft, top = scroll.scrollTop, x0 = labelWidth, y0 = headHeight();
  const right = gridEnd();
  if (left !== drawnLeft || top !== drawnTop) moved = began;
  drawnLeft = left;
  drawnTop = top;
  const fixed = fixedRows(), below = y0 + fixed * cellHeight;
  let more = drawBand(y0, below, height, left, top, right, began);
  // Pinned rows stay where they are; what scrolls goes under them.
  if (fixed) {
    more = drawBand(y0, y0, below, left, 0, right, began) || more;
    paint.fillStyle = theme.css.accent;
    paint.fillRect(0, below - 1, right + gapWidth(), 2);
  }
  drawHead(Math.floor(left / cellWidth), Math.min(head.column_count, Math.ceil((left + right - x0) / cellWidth)), x0, right, left);
  if (minimapShown) drawMinimap(left, top);
  return more;
}

// The rows from `from` to `to` (pixels) of a map that begins at `y0` and is scrolled by `top`. Whether there is more to paint.
function drawBand(y0, from, to, left, top, right, began) {
  const scale = ratio(), width = viewWidth, height = to, x0 = labelWidth;
  const firstRow = Math.floor((top + from - y0) / cellHeight), endRow = Math.min(head.row_count, Math.ceil((top + height - y0) / cellHeight));
  const firstColumn = Math.floor(left / cellWidth), endColumn = Math.min(head.column_count, Math.ceil((left + right - x0) / cellWidth));
  let more = false;

  paint.save();
  paint.beginPath();
  paint.rect(0, from, width, height - from);
  paint.clip();
  paint.save();
  paint.beginPath();
  paint.rect(x0, y0, right - x0, height - y0);
  paint.clip();
  paint.imageSmoothingEnabled = false;
  // Pictures of slices cover the tiles below, which are there sooner.
  let missing = false;
  if (readable()) {
    for (let r = Math.floor(firstRow / partRows); r * partRows < endRow; ++r) {
      for (let c = Math.floor(firstColumn / partColumns); c * partColumns < endColumn; ++c) {
        missing ||= !parts.has(pairKey(r, c));
      }
    }
  }
  if (!readable() || missing) {
    // A value of a tile is at least a pixel of the screen wide.
    const across = Math.max(0, Math.ceil(Math.log2(1 / (cellWidth * scale)))), down = Math.max(0, Math.ceil(Math.log2(1 / (cellHeight * scale))));
    const tileWidth = kTile * 2 ** across, tileHeight = kTile * 2 ** down;
    for (let r = Math.floor(firstRow / tileHeight); r * tileHeight < endRow; ++r) {
      for (let c = Math.floor(firstColumn / tileWidth); c * tileWidth < endColumn; ++c) {
        const may = performance.now() - began < budget();
        const picture = tileAt(down, across, r, c, may);
        more ||= !picture && !may;
        if (picture) paint.drawImage(picture, x0 + c * tileWidth * cellWidth - left, y0 + r * tileHeight * cellHeight - top, tileWidth * cellWidth, tileHeight * cellHeight);
      }
    }
    if (cellWidth >= 6 && cellHeight >= 6) {
      paint.fillStyle = theme.css.surface;
      for (let c = firstColumn; c <= endColumn; ++c) paint.fillRect(Math.floor(x0 + c * cellWidth - left), y0, 1, height);
      for (let r = firstRow; r <= endRow; ++r) paint.fillRect(x0, Math.floor(y0 + r * cellHeight - top), width, 1);
    }
  }
  if (readable()) {
    const stepX = partColumns * cellWidth, stepY = partRows * cellHeight;
    for (let r = Math.floor(firstRow / partRows); r * partRows < endRow; ++r) {
      for (let c = Math.floor(firstColumn / partColumns); c * partColumns < endColumn; ++c) {
        const may = performance.now() - began < budget();
        const part = partAt(r, c, may);
        const fits = part && part.width === cellWidth && part.height === cellHeight;
        more ||= !may && !fits;
        if (!part) continue;
        const x = x0 + c * stepX - left, y = y0 + r * stepY - top;
        paint.fillStyle = theme.css.surface;
        paint.fillRect(x, y, stepX, stepY);
        if (fits) paint.drawImage(part.picture, Math.round(x * scale) / scale, Math.round(y * scale) / scale, part.picture.width / scale, part.picture.height / scale);
        else paint.drawImage(part.picture, x, y, part.picture.width / scale * cellWidth / part.width, part.picture.height / scale * cellHeight / part.height);
      }
    }
  }
  if (hover) cross(hover, theme.css.hoverLines, left, top, right, height);
  if (cursor && cursor.column < head.column_count) {
    cross(cursor, theme.css.cursorLines, left, top, right, height);
    const w = Math.max(9, cellWidth), h = Math.max(9, cellHeight);
    const x = x0 + (cursor.column + 0.5) * cellWidth - left - w / 2, y = y0 + (cursor.row + 0.5) * cellHeight - top - h / 2;
    paint.lineWidth = 4; paint.strokeStyle = theme.css.surface; paint.strokeRect(x, y, w, h);
    paint.lineWidth = 2; paint.strokeStyle = theme.css.accent; paint.strokeRect(x, y, w, h);
  }
  paint.restore();
  drawGaps(right, y0, height, top);
  more = drawLabels(firstRow, endRow, y0, height, top, began) || more;
  paint.restore();
  return more;
}

// Lines through the middle of a cell.
function cross(at, color, left, top, right, height) {
  const x = labelWidth + (at.column + 0.5) * cellWidth - left, y = headHeight() + (at.row + 0.5) * cellHeight - top;
  paint.strokeStyle = color;
  paint.lineWidth = 1;
  paint.beginPath();
  paint.moveTo(labelWidth, y); paint.lineTo(right, y);
  if (at.column < head.column_count) { paint.moveTo(x, headHeight()); paint.lineTo(x, height); }
  paint.stroke();
}

// ------------------------------------------------------------------ the minimap beside the grid

const kMinimap = { width: 120, height: 168, margin: 10 };

// Where the map is larger than what is seen of it, and there is room.
function placeMinimap() {
  const wholeWidth = box.clientWidth - labelWidth - gapWidth(), wholeHeight = box.clientHeight - headHeight();
  minimapShown = !!head && minimapWanted && head.row_count > 0 && wholeWidth > 4 * kMinimap.width && wholeHeight > kMinimap.height &&
    (head.column_count * cellWidth > wholeWidth + 1 || head.row_count * cellHeight > wholeHeight + 1);
  set(scroll, "right", minimapShown ? kMinimap.width + 2 * kMinimap.margin + "px" : "0px");
  if (minimap.hidden === minimapShown) minimap.hidden = !minimapShown;
  if (!minimapShown) return;
  for (const side of ["right", "top"]) set(minimap, side, kMinimap.margin + "px");
  const [wide, high] = [kMinimap.width, kMinimap.height].map((length) => Math.round(length * ratio()));
  if (minimap.width !== wide || minimap.height !== high) { minimap.width = wide; minimap.height = high; }
}

function drawMinimap(left, top) {
  const { width, height } = kMinimap, pen = minimapPen;
  pen.setTransform(ratio(), 0, 0, ratio(), 0, 0);
  pen.fillStyle = theme.css.surface;
  pen.fillRect(0, 0, width, height);
  const halvings = (count) => Math.max(0, Math.ceil(Math.log2(count / kTile)));
  const down = halvings(head.row_count), across = halvings(head.column_count), picture = tileAt(down, across, 0, 0, true);
  if (picture) pen.drawImage(picture, 0, 0, head.column_count / 2 ** across, head.row_count / 2 ** down, 0, 0, width, height);
  const share = (from, room, all) => [Math.max(0, from / all), Math.min(1, (from + room) / all)];
  const [x0, x1] = share(left, gridWidth(), head.column_count * cellWidth), [y0, y1] = share(top, gridHeight(), head.row_count * cellHeight);
  const x = Math.min(x0 * width, width - 6), y = Math.min(y0 * height, height - 6), w = Math.max(6, (x1 - x0) * width), h = Math.max(6, (y1 - y0) * height);
  pen.fillStyle = theme.css.veil;
  pen.fillRect(0, 0, width, y);
  pen.fillRect(0, y + h, width, height - y - h);
  pen.fillRect(0, y, x, h);
  pen.fillRect(x + w, y, width - x - w, h);
  pen.lineWidth = 2;
  pen.strokeStyle = theme.css.accent;
  pen.strokeRect(x + 1, y + 1, Math.max(1, w - 2), Math.max(1, h - 2));
}

function goTo(event) {
  const box = minimap.getBoundingClientRect();
  scroll.scrollLeft = (event.clientX - box.left) / box.width * head.column_count * cellWidth - gridWidth() / 2;
  scroll.scrollTop = (event.clientY - box.top) / box.height * head.row_count * cellHeight - gridHeight() / 2;
  redraw();
}

// ------------------------------------------------------------------ margins

function drawGaps(x, y0, height, top) {
  if (!gapWidth()) return;
  paint.fillStyle = theme.css.panel;
  paint.fillRect(x, y0, gapWidth(), height - y0);
  const down = Math.max(0, Math.ceil(Math.log2(1 / cellHeight))), each = 2 ** down;
  const first = Math.floor(top / cellHeight / each), end = Math.ceil(Math.min(head.row_count, (top + height - y0) / cellHeight) / each);
  for (let at = first; at < end; ++at) {
    const bytes = gapsAt(down, Math.floor(at / kTile));
    if (!bytes || !bytes[at % kTile]) continue;
    const tall = Math.max(7, each * cellHeight - 2), y = y0 + (at + 0.5) * each * cellHeight - top - tall / 2;
    paintState(paint, 6, x + 6, y, gapWidth() - 12, tall);
    if (cursor && cursor.column >= head.column_count && Math.floor(cursor.row / each) === at) {
      paint.lineWidth = 2; paint.strokeStyle = theme.css.accent; paint.strokeRect(x + 4, y - 2, gapWidth() - 8, tall + 4);
    }
  }
  paint.fillStyle = theme.css.line;
  paint.fillRect(x, 0, 1, height);
}

// The sum over its letters, each measured once: names are many, letters are few.
const letters = new Map();
const setFont = () => { paint.font = textSize + "px system-ui, sans-serif"; };
function textWidth(text) {
  let width = 0;
  for (const letter of text) {
    if (!letters.has(letter)) letters.set(letter, paint.measureText(letter).width);
    width += letters.get(letter);
  }
  return width;
}

// As in the window (elidedName): parts give way from the front, up to the number of the layer, then those behind it. No part is
// abbreviated.
function shortened(name, room, may) {
  const known = labels.get(name);
  if (known && known.room === Math.floor(room)) return known.text;
  if (!may) return null;
  let text = name;
  if (textWidth(text) > room) {
    const pieces = name.split("."), number = Math.max(0, pieces.findIndex((piece) => /^\d/.test(piece)));
    const tries = [];
    for (let first = 1; first <= number; ++first) tries.push("…" + pieces.slice(first).join("."));
    for (let from = number + 2; from < pieces.length; ++from) tries.push("…" + pieces[number] + ".…" + pieces.slice(from).join("."));
    text = tries.find((one) => textWidth(one) <= room);
    let keep = name.length;
    while (!text || (keep > 1 && textWidth(text) > room)) { keep = Math.floor(keep * 0.9); text = "…" + name.slice(-keep); }
  }
  if (labels.size > 5000) labels.clear();
  labels.set(name, { text, room: Math.floor(room) });
  return text;
}

// Whether there is more to draw.
function drawLabels(first, end, y0, height, top, began) {
  let more = false;
  paint.save();
  paint.fillStyle = theme.css.panel;
  paint.fillRect(0, y0, labelWidth - 1, height - y0);
  paint.beginPath();
  paint.rect(0, y0, labelWidth - 1, height - y0);
  paint.clip();
  setFont();
  const every = Math.max(1, Math.ceil(lineHeight / cellHeight));
  for (let row = first - (first % every); row < end; row += every) {
    const known = rowAt(row);
    if (!known) continue;
    const y = y0 + (row + 0.5) * cellHeight - top;
    if (y < y0 - lineHeight / 2) continue;
    if (cursor && cursor.row === row) { paint.fillStyle = theme.css.cursorRow; paint.fillRect(0, y - lineHeight / 2, labelWidth, lineHeight); }
    let right = labelWidth - 10;
    if (known.state > 0) { paintState(paint, known.state, right - 12, y - 6, 12, 12); right -= 17; }
    if (known.badge && labelWidth >= 160) {
      const room = textWidth(known.badge);
      paint.fillStyle = theme.css.quiet;
      paint.fillText(known.badge, right - room, y);
      right -= room + 7;
    }
    paint.fillStyle = every === 1 ? theme.css.text : theme.css.quiet;
    // Names that are new take their time: the rest of them come with the next frame, and are cut until then.
    const text = shortened(known.name, right - 10 - known.indent, performance.now() - began < budget());
    more ||= text === null;
    paint.fillText(text ?? known.name, 8 + known.indent, y);
    if (known.mark) paint.fillText(known.mark, 8, y);
  }
  paint.restore();
  paint.fillStyle = theme.css.line;
  paint.fillRect(labelWidth - 1, 0, 1, height);
  return more;
}

function drawHead(first, end, x0, right, left) {
  paint.fillStyle = theme.css.panel;
  paint.fillRect(0, 0, canvas.width, headHeight() - 1);
  setFont();
  const named = (text, line) => { paint.fillStyle = theme.css.quiet; paint.textAlign = "right"; paint.fillText(text, labelWidth - 10, line * lineHeight + lineHeight / 2 + 2); paint.textAlign = "start"; };
  head.axes.forEach((axis, a) => named(axis.name, a));
  named("rank", head.axes.length);
  paint.save();
  paint.beginPath();
  paint.rect(x0, 0, right - x0, headHeight());
  paint.clip();
  bands.forEach((list, a) => {
    const y = a * lineHeight + 2;
    // Too thin to be told apart, they are one.
    if (cellWidth * (list[0].end - list[0].begin) < 2) { paint.fillStyle = css(theme.axes[head.axes[a].kind], 0.4); paint.fillRect(x0, y + 1, Math.min(right, x0 + head.column_count * cellWidth - left) - x0, lineHeight - 2); return; }
    let low = 0, high = list.length;
    while (low < high) { const middle = (low + high) >> 1; if (list[middle].end <= first) low = middle + 1; else high = middle; }
    paint.textAlign = "center";
    // One color after the other, then the labels.
    const hue = theme.axes[head.axes[a].kind];
    for (const odd of [0, 1]) {
      paint.fillStyle = css(hue, odd ? 0.39 : 0.22);
      for (let i = low; i < list.length && list[i].begin < end; ++i) {
        if (list[i].low % 2 !== odd) continue;
        const from = x0 + list[i].begin * cellWidth - left, wide = (list[i].end - list[i].begin) * cellWidth, edge = wide >= 4 ? 0.5 : 0;
        paint.fillRect(from + edge, y + 1, wide - 2 * edge, lineHeight - 2);
      }
    }
    paint.fillStyle = theme.css.text;
    for (let i = low; i < list.length && list[i].begin < end; ++i) {
      // The label stays in view while a part of its band is.
      const a0 = Math.max(x0 + list[i].begin * cellWidth - left, x0), a1 = Math.min(x0 + list[i].end * cellWidth - left, right);
      if (a1 - a0 >= 3 + 0.5 * textSize * list[i].text.length) paint.fillText(list[i].text, (a0 + a1) / 2, y + lineHeight / 2);
    }
    paint.textAlign = "start";
  });
  const y = head.axes.length * lineHeight + 2;
  const room = 0.58 * textSize * head.rankLength + 8, every = roundStep(room / cellWidth);
  for (const c of head.marked) {
    if (c < first || c >= end) continue;
    paint.fillStyle = theme.css.states[head.column_states[c]];
    const from = x0 + c * cellWidth - left;
    paint.fillRect(cellWidth >= 3 ? from : from + cellWidth / 2 - 1.5, y + lineHeight - 5, Math.max(3, cellWidth - 1), 4);
  }
  for (let c = first - (first % every); c < end; c += every) {
    const from = x0 + c * cellWidth - left, text = (head.texts[c] ??= rankText(head.columns[c])) + (every === 1 ? kMarks[head.column_states[c]] : "");
    paint.fillStyle = every === 1 ? theme.css.text : theme.css.quiet;
    if (every === 1) { paint.textAlign = "center"; paint.fillText(text, from + cellWidth / 2, y + lineHeight / 2 - 1); paint.textAlign = "start"; }
    else if (from + 3 + room - 8 <= right) { paint.fillText(text, from + 3, y + lineHeight / 2 - 1); paint.fillRect(from, y + lineHeight - 6, 1, 5); }
  }
  paint.restore();
  if (gapWidth()) { paint.fillStyle = theme.css.text; paint.textAlign = "center"; paint.fillText("no owner", right + gapWidth() / 2, y + lineHeight / 2 - 1); paint.textAlign = "start"; }
  paint.fillStyle = theme.css.line;
  paint.fillRect(0, headHeight() - 1, canvas.width, 1);
}

// Only what is there to be explained.
function explain() {
  if (!theme) readTheme();
  const items = [];
  const sample = (draws, words) => {
    const made = element("canvas", { width: 32, height: 28 });
    made.style.width = "16px"; made.style.height = "14px";
    const pen = made.getContext("2d");
    pen.scale(2, 2);
    pen.textBaseline = "middle";
    draws(pen);
    items.push(element("span", {}, made, words));
  };
  sample((pen) => { pen.fillStyle = theme.css.held; pen.fillRect(0, 0, 16, 14); }, "held: where in the tensor, or from afar the share of it (the stronger the color, the more)");
  head.states.forEach((name) => {
    const state = kStates.indexOf(name);
    if (state > 0) sample((pen) => paintState(pen, state, 0, 0, 16, 14), kStateWords[state]);
  });
  if (copies) sample((pen) => { pen.fillStyle = theme.css.empty; pen.fillRect(0, 0, 16, 14); pen.setLineDash([1, 2]); pen.strokeStyle = theme.css.text; pen.strokeRect(0.5, 0.5, 15, 13); }, "dotted: a replica of what an earlier rank holds");
  if (ghosts) sample((pen) => { pen.setLineDash([3, 3]); pen.strokeStyle = theme.css.quiet; pen.strokeRect(0.5, 0.5, 15, 13); }, "dashed: a replica that the mesh implies, stored for another rank");
  legend.replaceChildren(...items);
}

// ------------------------------------------------------------------ pointing

let saying = 0;
function say(at, now) {
  clearTimeout(saying);
  if (!at) return;
  saying = setTimeout(async () => {
    const of = generation;
    try {
      const said = await get("placement/cell", parameters({ row: at.row, column: at.column }));
      if (of === generation) cellLine.textContent = said.text;
    } catch (error) { cellLine.textContent = error.message; }
  }, now ? 0 : 60);
}

function cellAt(event) {
  if (!head) return null;
  const box = scroll.getBoundingClientRect();
  const x = event.clientX - box.left - labelWidth, y = event.clientY - box.top - headHeight();
  const row = Math.floor((y < fixedRows() * cellHeight ? y : y + scroll.scrollTop) / cellHeight);
  if (x < -labelWidth || y < 0 || row >= head.row_count) return null;
  if (gapWidth() && x + labelWidth >= gridEnd()) return x + labelWidth < gridEnd() + gapWidth() ? { row, column: head.column_count } : null;
  const column = Math.max(0, Math.floor((x + scroll.scrollLeft) / cellWidth));
  return column < head.column_count ? { row, column, label: x < 0 } : null;
}

function choose(at) {
  cursor = at;
  opener.disabled = pinner.disabled = !at;
  pinner.textContent = at && pinsAt(at.row).length ? "Unpin row" : "Pin row";
}

function select(at) {
  choose(at);
  const reveal = (from, to, room, now) => (from < now ? from : to > now + room ? to - room : now);
  const fixed = fixedRows();
  if (at.row >= fixed) scroll.scrollTop = reveal((at.row - fixed) * cellHeight, (at.row + 1) * cellHeight, gridHeight(), scroll.scrollTop);
  if (at.column < head.column_count) scroll.scrollLeft = reveal(at.column * cellWidth, (at.column + 1) * cellWidth, gridWidth(), scroll.scrollLeft);
  say(at, true);
  redraw();
}

// The column of a rank, once the map is there.
let wantedRank = null;
export function showRank(rank) {
  wantedRank = rank;
  if (head) takeRank();
}
function takeRank() {
  const column = wantedRank == null ? -1 : head.columns.findIndex((one) => one[0] === wantedRank);
  wantedRank = null;
  if (column >= 0 && head.row_count) select({ row: cursor ? cursor.row : 0, column });
}

async function nextFinding(step) {
  const from = cursor || { row: 0, column: 0 };
  try {
    const said = await get("placement/cell", parameters({ row: from.row, column: from.column, step }));
    if (said.found) select({ row: said.row, column: said.column });
    else cellLine.textContent = "Nothing here is damaged.";
  } catch (error) { cellLine.textContent = error.message; }
}

function openTensor() {
  const row = cursor && rowAt(cursor.row);
  if (row?.sum) { opened.set(row.sum.key, !row.sum.open); open(true, row.sum.key); }
  else if (row) tell("tensor", row.tensor);
}

// The pins that a row shows; the sum of a pinned group stands at the top and in its place.
function pinsAt(row) {
  if (row < head.pins.length) return head.pins[row];
  const sum = rowAt(row)?.sum;
  return sum && pins.includes("g" + sum.key) ? ["g" + sum.key] : [];
}
function togglePin() {
  const row = cursor && rowAt(cursor.row);
  if (!row) return;
  const gone = pinsAt(cursor.row), one = row.sum ? "g" + row.sum.key : "t" + row.tensor;
  pins = gone.length ? pins.filter((pin) => !gone.includes(pin)) : [...pins, one];
  open(true, null, one);
}

function key(event) {
  if (!head || !head.row_count || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = Math.max(1, Math.floor(gridHeight() / cellHeight) - 1), most = head.row_count - 1, widest = head.column_count - 1 + (head.gaps ? 1 : 0);
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-rows, 0], PageDown: [rows, 0], Home: [0, -1e9], End: [0, 1e9] };
  const other = { "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: fitAll, f: () => nextFinding("next"), F: () => nextFinding("previous"), p: togglePin, Enter: openTensor, Escape: () => { choose(null); redraw(); } };
  if (steps[event.key]) {
    event.preventDefault();
    const from = cursor || { row: 0, column: 0 }, [down, across] = cursor ? steps[event.key] : [0, 0];
    select({ row: Math.max(0, Math.min(most, from.row + down)), column: Math.max(0, Math.min(widest, from.column + across)) });
  } else if (other[event.key]) {
    event.preventDefault();
    other[event.key]();
  }
}

// ------------------------------------------------------------------ the page

let axisChoice;
function showAxes() {
  axisChoice.hidden = head.axes.length < 2 && !options.axes;
  if (options.axes || axisChoice.querySelector("select").options.length > 1) return;
  const choice = axisChoice.querySelector("select");
  choice.replaceChildren(...head.axes.map((axis, a) => element("option", { value: a }, axis.name)));
}

export function showMap(into, filter) {
  page = into;
  if (scroll) {
    if (filter) { byId("map-filter").value = options.pattern = filter; open(); }
    return layout();
  }
  if (filter) options.pattern = filter;
  const field = element("input", { type: "text", id: "map-filter", value: options.pattern, spellcheck: "false", autocomplete: "off", "aria-describedby": "map-help" });
  const check = (name, words) => element("label", {}, element("input", { type: "checkbox", checked: options[name] === "1", onchange: (event) => { options[name] = event.target.checked ? "1" : "0"; open(); } }), words);
  axisChoice = element("label", { hidden: true }, "Outermost axis ", element("select", { onchange: (event) => { options.axes = event.target.value; open(); } }));
  page.append(
    element("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); options.pattern = field.value || "*"; open(); } },
      element("label", { for: "map-filter" }, "Tensors"), field, element("button", {}, "Filter"),
      check("fold", "Fold layers"), check("alike", "Fold ranks"), check("groups", "Groups"), axisChoice,
      element("label", { class: "roomy" }, element("input", { type: "checkbox", checked: true, onchange: (event) => { minimapWanted = event.target.checked; layout(); } }), "Minimap"),
      button("−", () => zoom(0.8), { title: "Smaller (-)", "aria-label": "Smaller" }), button("+", () => zoom(1.25), { title: "Larger (+)", "aria-label": "Larger" }),
      button("All", fitAll, { title: "The whole map (0)" }), button("Next finding", () => nextFinding("next"), { title: "The next cell that something is wrong with (F)" })),
    box = element("div", { id: "map-box" }, canvas = element("canvas", { id: "map", "aria-hidden": "true" }), scroll = element("div", { id: "map-scroll", tabindex: "0", role: "application", "aria-roledescription": "placement map", "aria-label": "Placement map: tensors by ranks", "aria-describedby": "map-cell map-help" },
      space = element("div", { id: "map-space" })),
      minimap = element("canvas", { id: "minimap", hidden: true, title: "Click or drag to move the map", "aria-hidden": "true" })),
    element("div", { id: "map-line" }, cellLine = element("p", { id: "map-cell", role: "status" }, "Reading …"), opener = button("Open tensor", openTensor, { title: "The tensor of the chosen cell (Enter)", disabled: true }), pinner = button("Pin row", togglePin, { title: "Keeps the row in view at the top (P)", disabled: true })),
    legend = element("div", { id: "legend" }),
    element("p", { id: "map-help", class: "quiet small" }, "Arrow keys move, + and − or Ctrl with the wheel zoom, 0 shows all, F goes to the next finding, P pins the row to the top, Enter opens the tensor, or opens and closes a group, Escape deselects the cell."));
  paint = canvas.getContext("2d", { alpha: false });
  // A zoom scrolls, too, and is drawn already.
  scroll.addEventListener("scroll", () => { if (scroll.scrollLeft !== drawnLeft || scroll.scrollTop !== drawnTop) redraw(); }, { passive: true });
  minimapPen = minimap.getContext("2d");
  for (const name of ["pointerdown", "pointermove"]) minimap.addEventListener(name, (event) => { if (event.buttons & 1) { minimap.setPointerCapture(event.pointerId); goTo(event); } });
  scroll.addEventListener("keydown", key);
  scroll.addEventListener("pointermove", (event) => { hover = cellAt(event); say(hover); redraw(); });
  scroll.addEventListener("pointerleave", () => { hover = null; say(cursor); redraw(); });
  scroll.addEventListener("click", (event) => { const at = cellAt(event); if (!at) return; choose({ row: at.row, column: at.column }); say(cursor, true); redraw(); if (at.label && rowAt(at.row)?.sum) openTensor(); });
  scroll.addEventListener("dblclick", openTensor);
  scroll.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = scroll.getBoundingClientRect();
    zoomSoon(Math.exp(-event.deltaY / 300), Math.max(0, event.clientX - box.left - labelWidth), Math.max(0, event.clientY - box.top - headHeight()));
  }, { passive: false });
  new ResizeObserver(layout).observe(box);
  open();
}

export function recolor() {
  theme = null;
  if (!scroll) return;
  forgetParts();
  if (head) explain();
  redraw();
}

// What a validation finds changes the map.
let seen = null;
follow("accepted", (said) => {
  const before = seen;
  seen = said.generation;
  if (scroll && before != null && before !== seen) open(true);
});
