// Findings by cause, with filters; accepted ones with their reason, shared with the window.
import { allowed, boxText, button, countText, element, fill, momentText, post, shown, tell } from "./common.js";

const filters = { error: true, warning: true, info: true, accepted: false, text: "" };
const opened = new Set();  // findings of which all examples are shown
let accepting = "";        // the finding whose reason is being written
let place = null;

const keyOf = (finding) => finding.rule + "\n" + finding.cause;

function exampleLine(example) {
  const parts = [];
  if (example.tensor) parts.push(button(example.tensor, () => tell("tensor", example.tensor), { class: "link mono" }));
  const words = [];
  if (example.offsets) words.push(boxText(example));
  if (example.rank != null) words.push("rank " + example.rank);
  if (example.file) words.push("in " + example.file);
  if (example.offset != null) words.push("at byte " + countText(example.offset));
  if (example.detail) words.push("– " + example.detail);
  return element("li", {}, ...parts, (parts.length && words.length ? " " : "") + words.join(" "));
}

function acceptForm(finding) {
  const reason = element("input", { type: "text", "aria-label": "Reason", placeholder: "why it is all right", maxlength: 500 });
  const wrong = element("span", { class: "error", role: "status" });
  const close = () => {
    accepting = "";
    draw();
    const again = [...place.querySelectorAll(".head button")].find((one) => one.dataset.finding === keyOf(finding));
    if (again) again.focus();
  };
  const form = element("form", { class: "accepting", onsubmit: (event) => {
    event.preventDefault();
    post("accept", { rule: finding.rule, cause: finding.cause, reason: reason.value.trim() })
      .then(close, (error) => { wrong.textContent = error.message; });
  } }, reason, element("button", { class: "main" }, "Accept"), button("Cancel", close, { "data-escape": true }), wrong);
  queueMicrotask(() => reason.focus());
  return form;
}

function card(finding) {
  const rule = shown.rules[finding.rule] || {};
  const accepted = finding.accepted, key = keyOf(finding);
  const marks = { error: "✕ error", warning: "▲ warning", info: "• info" };
  const box = element("article", { class: "finding is-" + finding.severity + (accepted ? " accepted" : ""), "data-words": finding.rule + ": " + finding.message },
    element("div", { class: "head" },
      element("b", { class: finding.severity }, marks[finding.severity]), element("b", {}, finding.message), element("code", {}, finding.rule),
      accepted ? allowed() && button("Withdraw", () => post("accept", { rule: finding.rule, cause: finding.cause, withdraw: true }))
        : finding.severity !== "info" && allowed() && accepting !== key && button("Accept…", () => { accepting = key; draw(); }, { "data-finding": key })),
    accepted && element("p", {}, "Accepted" + (accepted.by ? " by " + accepted.by : "") + (accepted.at ? " at " + momentText(accepted.at) : "") + ": " + accepted.reason),
    rule.meaning && element("p", { class: "quiet small" }, rule.meaning + (rule.remedy ? " " + rule.remedy : "")),
    accepting === key && acceptForm(finding));
  const kFirst = 5, all = opened.has(key);
  const list = finding.examples.slice(0, all ? undefined : kFirst);
  if (list.length) box.append(element("ul", { class: "mono" }, ...list.map(exampleLine)));
  if (finding.examples.length > kFirst)
    box.append(button(all ? "Show the first " + kFirst : "Show " + countText(finding.examples.length) + (finding.count > finding.examples.length ? " of " + countText(finding.count) : ""),
      () => { all ? opened.delete(key) : opened.add(key); draw(); }, { class: "link" }));
  return box;
}

function draw() {
  const report = shown.findings;
  const list = place.querySelector(".list");
  if (!report || report.schema === "shardscope.validating/1") return list.replaceChildren(element("p", { class: "empty" }, "Validating …"));
  if (report.schema === "shardscope.error/1")
    return list.replaceChildren(element("p", { class: "empty" }, report.code === "cancelled" ? "The validation was canceled." : "The validation failed: " + report.message));
  const text = filters.text.toLowerCase();
  const matches = (finding) => filters[finding.severity] && (filters.accepted || !finding.accepted) &&
    (!text || [finding.rule, finding.message, finding.cause, ...finding.examples.map((e) => e.tensor || e.file || "")].some((words) => (words || "").toLowerCase().includes(text)));
  const chosen = report.findings.filter(matches);
  // What has one cause belongs together, the worst first as the report has them.
  const groups = new Map();
  for (const finding of chosen) groups.set(finding.cause, [...(groups.get(finding.cause) || []), finding]);
  const made = [];
  for (const [cause, findings] of groups)
    made.push(element("section", { class: "group" }, cause ? element("h3", {}, "Cause: " + cause) : null, ...findings.map(card)));
  if (!report.findings.length) made.push(element("p", { class: "empty" }, "Nothing was found."));
  else if (!chosen.length) made.push(element("p", { class: "empty" }, "None of the " + countText(report.findings.length) + " findings fits the filter."));
  list.replaceChildren(...made);
}

export function showFindings(page) {
  if (!place) {
    place = page;
    const check = (name, words) => element("label", {}, element("input", { type: "checkbox", checked: filters[name], onchange: (event) => { filters[name] = event.target.checked; draw(); } }), words);
    fill(page,
      element("div", { class: "bar" }, check("error", "Errors"), check("warning", "Warnings"), check("info", "Info"), check("accepted", "Accepted ones"),
        element("input", { type: "text", "aria-label": "Filter findings", placeholder: "rule, cause, tensor or file", oninput: (event) => { filters.text = event.target.value; draw(); } })),
      element("div", { class: "list" }),
      !allowed() && element("p", { class: "quiet small" }, "Findings can be accepted in the window, or here when the server was started with --allow-jobs."));
  }
  // A reason that is being written stays.
  if (!accepting || !place.querySelector(".accepting")) draw();
}
