// The tensors as a list, and one of them with its chunks and values.
import { back, boxText, button, bytesText, counted, countText, element, fill, filterBar, get, numberText, pager, shapeText, shown, table, tell } from "./common.js";
import { sliceView } from "./values.js";

const kRows = 100, kChunks = 100;
let page = null, pattern = "*", first = 0;
let wish = 0;  // the last one counts

function fail(error) { page.querySelector(".list").replaceChildren(element("p", { class: "error" }, error.message)); }

async function list(at) {
  first = at;
  const mine = ++wish, said = await get("tensors", { pattern, first, count: kRows });
  if (mine !== wish) return;
  const rows = said.tensors.map((tensor) => [button(tensor.name, () => showTensor(tensor.name), { class: "link mono" }), tensor.dtype, shapeText(tensor.shape), bytesText(tensor.bytes), tensor.role]);
  fill(page.querySelector(".list"),
    rows.length ? table([{ text: "name", lead: true }, "dtype", { text: "shape", keep: true }, { text: "size", number: true }, "role"], rows) : element("p", { class: "empty" }, "No tensor has such a name."),
    pager(first, kRows, said.total, "tensors", (to) => list(to).catch(fail)));
}

export function showTensors(into, filter) {
  page = into;
  if (filter) pattern = filter;
  page.replaceChildren(
    filterBar("tensor-filter", "Tensors", pattern, "*.weight", (wanted) => { pattern = wanted; list(0).catch(fail); }),
    element("div", { class: "list" }));
  list(filter ? 0 : first).catch(fail);
}

function histogram(values) {
  const space = "http://www.w3.org/2000/svg";
  const drawn = document.createElementNS(space, "svg");
  const counts = values.histogram.counts, most = Math.max(1, ...counts);
  drawn.setAttribute("class", "histogram");
  drawn.setAttribute("viewBox", "0 0 " + counts.length + " 100");
  drawn.setAttribute("preserveAspectRatio", "none");
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", "Histogram of the values in " + counts.length + " bins");
  counts.forEach((count, i) => {
    const bar = document.createElementNS(space, "rect");
    // One that holds anything is seen.
    const height = count === 0 ? 0 : Math.max(1.5, (100 * count) / most);
    for (const [key, value] of Object.entries({ x: i + 0.06, width: 0.88, y: 100 - height, height })) bar.setAttribute(key, value);
    drawn.append(bar);
  });
  return drawn;
}

function showValues(values, into) {
  into.replaceChildren(element("dl", {}, ...[["least", values.min], ["greatest", values.max], ["mean", values.mean], ["standard deviation", values.std],
    ["NaN", values.nan], ["infinities", values.inf], ["zeros", values.zero], ["elements", values.elements]]
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", { class: (name === "NaN" || name === "infinities") && value > 0 ? "error" : null }, numberText(value))])));
  if (values.min != null && values.histogram.counts.length)
    into.append(histogram(values), element("p", { class: "quiet small" }, numberText(values.histogram.low) + " … " + numberText(values.histogram.high)));
}

export async function showTensor(name, at = 0) {
  tell("open", "tensors");
  const part = page.querySelector(".list"), mine = ++wish;
  let said;
  try { said = await get("tensor", { name, first: at, count: kChunks, state: 1 }); } catch (error) { return fail(error); }
  if (mine !== wish) return;
  const tensor = said.tensor;
  const cut = said.parts.map((parts, d) => (parts > 1 ? parts + " along dim " + d : null)).filter(Boolean).join(", ");
  const fields = [["dtype", tensor.dtype], ["shape", shapeText(tensor.shape)], ["size", bytesText(tensor.bytes)], ["role", tensor.role],
    ["placement", (cut ? "sharded in " + cut : "whole") + (said.mesh ? " over mesh " + said.mesh.axes.map((axis) => axis.name + "=" + axis.size).join(",") : "")]];
  if (said.state !== "ok") fields.push(["state", said.state]);
  if (tensor.alias_of) fields.push(["same storage as", tensor.alias_of]);
  if (said.replicas) fields.push(["replicas", countText(said.replicas)]);
  const values = element("div");
  const elsewhere = shown.info.data_elsewhere;
  const read = button("Read values (" + bytesText(tensor.bytes) + ")", async () => {
    read.disabled = true;
    values.replaceChildren(element("p", { class: "quiet" }, "Reading …"));
    try { showValues((await get("tensor", { name, count: 0, values: 1 })).values, values); } catch (error) { values.replaceChildren(element("p", { class: "error" }, error.message)); }
    read.disabled = false;
  }, { disabled: !!elsewhere });
  const place = (chunk) => {
    const mesh = said.mesh;
    if (!mesh || chunk.rank == null) return "";
    let rest = chunk.rank;
    const at = [];
    for (const axis of [...mesh.axes].reverse()) { at.unshift(axis.name + (rest % axis.size)); rest = Math.floor(rest / axis.size); }
    return at.join(" ");
  };
  fill(part,
    back("← All tensors", () => showTensors(page)),
    element("h2", { class: "mono" }, tensor.name),
    element("dl", {}, ...fields.flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)])),
    ...said.gaps.slice(0, 20).map((gap) => element("p", { class: "error" }, "✕ no rank holds " + boxText(gap))),
    said.gaps.length > 20 && element("p", { class: "error" }, counted(said.gaps.length - 20, "more place", "more places") + " that no rank holds"),
    element("h2", {}, "Values"), elsewhere ? element("p", { class: "quiet" }, "Read from " + elsewhere + ": the data is not here.") : element("div", { class: "bar" }, read, element("span", { class: "quiet small" }, "statistics and histogram of all values")), values,
    !elsewhere && sliceView(tensor),
    element("h2", {}, "Chunks"),
    tensor.chunks.length
      ? table([{ text: "rank", number: true }, { text: "place", keep: true }, { text: "box", keep: true }, "file", { text: "from byte", number: true }, { text: "bytes", number: true }],
        tensor.chunks.map((chunk) => [chunk.rank ?? "", place(chunk), element("span", { class: "mono" }, boxText(chunk)), chunk.file ? button(chunk.file, () => tell("file", chunk.file), { class: "link mono" }) : "", countText(chunk.offset), countText(chunk.length)]))
      : element("p", { class: "empty" }, "Nothing of it is stored."),
    pager(said.first_chunk, kChunks, said.chunk_count, "chunks", (to) => showTensor(name, to)));
}
