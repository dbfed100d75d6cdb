// What differs from another checkpoint, whatever its format and sharding.
import { allowed, button, counted, countText, drawnBy, element, fill, get, getBytes, shown, step, table, tell } from "./common.js";

const kMost = 200;

function section(title, columns, rows) {
  if (!rows.length) return null;
  return element("section", {}, element("h3", {}, title + " (" + countText(rows.length) + ")"), table(columns.map((name, i) => (i ? name : { text: name, lead: true })), rows.slice(0, kMost)),
    rows.length > kMost ? element("p", { class: "quiet" }, countText(rows.length - kMost) + " more; shardscope diff --json lists all.") : null);
}

const figure = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))) : value);

function showResult(said, other, into) {
  const name = (text) => button(text, () => tell("tensor", text), { class: "link mono" });
  const same = said.equal ? element("p", {}, element("b", { class: "safe" }, "✓ Equal: "), "same names, shapes" + (said.values_compared ? ", dtypes and values." : " and dtypes; values were not compared."))
    : element("p", {}, element("b", { class: "care" }, "≠ They differ."), said.values_compared ? "" : " Values were not compared.");
  const pairs = (list) => list.map((entry) => [name(entry.name), entry.a, entry.b]);
  const norm = said.summary && said.summary.different ? element("p", {}, "The L2 norm of the difference is " + figure(said.summary.l2) + ", " + figure(said.summary.rel_l2) + " of that of the values here.") : null;
  const left = said.left_out_a.length + said.left_out_b.length;
  fill(into, same, norm,
    left ? element("p", { class: "quiet" }, "Weights only: left out are " + counted(said.left_out_a.length, "tensor", "tensors") + " here and " + countText(said.left_out_b.length) + " in " + other + ".") : null,
    section("Only here", ["tensor"], said.only_a.map((text) => [name(text)])),
    section("Only in " + other, ["tensor"], said.only_b.map((text) => [element("span", { class: "mono" }, text)])),
    section("Other shape", ["tensor", "here", "there"], pairs(said.shape)),
    section("Other dtype", ["tensor", "here", "there"], pairs(said.dtype)),
    section("Other values", ["tensor", ...["relative L2", "L2", "elements", "most, absolute", "most, relative", "ulp", "cosine"].map((text) => ({ text, number: true }))],
      said.values.map((entry) => [name(entry.name), figure(entry.rel_l2), figure(entry.l2), countText(entry.different), figure(entry.max_abs), figure(entry.max_rel), countText(entry.max_ulp), String(entry.cosine)])),
    section("Other placement (not a difference)", ["tensor", "here", "there"], pairs(said.placement)));
}

// What moves between ranks: modules by ranks, as the server draws it. Nothing where every byte stays.
async function addMoves(parameters, into) {
  const line = element("p", { class: "quiet small", role: "status" }), place = element("div", { class: "flow-box" });
  const block = element("section", { id: "moves" }, element("h3", {}, "What moves between ranks"), line, place);
  into.append(block);
  const picture = drawnBy(await getBytes("diff/svg", { ...parameters, width: Math.max(320, Math.floor(place.clientWidth)), height: 420 }));
  if (!picture.querySelector(".cell .arrives, .cell .leaves")) return block.remove();
  const headline = line.textContent = picture.querySelector("title").textContent;
  picture.addEventListener("pointermove", (at) => { line.textContent = at.target.closest(".cell")?.querySelector("title").textContent.split("\n").join(" · ") || headline; });
  place.append(picture);
}

export function showCompare(page) {
  if (page.childElementCount) return;
  const field = element("input", { type: "text", id: "compare-with", spellcheck: "false", autocomplete: "off", placeholder: "/checkpoints/step-2000", list: "compare-steps" });
  const values = element("input", { type: "checkbox", disabled: !allowed() });
  const weights = element("input", { type: "checkbox" });
  const start = element("button", { class: "main" }, "Compare");
  const result = element("div", {}, element("p", { class: "empty" }, "Name a checkpoint on the server's machine: names, shapes, dtypes and placement are compared from metadata alone."));
  const steps = shown.run ? element("datalist", { id: "compare-steps" }, ...shown.run.steps.filter((other) => other.name !== step).map((other) => element("option", { value: other.path }))) : null;
  const form = element("form", { class: "bar", onsubmit: async (event) => {
    event.preventDefault();
    const other = field.value.trim();
    if (!other) return field.focus();
    start.disabled = true;
    result.replaceChildren(element("p", { class: "empty" }, values.checked ? "Comparing every value …" : "Comparing …"));
    const asked = { with: other, ...(weights.checked ? { weights_only: 1 } : {}) };
    try {
      showResult(await get("diff", { ...asked, ...(values.checked ? { values: 1 } : {}) }), other, result);
      await addMoves(asked, result);
    }
    catch (error) { result.replaceChildren(element("p", { class: "error" }, error.message)); }
    start.disabled = false;
  } }, element("label", { for: "compare-with" }, "Compare with"), field, steps ?? "",
  element("label", {}, weights, "Weights only"), element("label", {}, values, allowed() ? "Values too" : "Values too (needs --allow-jobs)"), start);
  page.append(form, result);
  // Asked for by the page of the run, by the name of a step of it.
  const asked = new URLSearchParams(location.search).get("with");
  const other = shown.run && shown.run.steps.find((one) => one.name === asked);
  if (!other) return;
  field.value = other.path;
  form.requestSubmit();
}
