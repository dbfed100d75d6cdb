// The guided conversion. As in the window, a plan comes first, and only a plan without obstacles that was made of exactly
// what the form says can be started.
import { advice, button, bytesText, counted, countText, drawnBy, element, get, getBytes, post, shown, table, tell, timeText } from "./common.js";

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const pairs = (text, first, second) => lines(text).map((line) => { const at = line.lastIndexOf("="); return { [first]: line.slice(0, Math.max(0, at)), [second]: line.slice(at + 1) }; });

let fields;

// What the form says, as a recipe (docs/cli.md, "Recipes").
function request() {
  const value = (name) => fields[name].value.trim();
  const job = { destination: value("destination") };
  if (value("format")) job.format = value("format");
  if (value("map")) job.map = value("map");
  for (const name of ["assets", "adapter", "mesh", "like", "on", "max_file_size"]) if (value(name)) job[name] = value(name);
  for (const name of ["set", "shard", "stage"]) if (lines(fields[name].value).length) job[name] = lines(fields[name].value);
  for (const name of ["weights_only", "skip_damaged", "strict", "overwrite", "resume", "unguarded"]) if (fields[name].checked) job[name] = true;
  if (value("verify") !== "digest") job.verify = value("verify");
  if (value("master_weights") !== "auto") job.master_weights = value("master_weights");
  if (value("dequantize")) job.dequantize = value("dequantize");
  if (value("fill_gaps") !== "refuse") job.fill_gaps = value("fill_gaps");
  const recipe = { schema: "shardscope.recipe/1", job };
  if (lines(fields.select.value).length) recipe.select = lines(fields.select.value);
  if (lines(fields.drop.value).length) recipe.drop = lines(fields.drop.value);
  if (lines(fields.rename.value).length) recipe.rename = pairs(fields.rename.value, "from", "to");
  if (lines(fields.cast.value).length) recipe.cast = pairs(fields.cast.value, "tensors", "dtype");
  return recipe;
}

function group(title, list, second, open) {
  if (!list || !list.length) return null;
  const kMost = 200;
  return element("details", { open }, element("summary", {}, title + " (" + countText(list.length) + ")"),
    table(["what", second === "from" ? "made of" : second === "to" ? "becomes" : "why"], list.slice(0, kMost).map((entry) => [element("span", { class: "mono" }, entry.name), second === "why" ? advice(entry.why) : entry[second]])),
    list.length > kMost ? element("p", { class: "quiet" }, countText(list.length - kMost) + " more; shardscope plan lists all.") : null);
}

// Who reads what from whom, as the server draws it; what is pointed at is said below.
function whoReads(plan) {
  if (!plan.flow || plan.flow.cells.length < 2) return null;
  const line = element("p", { class: "quiet", role: "status" }, plan.flow.headline), place = element("div", { class: "flow-box" });
  const draw = async (event) => {
    if (!event.target.open || place.childElementCount) return;
    try {
      const picture = drawnBy(await getBytes("plan/flow", { plan: plan.id, width: Math.max(320, Math.floor(place.clientWidth)), height: 420 }));
      picture.addEventListener("pointermove", (at) => { line.textContent = at.target.closest(".cell")?.querySelector("title").textContent.split("\n").join(" · ") || plan.flow.headline; });
      place.replaceChildren(picture);
    } catch (error) { line.textContent = error.message; }
  };
  return element("details", { open: true, ontoggle: draw }, element("summary", {}, "Who reads what"), line, place);
}

