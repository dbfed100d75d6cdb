// The page of `shardscope serve`: its tabs, and what it follows of the server.
import { byId, change, element, follow, get, listen, printable, shown, step, tell } from "./common.js";
import { showCompare } from "./compare.js";
import { reshardTo, showConvert } from "./convert.js";
import { showFile, showFiles } from "./files.js";
import { showFindings } from "./findings.js";
import { activeJobs, showJobs } from "./jobs.js";
import { followScreen, layout, recolor, showMap, showRank } from "./map.js";
import { showObjects } from "./objects.js";
import { refuse, showOverview } from "./overview.js";
import { addressOf, fitTimeline, showRun, showSeveral } from "./run.js";
import { showTensor, showTensors } from "./tensors.js";

const pages = [
  { name: "run", title: "Run", show: showRun, when: () => shown.run && !step },
  { name: "several", title: "Checkpoints", show: showSeveral, when: () => shown.several && !step },
  { name: "overview", title: "Overview", show: showOverview, when: () => shown.info },
  { name: "placement", title: "Placement", show: showMap, when: () => shown.info },
  { name: "tensors", title: "Tensors", show: showTensors, when: () => shown.info },
  { name: "files", title: "Files", show: showFiles, when: () => shown.info },
  { name: "objects", title: "Objects", show: showObjects, when: () => shown.info && shown.info.totals.objects > 0 },
  { name: "findings", title: "Findings", show: showFindings, when: () => shown.info },
  { name: "compare", title: "Compare", show: showCompare, when: () => shown.info },
  { name: "convert", title: "Convert", show: showConvert, when: () => shown.info && shown.page.allow_jobs },
  { name: "jobs", title: "Jobs", show: showJobs, when: () => shown.jobs },
];
let current = "";

function open(name, keepAddress) {
  const page = pages.find((one) => one.name === name && one.when()) || pages.find((one) => one.when());
  if (!page || page.name === current) return;
  current = page.name;
  document.body.dataset.page = current;
  for (const one of pages.filter((each) => each.when())) {
    byId(one.name).hidden = one !== page;
    byId("tab-" + one.name).setAttribute("aria-selected", one === page);
    byId("tab-" + one.name).tabIndex = one === page ? 0 : -1;
  }
  byId("tab-" + page.name).scrollIntoView({ block: "nearest", inline: "center" });
  if (!keepAddress) history.replaceState(null, "", location.search + "#" + page.name);
  if (page.name === "tensors" && byId("tensors").childElementCount) return;
  page.show(byId(page.name));
  allowAsking();
}

// While the server does not answer, nothing can be asked of it; what is shown can be read and copied.
function allowAsking() {
  for (const one of document.querySelectorAll("#pages button:not(.link)")) {
    if (shown.lost && !one.disabled) one.dataset.off = "";
    if ("off" in one.dataset) one.disabled = shown.lost !== null;
    if (!shown.lost) delete one.dataset.off;
  }
}
follow("lost", allowAsking);

function makeTabs() {
  const there = pages.filter((page) => page.when());
  byId("tabs").replaceChildren(...there.map((page) => element("button", { type: "button", role: "tab", id: "tab-" + page.name, "aria-controls": page.name, onclick: () => open(page.name) }, page.title)));
  byId("pages").replaceChildren(...there.map((page) => element("section", { id: page.name, role: "tabpanel", "aria-labelledby": "tab-" + page.name, hidden: true })));
  byId("tabs").hidden = there.length < 2;
}

byId("tabs").addEventListener("keydown", (event) => {
  const there = pages.filter((page) => page.when()).map((page) => page.name), at = there.indexOf(current);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: there.length - 1 }[event.key];
  if (to == null) return;
  event.preventDefault();
  const next = there[(to + there.length) % there.length];
  open(next);
  byId("tab-" + next).focus();
});

// Escape leaves what is open on the page: a form, a tensor, a file.
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented) return;
  document.querySelector("#" + current + " [data-escape]")?.click();
});

function count(name, text) {
  const tab = byId("tab-" + name), title = pages.find((page) => page.name === name).title;
  if (tab) tab.textContent = text ? title + " (" + text + ")" : title;
}

