// The average of several steps of a run, as a job: a plan comes first, by the rules of the guided conversion.
import { element, fill, get } from "./common.js";
import { planner } from "./convert.js";

let made = null;  // { section, list, chosen }

// Steps of a run are listed with the newest first; an average takes them in the order of training.
const inOrder = (run) => run.steps.map((step) => step.name).filter((name) => made.chosen.has(name)).reverse();

function make(run) {
  const fields = {};
  const line = (name, words, field, note) => [element("label", { for: "average-" + name }, words), (fields[name] = field), note && element("p", { class: "note" }, note)];
  const choice = (name, list) => element("select", { id: "average-" + name }, ...list.map(([value, words]) => element("option", { value }, words)));
  const list = element("div", { class: "checks", role: "group", "aria-label": "Steps to average" });
  made = { list, chosen: new Set(), run };
  const request = () => {
    const names = inOrder(made.run), job = { destination: fields.destination.value.trim(), average: names.slice(0, -1) };
    for (const name of ["format", "weights", "others"]) if (fields[name].value.trim()) job[name] = fields[name].value.trim();
    if (fields.accumulate.value !== "fp32") job.accumulate = fields.accumulate.value;
    if (fields.optimizer.checked) job.average_optimizer = true;
    return { schema: "shardscope.recipe/1", job };
  };
  const { result, edited, plan } = planner("average", request, () => ({ step: inOrder(made.run).at(-1) || "" }));
  made.edited = edited;
  const wrong = element("p", { class: "error", role: "status" });
  const format = choice("format", [["", "as the newest step"]]);
  get("formats").then((said) => format.append(...said.formats.filter((one) => one.writes).map((one) => element("option", { value: one.name }, one.title))), () => { /* as the newest step */ });
  const form = element("form", { class: "sheet", oninput: edited, onchange: edited, onsubmit: (event) => {
    event.preventDefault();
    wrong.textContent = made.chosen.size < 2 ? "Choose two steps or more." : "";
    if (made.chosen.size >= 2) plan(event);
  } }, ...[
    [element("span", {}, "Steps"), list],
    line("destination", "Destination", element("input", { type: "text", id: "average-destination", value: run.path.replace(/\/+$/, "") + "-average", spellcheck: "false", autocomplete: "off" }), "An absolute path on the server's machine. It appears whole or not at all."),
    line("format", "Format", format),
    line("weights", "Weights", element("input", { type: "text", id: "average-weights", placeholder: "uniform", list: "average-rules", spellcheck: "false", autocomplete: "off" }), "uniform, linear, minus-sqrt, cosine, or a number for each step, oldest first: 1,2,4"),
    [element("datalist", { id: "average-rules" }, ...["uniform", "linear", "minus-sqrt", "cosine"].map((value) => element("option", { value })))],
    line("accumulate", "Sum up in", choice("accumulate", [["fp32", "fp32"], ["fp64", "fp64"]])),
    line("others", "Integers and single numbers", choice("others", [["", "those of the newest step"], ["same", "must be the same"]])),
    [element("span", {}), element("div", {}, element("label", {}, (fields.optimizer = element("input", { type: "checkbox", id: "average-optimizer" })), "Average optimizer state too"))],
    [element("span", {}), element("div", {}, element("button", { class: "main" }, "Plan"), wrong)]].flat().filter(Boolean));
  made.section = element("details", { id: "average" }, element("summary", {}, "Average several steps"),
    element("p", { class: "quiet" }, "Makes one checkpoint of the values of several steps. Nothing is written until you start the plan."), form, result);
}

// The form stays as it is while steps come and go.
export function averageOf(run) {
  if (run.steps.length < 2) return null;
  if (!made) make(run);
  const names = run.steps.map((step) => step.name), known = made.list.dataset.steps, now = names.join("\n");
  made.run = run;
  if (known !== now) {
    for (const name of [...made.chosen]) if (!names.includes(name)) made.chosen.delete(name);
    made.list.dataset.steps = now;
    fill(made.list, ...names.map((name) => element("label", {}, element("input", { type: "checkbox", value: name, checked: made.chosen.has(name),
      onchange: (event) => { event.target.checked ? made.chosen.add(name) : made.chosen.delete(name); } }), name)));
    made.edited();
  }
  return made.section;
}
