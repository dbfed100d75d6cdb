// Pictures of cells with the slices that their ranks hold. They are painted pixel by pixel into memory that is kept: paths
// would be work for the garbage collector, which a frame of a zoom waits for.

export const kBlock = 64;    // cells each way that are asked for at once: some milliseconds to take in
const kLeast = 6;            // pixels that a slice measures, so that its place can be read; as the window's map has it
const kCounted = 28;         // pixels from which a cell says of how many chunks it is made
const kGhost = -2;           // where a replica is that is not stored
const kMissing = 5;          // the state that has a bar at its left

// The cells of a block in flat arrays: a million small objects would be the garbage collector's work, too.
export function packed(rows, left) {
  let cells = 0, edges = 0;
  for (const row of rows) for (const cell of row.cells) { ++cells; edges += cell[5].length; }
  const block = { at: new Int32Array(kBlock * kBlock).fill(-1), state: new Uint8Array(cells), copy: new Int32Array(cells), chunks: new Int32Array(cells), first: new Int32Array(cells + 1), edges: new Float32Array(edges) };
  let cell = 0, edge = 0;
  rows.forEach((row, r) => {
    for (const [column, state, copyOf, chunks, , slices] of row.cells) {
      block.at[r * kBlock + column - left] = cell;
      block.state[cell] = state;
      block.copy[cell] = copyOf;
      block.chunks[cell] = chunks;
      block.first[cell] = edge;
      block.edges.set(slices, edge);
      edge += slices.length;
      ++cell;
    }
    for (const [column] of row.ghosts) block.at[r * kBlock + column - left] = kGhost;
  });
  block.first[cell] = edge;
  return block;
}

// What is being painted: a block's cells, in pixels of the screen, and of the present one the place.
let image = null, pixels, pen, block, theme, scale, line, x, y, width, height;

function fill(color, left, top, wide, high) {
  for (let from = top * image.width + left, end = from + high * image.width; from < end; from += image.width) pixels.fill(color, from, from + wide);
}

function outline(color) {
  fill(color, x, y, width, line);
  fill(color, x, y + height - line, width, line);
  fill(color, x, y, line, height);
  fill(color, x + width - line, y, line, height);
}

function dashes(color) {
  for (let at = 0; at + 3 * line <= width; at += 6 * line) { fill(color, x + at, y, 3 * line, line); fill(color, x + at, y + height - line, 3 * line, line); }
  for (let at = 0; at + 3 * line <= height; at += 6 * line) { fill(color, x, y + at, line, 3 * line); fill(color, x + width - line, y + at, line, 3 * line); }
}

function dots(color) {
  for (let at = 0; at + line <= width; at += 3 * line) { fill(color, x + at, y, line, line); fill(color, x + at, y + height - line, line, line); }
  for (let at = 0; at + line <= height; at += 3 * line) { fill(color, x, y + at, line, line); fill(color, x + width - line, y + at, line, line); }
}

// Where the share [from, to) of `length` pixels is painted, and its `size`. One thinner than `least` grows around its middle
// and stays inside.
let size;
function painted(origin, length, from, to, least) {
  const begin = Math.round(origin + length * from);
  size = Math.round(origin + length * to) - begin;
  least = Math.min(least, length);
  if (size >= least) return begin;
  const middle = Math.round(begin + (size - least) / 2);
  size = least;
  return Math.max(origin, Math.min(origin + length - least, middle));
}

// Filled, or as outlines over the hatch of a cell that is damaged.
function paintSlices(cell, damaged) {
  const { first, edges } = block, count = (first[cell + 1] - first[cell]) / 4;
  for (let i = first[cell]; i < first[cell + 1]; i += 4) {
    const nothing = edges[i] === edges[i + 2] || edges[i + 1] === edges[i + 3];
    // Several slices of one cell must not grow into each other.
    const least = nothing ? line : Math.max(line, Math.round(kLeast * scale / count));
    const left = painted(x + line, width - 2 * line, edges[i], edges[i + 2], least), wide = size;
    const top = painted(y + line, height - 2 * line, edges[i + 1], edges[i + 3], least), high = size;
    if (!damaged) { fill(nothing ? theme.packed.quiet : theme.packed.held, left, top, wide, high); continue; }
    if (edges[i] <= 0 && edges[i + 1] <= 0 && edges[i + 2] >= 1 && edges[i + 3] >= 1) continue;
    // To stand out from the hatch.
    if (Math.min(wide, high) >= kLeast * scale) { pen.strokeStyle = theme.css.surface; pen.lineWidth = 3 * line; pen.strokeRect(left + 1.5 * line, top + 1.5 * line, wide - 3 * line, high - 3 * line); }
    pen.strokeStyle = theme.css.text;
    pen.lineWidth = line;
    pen.strokeRect(left + line / 2, top + line / 2, wide - line, high - line);
  }
}