// Plans what `request()` says and offers to start exactly that. `result` belongs below the form, which says `edited` when it changes. `mend` gives
// what helps against an error, by its message.
export function planner(prefix, request, parameters, mend) {
  const result = element("div", { "aria-live": "polite" });
  let planned = null;  // { key, id }

  function show(plan) {
    const unloadable = plan.transformers ? plan.transformers.why : [];
    const tone = plan.obstacles.length ? "unsafe" : plan.left_out.length || plan.unknown.length || unloadable.length ? "care" : "safe";
    const start = element("button", { type: "button", class: "main", id: prefix + "-start", disabled: plan.obstacles.length > 0, onclick: async () => {
      start.disabled = true;
      try {
        await post("convert", { plan: planned.id });
        planned = null;
        result.replaceChildren(element("p", { class: "safe" }, "✓ The job was started; the page Jobs shows it."));
        tell("open", "jobs");
      } catch (error) { start.after(element("span", { class: "error" }, " " + error.message)); }
    } }, "Start the job");
    const average = plan.average;
    result.replaceChildren(element("section", { class: "plan tone-" + tone, id: prefix + "-plan" }, ...[
      element("h3", {}, plan.obstacles.length ? "✕ This cannot be started" : unloadable.length ? "▲ This can run, but transformers will not load the result" : "✓ This can run"),
      unloadable.length ? element("ul", { class: "care" }, ...unloadable.map((why) => element("li", {}, why))) : null,
      plan.obstacles.length ? element("ul", { class: "error" }, ...plan.obstacles.slice(0, 20).map((why) => element("li", {}, advice(why)))) : null,
      element("dl", {}, ...[
        ["reads", bytesText(plan.bytes_read) + " from " + plan.source.path + " (" + plan.source.format + ")" + (average ? " and " + counted(average.inputs.length - 1, "other step", "other steps") : "")],
        ["writes", bytesText(plan.bytes_written) + " in " + counted(plan.files.length, "file", "files") + " to " + plan.target.path + " (" + plan.target.format + ")"],
        ["holds", counted(plan.tensors, "tensor", "tensors") + ", " + counted(plan.chunks, "chunk", "chunks") + ", " + counted(plan.objects, "object", "objects")],
        ...(plan.replicas_not_compared ? [["replicas", counted(plan.replicas_not_compared, "chunk is", "chunks are") + " not compared (a validation of the values compares them)"]] : []),
        ["takes", (plan.estimate_s < 1 ? "less than a second" : "about " + timeText(plan.estimate_s)) + " on a plain NVMe disk, below " + bytesText(plan.peak_memory) + " of memory"]]
        .flatMap(([name, words]) => [element("dt", {}, name), element("dd", {}, words)])),
      whoReads(plan),
      average && element("details", { open: true }, element("summary", {}, "Averaged in " + average.accumulate),
        table(["checkpoint", { text: "weight", number: true }], average.inputs.map((input) => [element("span", { class: "mono" }, input.path), String(Number(input.weight.toPrecision(6)))]))),
      average && group("Not averaged", average.not_averaged, "why", false),
      group("Left out", plan.left_out, "why", true), group("Weights that the recipe does not know", plan.unknown, "why", true), group("Changed", plan.changed, "why", false), group("Put together by the recipe", plan.made, "from", false),
      plan.masters && group("Values from fp32 master weights", plan.masters.used, "from", false),
      plan.masters && plan.masters.unused ? element("p", { class: "quiet" }, counted(plan.masters.unused, "weight is", "weights are") + " converted as stored, not from fp32 masters.") : null,
      plan.recipe ? element("p", { class: "quiet" }, `Recipe: ${plan.recipe}.`) : null,
      plan.checksums ? element("p", { class: "quiet" }, plan.checksums) : null,
      plan.warning ? element("p", {}, `▲ ${plan.warning}`) : null,
      group("Notes", plan.notes, "why", false), group("Renamed", plan.renamed, "to", false), group("Excluded", plan.excluded, "why", false),
      element("details", {}, element("summary", {}, "Files (" + countText(plan.files.length) + ")"),
        table(["file", { text: "size", number: true }], plan.files.slice(0, 500).map((file) => [element("span", { class: "mono" }, file.path), bytesText(file.size)]))),
      element("p", {}, start)].filter(Boolean)));
    result.scrollIntoView({ block: "nearest" });
  }

  // Another request than the plan's cannot be started.
  function edited() {
    if (!planned || planned.key === JSON.stringify(request())) return;
    planned = null;
    const plan = document.getElementById(prefix + "-plan");
    if (!plan) return;
    plan.classList.add("stale");
    plan.querySelector("h3").textContent = "The form was changed: plan again";
    document.getElementById(prefix + "-start").disabled = true;
  }

  async function plan(event) {
    event.preventDefault();
    const wanted = request(), key = JSON.stringify(wanted);
    planned = null;
    result.replaceChildren(element("p", { class: "empty" }, "The plan is being worked out …"));
    try {
      const said = await post("plan", wanted, parameters && parameters());
      // The form may say something else by now.
      if (key !== JSON.stringify(request())) return result.replaceChildren(element("p", { class: "empty" }, "The form was changed: plan again."));
      planned = { key, id: said.id };
      show(said);
    } catch (error) {
      result.replaceChildren(element("section", { class: "plan tone-unsafe", id: prefix + "-failed" }, element("h3", {}, "✕ There is no plan"), element("p", { class: "error" }, error.message), ...(mend ? mend(error.message) : [])));
    }
  }
  return { result, edited, plan };
}

