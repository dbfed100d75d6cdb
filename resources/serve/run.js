// The steps of a run: which are whole, and which one it would resume from.
import { averageOf } from "./average.js";
import { allowed, bytesText, countText, element, fill, shown, table } from "./common.js";

export function showRun(page) {
  const run = shown.run;
  const verdict = (step) => {
    if (step.error) return element("span", { class: "error" }, "✕ does not open: " + step.error.message);
    if (!step.verdict) return element("span", { class: "quiet" }, "not checked");
    const marks = { safe: "✓ ", care: "▲ ", unsafe: "✕ " };
    return element("span", {}, element("b", { class: step.verdict }, marks[step.verdict] + step.verdict), element("span", { class: "quiet" }, " (" + step.level + ")"));
  };
  const tracker = run.tracker;
  const about = !tracker ? "No file of the run names the step to resume from."
    : !tracker.exists ? null
      : tracker.file === tracker.names ? "★ is the last step of the run." : "★ is the step that " + tracker.file + " names: a framework resumes from it.";
  fill(page,
    element("h2", {}, countText(run.steps.length) + (run.steps.length === 1 ? " step" : " steps")),
    tracker && !tracker.exists && element("p", { class: "error" }, "✕ " + tracker.file + " names " + tracker.names + ", which is not there."),
    run.steps.length
      ? table(["step", { text: "saved", keep: true }, { text: "size", number: true }, { text: "files", number: true }, "format", "verdict"],
        run.steps.map((step) => [
          element("span", {}, element("a", { href: "?step=" + encodeURIComponent(step.name) }, step.name), tracker && tracker.exists && step.name === tracker.names ? " ★" : ""),
          step.saved ? step.saved.replace("T", " ").replace("Z", " UTC") : "unknown", bytesText(step.bytes), countText(step.files), step.format || "unknown", verdict(step)]))
      : element("p", { class: "empty" }, "No step was saved yet."),
    about && element("p", { class: "quiet small" }, about),
    element("p", { class: "quiet small" }, "Opening a step validates it; what was found is remembered until one of its files changes."),
    allowed() && averageOf(run));
}
