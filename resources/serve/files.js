// The files of a checkpoint: which are there and whole, and which tensors each holds.
import { back, boxText, button, bytesText, counted, countText, element, fill, filterBar, get, pager, table, tell } from "./common.js";

const kRows = 100, kChunks = 100;
const wish = { pattern: "*", wrong: false, first: 0 };
let page = null, asked = 0;  // the last one counts

const isBad = (file) => !["ok", "unread", "nan/inf"].includes(file.health);
const stateOf = (file) => element("span", { class: isBad(file) ? "error" : file.referenced || file.metadata ? null : "warning" }, (isBad(file) ? "✕ " : file.referenced || file.metadata ? "" : "▲ ") + file.words);
function fail(error) { page.querySelector(".list").replaceChildren(element("p", { class: "error" }, error.message)); }

async function list(first) {
  wish.first = first;
  const mine = ++asked, said = await get("files", { pattern: wish.pattern, first, count: kRows, wrong: wish.wrong ? 1 : 0 });
  if (mine !== asked) return;
  fill(page.querySelector(".list"),
    element("p", { class: "quiet" }, counted(said.all, "file", "files") + " of " + bytesText(said.size) + "; tensors and objects use " + bytesText(said.used) + ". ",
      said.wrong ? element("b", { class: "error" }, "✕ " + counted(said.wrong, "file is", "files are") + " missing, truncated, damaged or not referenced.") : "All files are there."),
    said.files.length
      ? table([{ text: "file", lead: true }, { text: "rank", number: true }, { text: "size", number: true }, { text: "used", number: true }, { text: "tensors", number: true }, { text: "chunks", number: true }, { text: "state", lead: true }],
        said.files.map((file) => [button(file.path, () => show(file.path).catch(fail), { class: "link mono" }), file.rank ?? "", file.state === "present" ? bytesText(file.size) : "–", bytesText(file.used),
          countText(file.tensors), countText(file.chunks), stateOf(file)]))
      : element("p", { class: "empty" }, wish.wrong && !said.wrong ? "No file is damaged." : "No file has such a name."),
    pager(first, kRows, said.total, "files", (to) => list(to).catch(fail)));
}

async function show(name, at = 0) {
  const mine = ++asked, said = await get("file", { name, first: at, count: kChunks });
  if (mine !== asked) return;
  const file = said.file;
  const fields = [["state", stateOf(file)], ["size", file.state === "present" ? bytesText(file.size) : "–"], ["used", bytesText(file.used)],
    ["rank", file.rank ?? "–"], ["holds", counted(file.tensors, "tensor", "tensors") + ", " + counted(file.chunks, "chunk", "chunks") + ", " + counted(said.object_count, "object", "objects")]];
  fill(page.querySelector(".list"),
    back("← All files", () => list(wish.first).catch(fail)),
    element("h2", { class: "mono" }, file.path),
    element("dl", {}, ...fields.flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)])),
    element("h2", {}, "Chunks, by their place in the file"),
    said.chunks.length
      ? table([{ text: "from byte", number: true }, { text: "bytes", number: true }, { text: "tensor", lead: true }, { text: "dtype", keep: true }, { text: "box", keep: true }, { text: "rank", number: true }, { text: "state", lead: true }],
        said.chunks.map((chunk) => [countText(chunk.offset), countText(chunk.length), button(chunk.tensor, () => tell("tensor", chunk.tensor), { class: "link mono" }), chunk.dtype,
          element("span", { class: "mono" }, boxText(chunk)), chunk.rank ?? "", element("span", { class: isBad(chunk) ? "error" : null }, chunk.health)]))
      : element("p", { class: "empty" }, "No tensor is stored in it."),
    pager(said.first_chunk, kChunks, said.chunk_count, "chunks", (to) => show(name, to).catch(fail)),
    said.object_count > 0 && element("h2", {}, "Objects"),
    said.object_count > 0 && element("ul", {}, ...said.objects.map((object) => element("li", { class: "mono" }, object)),
      said.object_count > said.objects.length && element("li", { class: "quiet" }, countText(said.object_count - said.objects.length) + " more")));
}

export function showFile(name) { tell("open", "files"); show(name).catch(fail); }

export function showFiles(into) {
  page = into;
  if (page.childElementCount) return;
  page.append(filterBar("file-filter", "Files", wish.pattern, "*_0.distcp", (pattern) => { wish.pattern = pattern; list(0).catch(fail); },
    element("label", {}, element("input", { type: "checkbox", id: "files-wrong", onchange: (event) => { wish.wrong = event.target.checked; list(0).catch(fail); } }), "Only what is wrong")),
  element("div", { class: "list" }));
  list(0).catch(fail);
}