// What a field offers comes when the form is there already.
const offer = (name, list) => list.then((more) => fields[name].append(...more.map(([value, words]) => element("option", { value }, words))),
  (error) => fields[name].after(element("p", { class: "error" }, error.message)));

const kNaming = ["map", "set", "rename"], kPlacing = ["mesh", "like", "shard", "stage"];

// A damaged source: what is left of it can be converted.
function mendDamage(message, submit) {
  if (!message.includes("Skip what is damaged")) return [];
  const way = (words, meaning, choose) => [element("p", {}, button(words + ", and plan again", () => { choose(); submit(); })), element("p", { class: "quiet" }, meaning)];
  return [...way("Leave out what is damaged", "The rest is converted; the plan lists what is left out. Who loads the result does not find it.", () => { fields.skip_damaged.checked = true; }),
    ...(message.includes("“Gaps”") ? way("Fill what is lost with NaN", "Every computation with these elements shows it. What is filled is recorded beside the result.", () => { fields.fill_gaps.value = "nan"; }) : [])];
}

// What a person wants, in the words of the job: each choice fills the form. `submit` plans what it says then.
function intents(submit, edited) {
  const card = (id, title, note, onclick) => element("button", { type: "button", class: "card", id: "intent-" + id, onclick }, element("b", {}, title), note);
  const clear = (names) => { for (const name of names) fields[name].value = ""; };
  const filled = (values) => { for (const [name, value] of Object.entries(values)) fields[name][typeof value === "boolean" ? "checked" : "value"] = value; edited(); };
  const placed = (end) => (fields.destination.value = parentOf() + end);
  const names = element("span", {}, "Matching the names with recipes …"), axes = (shown.info.mesh && shown.info.mesh.axes) || [];
  const ranks = axes.reduce((all, axis) => all * axis.size, 1);
  const mesh = element("input", { type: "text", id: "intent-mesh", value: axes.map((axis) => axis.name + "=" + axis.size).join(","), spellcheck: "false", "aria-label": "Mesh of the result" });
  const fitting = get("recipes/fitting");
  fitting.then((said) => {
    const choice = said.choices.hf;
    names.replaceChildren(...[(choice.known ? "✓ " : "▲ ") + choice.why[0].toUpperCase() + choice.why.slice(1) + ".",
      said.model ? "✓ Configuration and tokenizer of " + said.model + "." : "▲ No config.json was found: name its directory under Model."].map((line) => element("span", {}, line)));
    // Those that fit come first.
    for (const fit of said.recipes.filter((recipe) => recipe.fits).reverse()) fields.map.options[0].after(element("option", { value: fit.name }, fit.name + " (fits)"));
  }, (error) => names.replaceChildren("▲ " + error.message));
  const infer = async () => {
    const said = await fitting.catch(() => null), choice = said ? said.choices.hf : { rename: [] };
    clear([...kNaming, ...kPlacing]);
    if (choice.recipe && ![...fields.map.options].some((option) => option.value === choice.recipe)) fields.map.append(element("option", { value: choice.recipe }, choice.recipe));
    placed("-safetensors");
    filled({ format: "safetensors", weights_only: true, map: choice.recipe || "", rename: choice.rename.join("\n"), assets: fields.assets.value || (said ? said.assets : "") });
    submit();
  };
  const reshard = async () => {
    const formats = (await get("formats")).formats, own = formats.find((format) => format.name === shown.info.format), keeps = own && own.writes && own.holds.shards && !own.models.length;
    clear([...kNaming, ...kPlacing]);
    placed("-ranks");
    filled({ format: keeps ? "" : "dcp", weights_only: false, mesh: mesh.value.trim(), like: keeps ? "" : "source" });
    submit();
  };
  const show = (name) => { const more = fields[name].closest("details"); if (more) more.open = true; fields[name].focus(); };
  return element("div", { class: "intents", id: "convert-intents" }, ...[
    card("inference", "For inference, as a model of Hugging Face", element("span", {}, element("span", {}, "Weights only, in whole safetensors, with the names that transformers has."), names), infer),
    ranks > 1 ? element("div", {}, card("ranks", "For another number of ranks", element("span", {}, "Every tensor is sharded along the same dimensions as in the source, optimizer state included. Change the sizes of the mesh first."), reshard),
      element("label", { class: "quiet", for: "intent-mesh" }, "Mesh "), mesh, element("span", { class: "quiet" }, " now " + counted(ranks, "rank", "ranks"))) : null,
    card("framework", "For another framework", element("span", {}, "Choose the format, then a recipe for the names."), () => show("format")),
    card("some", "Only some tensors, or another dtype", element("span", {}, "Select, rename and cast."), () => show("select"))].filter(Boolean));
}