function paintDamaged(cell, paintState) {
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  paintState(pen, block.state[cell], x / scale, y / scale, width / scale, height / scale);
  pen.setTransform(1, 0, 0, 1, 0, 0);
  paintSlices(cell, true);
  if (block.state[cell] === kMissing) { pen.fillStyle = theme.css.states[kMissing]; pen.fillRect(x, y, Math.round(3 * scale), height); }
  pen.lineWidth = line;
  pen.strokeStyle = block.copy[cell] >= 0 ? theme.css.text : theme.css.outline;
  if (block.copy[cell] >= 0) pen.setLineDash([line, 2 * line]);
  pen.strokeRect(x + line / 2, y + line / 2, width - line, height - line);
  pen.setLineDash([]);
}

function paintCount(count) {
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const room = pen.measureText(count).width + 6, right = (x + width) / scale, bottom = (y + height) / scale;
  pen.fillStyle = theme.css.surface;
  pen.fillRect(right - room - 1, bottom - 15, room, 14);
  pen.fillStyle = theme.css.text;
  pen.fillText(count, right - room + 2, bottom - 7.5);
}

// Paints `rows` by `columns` cells from (`top`, `left`) of the block on, each `cellWidth` by `cellHeight`, into a picture,
// which gets their size; `paintState` hatches what is damaged. Whether some of them are replicas, stored or not.
export function paintCells(picture, part, { cellWidth, cellHeight, ratio, colors, paintState }) {
  const wide = Math.ceil(part.columns * cellWidth * ratio), high = Math.ceil(part.rows * cellHeight * ratio);
  if (picture.width !== wide || picture.height !== high) { picture.width = wide; picture.height = high; }
  if (!image || image.width < wide || image.height < high) {
    image = new ImageData(Math.max(wide, image ? image.width : 0), Math.max(high, image ? image.height : 0));
    pixels = new Uint32Array(image.data.buffer);
  }
  block = part.block; theme = colors; scale = ratio; line = Math.max(1, Math.round(ratio));
  pen = picture.getContext("2d");
  let copies = false, ghosts = false, more = false;
  // First the pixels of whole cells, then what is drawn over them.
  for (const over of [false, true]) {
    if (over) pen.putImageData(image, 0, 0, 0, 0, wide, high);
    else fill(theme.packed.surface, 0, 0, wide, high);
    if (over && !more) break;
    for (let r = 0; r < part.rows; ++r) {
      y = Math.floor(r * cellHeight * scale) + line;
      height = Math.floor((r + 1) * cellHeight * scale) - y - line;
      for (let c = 0; c < part.columns; ++c) {
        const cell = block.at[(part.top + r) * kBlock + part.left + c];
        if (cell === -1) continue;
        x = Math.floor(c * cellWidth * scale) + line;
        width = Math.floor((c + 1) * cellWidth * scale) - x - line;
        if (cell === kGhost) { ghosts = true; if (!over) dashes(theme.packed.quiet); continue; }
        const damaged = block.state[cell] > 1, counted = block.chunks[cell] > 1 && Math.min(width, height) >= kCounted * scale, copy = block.copy[cell] >= 0;
        if (over) {
          if (damaged) paintDamaged(cell, paintState);
          if (counted) paintCount(String(block.chunks[cell]));
          continue;
        }
        more ||= damaged || counted;
        copies ||= copy;
        if (damaged) continue;
        fill(theme.packed.empty, x, y, width, height);
        paintSlices(cell, false);
        if (copy) dots(theme.packed.text);
        else outline(theme.packed.edge);
      }
    }
  }
  return { copies, ghosts };
}
