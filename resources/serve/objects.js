// What a checkpoint holds besides tensors. Values are inert: nothing of a pickle is ever run.
import { button, countText, element, fill, filterBar, get, pager, table } from "./common.js";

const kRows = 100, kItems = 200;
let page = null, pattern = "*", asked = 0;  // the last one counts

function fail(error) { page.querySelector(".list").replaceChildren(element("p", { class: "error" }, error.message)); }

// A value of ls/1: what JSON has no word for is {tuple}, {dict_items} or {repr}.
function plain(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "object" && "repr" in value && Object.keys(value).length === 1) return value.repr;
  return typeof value === "string" ? JSON.stringify(value) : typeof value === "number" ? String(value) : null;
}
function parts(value) {
  if (Array.isArray(value)) return ["list", value.map((item, i) => [String(i), item])];
  const keys = Object.keys(value);
  if (keys.length === 1 && Array.isArray(value.tuple)) return ["tuple", value.tuple.map((item, i) => [String(i), item])];
  if (keys.length === 1 && Array.isArray(value.dict_items)) return ["dict", value.dict_items.map(([key, item]) => [plain(key) ?? JSON.stringify(key), item])];
  return ["dict", keys.map((key) => [key, value[key]])];
}
// Opened by hand, and filled then: a value may have many parts.
function tree(name, value, open) {
  const text = plain(value);
  if (text !== null) return element("div", { class: "leaf mono" }, name && element("span", { class: "quiet" }, name + ": "), text);
  const [kind, items] = parts(value);
  const made = element("details", { class: "tree mono", ontoggle: () => { if (made.open && made.childElementCount === 1) grow(0); } },
    element("summary", {}, (name ? name + ": " : "") + kind + " of " + countText(items.length)));
  function grow(from) {
    for (const [key, item] of items.slice(from, from + kItems)) made.append(tree(key, item, false));
    const left = items.length - from - kItems;
    if (left <= 0) return;
    const more = button(countText(left) + " more", () => { more.remove(); grow(from + kItems); }, { class: "link" });
    made.append(more);
  }
  if (open) made.open = true;
  return made;
}

async function read(id, cell, type) {
  cell.replaceChildren(element("span", { class: "quiet" }, "Reading …"));
  try {
    const said = await get("object", { id });
    if (said.kind) type.textContent = said.kind;
    cell.replaceChildren(said.error ? element("span", { class: "error" }, said.error.message) : tree("", said.value, true));
  } catch (error) { cell.replaceChildren(element("span", { class: "error" }, error.message)); }
}

async function list(first) {
  const mine = ++asked, said = await get("objects", { pattern, first, count: kRows });
  if (mine !== asked) return;
  const unread = [];
  const row = (object) => {
    const type = element("span", { class: object.kind ? null : "quiet" }, object.kind ?? "not read");
    const now = () => read(object.id, value, type);
    const value = element("div", {}, button(object.text ?? "Read the value", now, { class: "link mono value", title: "Show the whole value" }));
    if (object.text === null) unread.push(now);
    return [element("span", { class: "mono" }, object.name), type, value, object.rank ?? "", element("span", { class: "mono" }, object.file ?? "")];
  };
  const rows = said.objects.map(row);
  const all = unread.length > 1 && button("Read these " + countText(unread.length) + " values", async () => {
    all.remove();
    for (const one of unread) { if (mine !== asked) return; await one(); }
  });
  fill(page.querySelector(".list"), all && element("p", {}, all),
    said.objects.length
      ? table([{ text: "name", lead: true }, { text: "type", keep: true }, "value", { text: "rank", number: true }, "file"],
        rows)
      : element("p", { class: "empty" }, pattern === "*" ? "The checkpoint holds nothing but tensors." : "No object has such a name."),
    pager(first, kRows, said.total, "objects", (to) => list(to).catch(fail)));
}

export function showObjects(into) {
  page = into;
  if (page.childElementCount) return;
  page.append(filterBar("object-filter", "Objects", pattern, "optimizer.*", (wanted) => { pattern = wanted; list(0).catch(fail); }), element("div", { class: "list" }));
  list(0).catch(fail);
}
