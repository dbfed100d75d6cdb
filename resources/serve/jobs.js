// Jobs as they run, and where it is allowed: cancel and resume.
import { advice, allowed, bytesText, button, countText, element, fill, post, shown, timeText } from "./common.js";

const kinds = { done: "safe", failed: "error", lost: "error", cancelled: "warning" };
const marks = { done: "✓ ", failed: "✕ ", lost: "✕ ", cancelled: "▲ " };
let wrong = "";

function change(path, id) {
  wrong = "";
  post("jobs/" + path, { id }).catch((error) => { wrong = error.message; }).finally(() => showJobs(document.getElementById("jobs")));
}

function one(job) {
  const active = job.state === "running" || job.state === "starting";
  const actions = element("span", { class: "push" });
  if (allowed() && active) actions.append(button("Cancel", () => change("cancel", job.id)));
  if (allowed() && ["failed", "lost", "cancelled"].includes(job.state)) actions.append(button("Resume", () => change("resume", job.id), { title: "Continues where it stopped; from the beginning, where its staging directory is gone" }));
  const box = element("article", { class: "job" },
    element("div", { class: "head" }, element("b", {}, job.title), element("span", { class: kinds[job.state] || "" }, (marks[job.state] || "") + (job.state === "cancelled" ? "canceled" : job.state)), actions),
    element("div", { class: "quiet small" }, element("code", {}, job.id), " on " + job.host + (job.attempts > 1 ? ", attempt " + job.attempts : "")));
  const now = job.overall;
  if (job.state === "running" && now)
    box.append(element("div", {}, now.share != null ? element("progress", { value: now.share, max: 1, "aria-label": "done" }) : "", " " + now.text));
  const result = job.result;
  if (result && result.message) box.append(element("div", { class: "error" }, advice(result.message) + (result.hint ? " (" + advice(result.hint) + ")" : "")));
  else if (result && result.bytes_written != null)
    box.append(element("div", {}, bytesText(result.bytes_written) + " in " + timeText(result.seconds) + (result.verified ? ", verified" : "")));
  const workers = Array.isArray(job.workers) ? job.workers : [];
  if (workers.length && active)
    box.append(element("ul", { class: "quiet small" }, ...workers.map((worker) => element("li", {}, worker.name + ": " + worker.state + ", " + bytesText(worker.bytes) + (worker.why ? " (" + worker.why + ")" : "")))));
  return box;
}

export function showJobs(page) {
  const list = shown.jobs.jobs;
  const kMost = 200;
  fill(page,
    wrong && element("p", { class: "error" }, wrong),
    ...list.slice(0, kMost).map(one),
    list.length > kMost && element("p", { class: "quiet" }, countText(list.length - kMost) + " older ones; shardscope jobs list shows them."),
    !list.length && element("p", { class: "empty" }, allowed() ? "No job was started yet: the page Convert starts one." : "No job was started yet: shardscope jobs run, or the window, starts one."));
}
export const activeJobs = () => shown.jobs.jobs.filter((job) => job.state === "running" || job.state === "starting").length;