// Other modules ask for a page, a tensor, or the tensors of a module.
follow("open", (name) => open(name));
follow("tensor", (name) => { open("tensors"); showTensor(name); });
follow("file", showFile);
follow("finding", (words) => { open("findings"); [...document.querySelectorAll("#findings article")].find((one) => one.dataset.words === words)?.scrollIntoView({ block: "center" }); });
follow("rank", (rank) => { open("placement"); showRank(rank); });
follow("reshard", (mesh) => { open("convert"); reshardTo(mesh); });
follow("filter", (pattern) => { open("placement"); showMap(byId("placement"), pattern); });

follow("findings", (report) => {
  count("findings", report.findings ? String(report.findings.length) : report.schema === "shardscope.validating/1" ? "…" : "!");
  if (current === "findings") showFindings(byId("findings"));
});
follow("run", () => { if (current === "run") showRun(byId("run")); });
follow("jobs", () => { const active = activeJobs(); count("jobs", active ? String(active) : ""); if (current === "jobs") showJobs(byId("jobs")); });

// ------------------------------------------------------------------ theme

// A choice is kept for this address only; a browser that keeps nothing has the system's.
const kept = { get: () => { try { return localStorage.getItem("theme") || ""; } catch { return ""; } }, set: (value) => { try { localStorage.setItem("theme", value); } catch { /* not kept */ } } };
function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  recolor();
  tell("theme");
}
byId("theme").value = kept.get();
setTheme(kept.get());
byId("theme").addEventListener("change", (event) => { kept.set(event.target.value); setTheme(event.target.value); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { recolor(); tell("theme"); });

// ------------------------------------------------------------------ start

function showNames() {
  const path = printable((shown.info ? shown.info.path : shown.page.path) || "");
  byId("title").textContent = path || "Jobs";
  document.title = (path ? path + " – " : "") + "Shardscope";
  if (shown.run && step) byId("subtitle").replaceChildren(element("a", { href: "/#run" }, "← All steps of the run"));
  else if (shown.several && step) byId("subtitle").replaceChildren(element("a", { href: "/" }, "← All checkpoints here"));
  else byId("subtitle").textContent = shown.page.shows === "run" ? "Directory of a run" : "";
}

async function start() {
  shown.page = await get("page");
  const shows = (what) => shown.page.shows === what;
  const checkpoint = shows("checkpoint") || ((shows("run") || shows("several")) && step);
  const [info, run, several, jobs] = await Promise.all([checkpoint ? get("info") : null, shows("run") ? get("run") : null, shows("several") ? get("several") : null, shown.page.jobs ? get("jobs") : null]);
  Object.assign(shown, { info, run, several, jobs });
  // The only step stands for its run, until it is left for the list.
  if (run && run.steps.length === 1 && !step && !location.hash) return location.replace(addressOf(run.steps[0]));
  showNames();
  makeTabs();
  open(location.hash.slice(1), true);
  if (checkpoint) {
    const [rules, accepted, findings, ready] = await Promise.all([get("rules"), get("accepted"), get("findings"), get("ready")]);
    shown.rules = rules.rules;
    change("accepted", accepted);
    change("ready", ready);
    change("findings", findings);
  }
  if (jobs) tell("jobs");
  const live = shown.page.allow_jobs ? "Live; validating, accepting and converting are allowed." : "Live; this page only shows.";
  const said = (lost) => {
    byId("state").textContent = lost ? "Shows what the server said last." : live;
    if (lost?.refused !== shown.lost?.refused) change("lost", lost);
  };
  listen("events", change, () => said(null), (why) => said({ since: shown.lost?.since || new Date(), refused: why !== null && why.status === 403 }));
}
addEventListener("hashchange", () => open(location.hash.slice(1), true));
addEventListener("resize", () => { layout(); if (current === "run") fitTimeline(byId("run")); });
// Another screen may have other pixels without another size, of which browsers do not always tell the page.
setInterval(followScreen, 500);
start().catch((error) => { byId("state").textContent = ""; refuse(error); });
