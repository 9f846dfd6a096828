// Joins the parts: runs, filters, keys, links and colours.

const KEYS = [
  ["/", "filter by name"], ["j k  ↓ ↑", "next, previous line"], ["→ ←", "open, close a module"],
  ["Enter", "open or close a module; read a tensor"], ["n p", "next, previous tensor that differs or is guilty"],
  ["Esc", "leave the filter, clear it; back to the table"], ["t", "light, dark, system"], ["?", "these keys"],
];
const KINDS = [
  ["all", "All", () => true], ["differing", "Differing", (row) => row.differs || row.guilty],
  ["guilty", "Guilty", (row) => row.guilty], ["unpaired", "Unpaired", (row) => row.kind !== "pair"],
  ["detailed", "Details", (row) => row.detail],
];
const MOST_LINES = 8; // of a paragraph of evidence that is shown at once
const THEMES = ["system", "light", "dark"];

const runs = readJson("runs");
runs.forEach((run, at) => {
  run.number = at;
  expandRows(run);
  run.steps = [...new Set(run.rows.map((row) => row.step))].sort((a, b) => a - b);
  buildTree(run);
});
const state = { run: runs[0], kind: "all", step: "", theme: "system" };
const tree = new Tree(onChosen);

function onChosen(item) {
  showDetail(item, state.run, (row) => tree.reveal(row));
  if (!item.isModule) history.replaceState(null, "", `#${linkOf(item)}`);
}

function linkOf(row) {
  const mark = runs.length > 1 ? `${state.run.number + 1}:` : "";
  return encodeURIComponent(mark + row.id);
}

function followLink() {
  let wanted = "";
  try { wanted = decodeURIComponent(location.hash.slice(1)); } catch { return false; }
  if (!wanted) return false;
  let run = state.run;
  if (runs.length > 1) {
    const [mark] = wanted.split(":", 1);
    run = runs[Number(mark) - 1] || run;
    wanted = wanted.slice(mark.length + 1);
  }
  const row = run.rows.find((one) => one.id === wanted);
  if (!row) return false;
  if (run !== state.run) showRun(run);
  if (tree.chosen === row) return true;
  resetFilter();
  tree.reveal(row);
  return true;
}

function showRun(run) {
  state.run = run;
  state.kind = "all";
  state.step = "";
  showVerdict(run);
  showKinds(run);
  showSteps(run);
  showColours(run);
  tree.load(run);
  applyFilter();
  drawDepth(run, (row) => { resetFilter(); tree.reveal(row); });
  showDetail(null, run);
}

function showVerdict(run) {
  const [reference, candidate] = run.sides;
  const said = (side) => [make("b", {}, side.name), side.path && side.name !== side.path ? ` ${side.path}` : ""];
  byId("sides").replaceChildren(...["reference ", ...said(reference), "   ·   candidate ", ...said(candidate)].filter(Boolean));
  byId("verdict").className = run.tone;
  byId("badge").textContent = run.verdict;
  byId("sentence").textContent = run.sentence;
  const pairs = run.rows.filter((row) => row.kind === "pair").length;
  const guilty = run.rows.find((row) => row.guilty);
  const first = guilty || run.rows.find((row) => row.differs);
  byId("counts").replaceChildren(
    `${plural(pairs, "pair")}, ${run.differing.toLocaleString("en")} with any difference; ${plural(run.rows.length - pairs, "tensor")} without counterpart`,
    first ? make("a", { href: `#${linkOf(first)}`, onclick: (event) => { event.preventDefault(); resetFilter(); tree.reveal(first); byId("tensors").scrollIntoView({ block: "nearest" }); } },
      guilty ? "Show the first guilty tensor" : "Show the first that differs") : "");
  const shown = run.evidence.slice(0, 2).map((lines) => paragraph(clipped(lines)));
  const rest = run.evidence.filter((lines, i) => i > 1 || lines.length > MOST_LINES);
  const notes = [...run.notes, ...run.sides.flatMap((side) => side.notes)];
  if (rest.length || notes.length) {
    shown.push(make("details", {}, make("summary", {}, "What it rests on, and notes"), ...rest.map(paragraph),
      ...[...new Set(notes)].filter((note) => !run.evidence.flat().includes(`note: ${note}`)).map((note) => make("p", {}, `note: ${note}`))));
  }
  byId("evidence").replaceChildren(...shown);
}

function clipped(lines) {
  return lines.length > MOST_LINES ? [...lines.slice(0, MOST_LINES - 1), "  … the rest is below"] : lines;
}

function paragraph(lines) {
  return make("div", {}, ...lines.map((text) => {
    const made = make("p", {}, text.trim());
    made.style.paddingLeft = `${Math.min(text.length - text.trimStart().length, 8) * 5}px`;
    return made;
  }));
}

function showKinds(run) {
  byId("kinds").replaceChildren(...KINDS.map(([key, word, passes]) => {
    const count = run.rows.filter(passes).length;
    return key !== "all" && !count ? null : make("button", { type: "button", "data-kind": key, "aria-pressed": String(state.kind === key),
      onclick: () => { state.kind = key; showKinds(run); applyFilter(); } }, word, make("small", {}, String(count)));
  }).filter(Boolean));
}

function showSteps(run) {
  const select = byId("step");
  select.hidden = run.steps.length < 2;
  select.replaceChildren(make("option", { value: "" }, "all steps"), ...run.steps.map((step) => make("option", { value: String(step) }, `step ${step}`)));
}