// What the goal of another number of ranks does, with this mesh.
export function reshardTo(mesh) {
  document.getElementById("intent-mesh").value = mesh;
  document.getElementById("intent-ranks").click();
}

const parentOf = () => shown.info.path.replace(/\/+$/, "").replace(/\.[a-z]+$/, "");

export function showConvert(page) {
  if (page.childElementCount) return;
  fields = {};
  const submit = () => form.requestSubmit();
  const { result, edited, plan } = planner("convert", request, null, (message) => mendDamage(message, submit));
  const text = (name, placeholder) => (fields[name] = element("input", { type: "text", id: "convert-" + name, placeholder, spellcheck: "false", autocomplete: "off" }));
  const area = (name, placeholder) => (fields[name] = element("textarea", { id: "convert-" + name, placeholder, spellcheck: "false", rows: 2 }));
  const choice = (name, list) => (fields[name] = element("select", { id: "convert-" + name }, ...list.map(([value, words]) => element("option", { value }, words))));
  const check = (name, words) => element("label", {}, (fields[name] = element("input", { type: "checkbox", id: "convert-" + name })), words);
  const line = (name, words, field, note) => [element("label", { for: "convert-" + name }, words), field, note ? element("p", { class: "note" }, note) : null];
  // A line of the rules, and its axis in the mesh.
  const preset = (word, title, axis) => button(title, () => {
    const add = (field, text, between) => { if (!field.value.split(between).some((each) => each.trim().split("=")[0] === text.split("=")[0])) field.value = [field.value.trim(), text].filter(Boolean).join(between); };
    add(fields.shard, word, "\n");
    add(fields.mesh, axis + "=2", ",");
    fields.like.value = "";
    edited();
  }, { id: "preset-" + word });
  const form = element("form", { class: "sheet", onsubmit: plan, oninput: edited, onchange: edited }, ...[
    line("destination", "Destination", text("destination", parentOf() + "-converted"), "An absolute path on the server's machine. It appears whole or not at all."),
    line("format", "Format", choice("format", [["", "as the source"]])),
    line("map", "Names", choice("map", [["", "as they are"]]), "A recipe that turns the names of one framework into those of another."),
    line("assets", "Model", text("assets", "those of the checkpoint"), "The directory of config.json and tokenizer, which go with safetensors."),
    [element("span", {}), element("div", { class: "checks" }, check("weights_only", "Weights only"), check("skip_damaged", "Skip what is damaged"), check("overwrite", "Overwrite"), check("resume", "Resume"), check("strict", "Leave nothing out"))],
    line("mesh", "Mesh", text("mesh", "dp=2,tp=4"), "Target mesh; leave empty for the ranks that the format needs."),
    line("shard", "Sharding", area("shard", "*.weight:tp=0,dp=0"), "One rule a line: pattern, then which axis shards which dimension. A word alone is how frameworks shard:"),
    [element("span", {}), element("div", { class: "checks" }, preset("tensor-parallel", "Tensor parallel", "tp"), preset("fsdp", "FSDP", "dp"))],
    line("verify", "Verify", choice("verify", [["digest", "read the destination again and compare digests"], ["full", "read source and destination again"], ["checksums", "checksums of a bucket"], ["none", "only look whether it opens"]])),
    [element("details", {}, element("summary", {}, "More"), element("div", { class: "sheet" }, ...[
      line("select", "Only tensors", area("select", "model.*")), line("drop", "Without tensors", area("drop", "*._extra_state")),
      line("rename", "Rename", area("rename", "^model[.]=")), line("cast", "Cast", area("cast", "*.weight=bf16")),
      line("set", "Recipe parameters", area("set", "heads=32")), line("like", "Placed as", text("like", "source"), "A checkpoint whose names and placement are taken over; source: as the source, over the mesh."), line("stage", "Stages", area("stage", "model.layers.0.*:pp=0")),
      line("master_weights", "fp32 masters", choice("master_weights", [["auto", "where a cast asks for more"], ["use", "always, as float32"], ["ignore", "never"]]), "Where weights of few bits take their values from, if the optimizer's state has their fp32 masters."),
      line("dequantize", "Quantized weights", choice("dequantize", [["", "as stored"], ["bf16", "as bf16"], ["fp16", "as fp16"], ["fp32", "as fp32"]]), "Weights of few bits with their scales become the tensors that they stand for."),
      line("adapter", "LoRA adapter", text("adapter", "none"), "A directory of PEFT, or any checkpoint with such tensors, on the server's machine: merged into the weights before the recipe."),
      line("fill_gaps", "Gaps", choice("fill_gaps", [["refuse", "refuse"], ["nan", "fill with NaN"], ["zero", "fill with zeros"]])),
      line("max_file_size", "Largest file", text("max_file_size", "5GB")), line("on", "Who works", text("on", "local:4")),
      [element("span", {}), element("div", { class: "checks" }, check("unguarded", "Also to a bucket without conditional writes, where two jobs may not notice each other"))]].flat().filter(Boolean)))],
    [element("span", {}), element("div", {}, element("button", { class: "main" }, "Plan"))]].flat().filter(Boolean));
  page.append(element("p", { class: "quiet" }, "Nothing is written until you start the plan. The source is never touched."), intents(submit, edited), form, result);
  offer("format", get("formats").then((said) => said.formats.filter((format) => format.writes).flatMap((format) => (format.models.length ? format.models.map((model) => [model, model + ": " + format.title]) : [[format.name, format.title]]))));
  offer("map", get("recipes").then((said) => said.recipes.map((recipe) => [recipe.name, recipe.name])));
}