function showColours(run) {
  const unit = run.replayed ? "local error, in what rounding explains; framed where not replayed: " : "";
  const names = [...stepsOf(run).map((limit, i) => (i ? "" : "≤ ") + (limit < 1000 ? limit : limit.toExponential().replace("+", ""))), "more"];
  byId("colours").replaceChildren("Colour: ", `${unit}${run.unit}`, ...names.map((name, i) =>
    make("span", { class: "scale" }, make("i", { class: `chip s${i}` }), ` ${name}`)));
  byId("heads").replaceChildren(...["reference", "candidate, where named otherwise", run.judged && !run.replayed ? "× tolerance" : "× rounding", "rel. L2"].map((word) => make("span", {}, word)));
}

function applyFilter() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const kind = KINDS.find(([key]) => key === state.kind)[2];
  const step = state.step === "" ? null : Number(state.step);
  tree.filter((row) => kind(row) && (step === null || row.step === step) && words.every((word) => row.search.includes(word)),
    words.length > 0 || state.kind !== "all");
  byId("shown").textContent = `${tree.matches.toLocaleString("en")} of ${plural(state.run.rows.length, "row")} shown`;
}

function resetFilter() {
  if (!byId("filter").value && state.kind === "all" && state.step === "") return;
  byId("filter").value = "";
  state.kind = "all";
  state.step = "";
  byId("step").value = "";
  showKinds(state.run);
  applyFilter();
}

function applyTheme() {
  const dark = state.theme === "dark" || (state.theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = `Colours: ${state.theme}`;
  themed.forEach((paint) => paint());
}

function nextTheme() {
  state.theme = THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length];
  try { localStorage.setItem("model_accuracy_tools.theme", state.theme); } catch { /* not kept */ }
  applyTheme();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const typing = event.target === byId("filter");
  if (event.key === "Escape") { leave(typing); return; }
  if (typing && event.key !== "ArrowDown" && event.key !== "Enter") return;
  if (event.target.tagName === "SELECT" || (event.target.tagName === "BUTTON" && event.key === "Enter")) return;
  if (event.key === "Enter" && event.target.closest("a, summary")) return;
  const action = actionOf(event.key, typing);
  if (action) { event.preventDefault(); action(); }
}

function actionOf(key, typing) {
  const { chosen } = tree;
  const notable = (row) => row.differs || row.guilty;
  switch (key) {
    case "/": return () => byId("filter").select();
    case "?": return () => byId("help").showModal();
    case "j": case "ArrowDown": return () => { byId("tree").focus({ preventScroll: true }); tree.move(1); };
    case "k": case "ArrowUp": return () => { byId("tree").focus({ preventScroll: true }); tree.move(-1); };
    case "n": return () => tree.moveTo(1, notable);
    case "p": return () => tree.moveTo(-1, notable);
    case "t": return nextTheme;
    case "ArrowRight": return chosen && chosen.isModule ? () => tree.toggle(chosen, true) : null;
    case "ArrowLeft": return chosen ? () => close(chosen) : null;
    case "Enter": return typing ? () => { byId("tree").focus(); firstMatch(); } : chosen ? () => (chosen.isModule ? tree.toggle(chosen) : byId("detail").focus()) : null;
    default: return null;
  }
}

function close(item) {
  if (item.isModule && tree.isOpen(item)) { tree.toggle(item, false); return; }
  const around = item.isModule ? item.around : item.parent;
  if (around && around.around) { tree.choose(around); tree.scrollToChosen(false); }
}

function firstMatch() {
  const line = tree.lines.find((one) => !one.item.isModule);
  if (line) { tree.choose(line.item); tree.scrollToChosen(false); }
}

function leave(typing) {
  if (typing && byId("filter").value) { byId("filter").value = ""; applyFilter(); return; }
  if (!typing && document.activeElement === byId("detail")) { byId("tree").focus(); return; }
  resetFilter();
  byId("tree").focus();
}

byId("run").hidden = runs.length < 2;
byId("run").replaceChildren(...runs.map((run, i) => make("option", { value: String(i) }, `candidate ${i + 1}: ${run.sides[1].name}, ${run.verdict}`)));
byId("run").addEventListener("change", (event) => showRun(runs[Number(event.target.value)]));
byId("filter").addEventListener("input", applyFilter);
byId("step").addEventListener("change", (event) => { state.step = event.target.value; applyFilter(); });
byId("theme").addEventListener("click", nextTheme);
byId("help-button").addEventListener("click", () => byId("help").showModal());
byId("help-close").addEventListener("click", () => byId("help").close());
byId("keys").replaceChildren(...KEYS.flatMap(([key, what]) => [make("dt", {}, key), make("dd", {}, what)]));
document.addEventListener("keydown", onKey);
window.addEventListener("hashchange", followLink);
window.addEventListener("resize", () => drawDepth(state.run, (row) => { resetFilter(); tree.reveal(row); }));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
try { if (THEMES.includes(localStorage.getItem("model_accuracy_tools.theme"))) state.theme = localStorage.getItem("model_accuracy_tools.theme"); } catch { /* as the system has it */ }

applyTheme();
showRun(state.run);
if (!followLink()) {
  const first = state.run.rows.find((row) => row.guilty) || state.run.rows.find((row) => row.differs);
  if (first) { tree.reveal(first); history.replaceState(null, "", location.pathname + location.search); }
}
