// The tree of modules: built once, then only what is in view is on the page.

const ROW_HEIGHT = 25;
const LONG_NAME = 32;

function expandRows(run) {
  run.rows = run.rows.map((list, at) => {
    const row = { number: at };
    run.fields.forEach((field, i) => { row[field] = list[i] === undefined ? null : list[i]; });
    if (row.candidate === 0) row.candidate = row.reference;
    for (const field of ["module", "leaf", "finding", "reason"]) row[field] = run.texts[row[field]];
    row.dtypes = row.dtypes && row.dtypes.map((i) => run.texts[i]);
    row.outcome = (row.outcome || []).map((i) => run.texts[i]);
    row.severity = row.severity === null ? null : number(row.severity);
    const excess = row.error && row.error[2] !== null ? number(row.error[2]) : null;
    row.score = run.replayed && row.guilty && excess === null ? Infinity : excess !== null ? excess : row.severity;
    // A distance between both sides is no local error: it colours its own line only, and not full.
    row.hollow = run.replayed && excess === null && Number.isFinite(row.score);
    row.differs = row.finding === "differs";
    row.search = `${row.reference || ""} ${row.candidate || ""}`.toLowerCase();
    return row;
  });
}

function buildTree(run) {
  const root = node("", "", null);
  const nodes = new Map([["", root]]);
  const at = (path) => {
    if (nodes.has(path)) return nodes.get(path);
    const cut = path.lastIndexOf(".");
    const around = at(cut < 0 ? "" : path.slice(0, cut));
    const made = node(path.slice(cut + 1), path, around);
    around.children.push(made);
    nodes.set(path, made);
    return made;
  };
  for (const row of run.rows) {
    const place = at(row.module);
    row.parent = place;
    place.rows.push(row);
  }
  for (const one of nodes.values()) one.rows = inSteps(one.rows);
  root.children = root.children.map(joined);
  measure(root);
  run.root = root;
}

function node(name, path, around) {
  return { name, path, around, children: [], rows: [], open: false, isModule: true };
}

// A module that holds one module and nothing else is one line with it.
function joined(one) {
  while (one.children.length === 1 && !one.rows.length) {
    const inner = one.children[0];
    one = Object.assign(inner, { name: `${one.name}.${inner.name}`, around: one.around });
  }
  one.children = one.children.map(joined);
  one.children.forEach((child) => { child.around = one; });
  one.rows.forEach((row) => { row.parent = one; });
  return one;
}

// All steps of a tensor stand together, in the order of its first.
function inSteps(rows) {
  const first = new Map();
  rows.forEach((row) => { if (!first.has(row.leaf)) first.set(row.leaf, row.number); });
  return [...rows].sort((a, b) => first.get(a.leaf) - first.get(b.leaf) || a.step - b.step || a.number - b.number);
}

function measure(one) {
  one.score = null;
  one.distance = null;
  one.guilty = one.rows.some((row) => row.guilty);
  one.tensors = one.rows.length;
  const take = (score, distance) => {
    if (score !== null && (one.score === null || score > one.score)) one.score = score;
    if (distance !== null && (one.distance === null || distance > one.distance)) one.distance = distance;
  };
  one.rows.forEach((row) => take(row.hollow ? null : row.score, distanceOf(row)));
  one.candidate = candidateModule(one);
  for (const child of one.children) {
    measure(child);
    take(child.score, child.distance);
    one.guilty = one.guilty || child.guilty;
    one.tensors += child.tensors;
  }
}

function distanceOf(row) {
  return row.metrics ? number(row.metrics[4]) : null;
}

function candidateModule(one) {
  for (const row of one.rows) {
    if (row.kind === "pair" && row.candidate.endsWith(`-${row.leaf}`)) {
      return row.candidate.slice(0, -row.leaf.length - 1);
    }
  }
  return "";
}

class Tree {
  constructor(onChosen) {
    this.box = byId("tree");
    this.rows = byId("rows");
    this.onChosen = onChosen;
    this.lines = [];
    this.chosen = null;
    this.box.addEventListener("scroll", () => this.paint());
    new ResizeObserver(() => this.paint()).observe(this.box);
  }

  load(run) {
    this.run = run;
    this.chosen = null;
    openWorst(run.root);
  }

  // Keeps the rows that pass; with a text typed every module that holds one is open.
  filter(passes, isNarrow) {
    this.passes = passes;
    this.isNarrow = isNarrow;
    this.refresh();
    this.box.scrollTop = 0;
    this.paint();
  }

  refresh() {
    this.lines = [];
    this.matches = 0;
    const kept = new Map();
    const count = (one) => {
      let found = one.rows.filter(this.passes).length;
      for (const child of one.children) found += count(child);
      kept.set(one, found);
      return found;
    };
    this.matches = count(this.run.root);
    const walk = (one, depth) => {
      const shown = one.rows.filter(this.passes).map((item) => ({ item, depth }));
      this.lines.push(...shown.filter(({ item }) => item.kind === "pair"));
      for (const child of one.children) {
        if (!kept.get(child)) continue;
        const open = this.isOpen(child);
        this.lines.push({ item: child, depth, open, kept: kept.get(child) });
        if (open) walk(child, depth + 1);
      }
      this.lines.push(...shown.filter(({ item }) => item.kind !== "pair")); // not before what says more
    };
    walk(this.run.root, 0);
    this.rows.style.height = `${this.lines.length * ROW_HEIGHT}px`;
    this.paint();
  }

  isOpen(one) {
    return this.isNarrow ? !one.closedHere : one.open;
  }

  paint() {
    if (!this.run) return;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - 8);
    const last = Math.min(this.lines.length, first + Math.ceil(this.box.clientHeight / ROW_HEIGHT) + 16);
    const made = [];
    for (let at = first; at < last; at += 1) made.push(this.line(this.lines[at], at));
    this.rows.replaceChildren(...made);
  }

  line(line, at) {
    const chosen = line.item === this.chosen;
    const element = line.item.isModule ? moduleLine(line, this.run) : tensorLine(line, this.run);
    element.style.top = `${at * ROW_HEIGHT}px`;
    element.querySelector(".name").style.paddingLeft = `${line.depth * 14}px`;
    element.id = `line-${at}`;
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", line.depth + 1);
    element.setAttribute("aria-selected", chosen);
    if (line.item.isModule) element.setAttribute("aria-expanded", line.open);
    if (chosen) {
      element.classList.add("chosen");
      this.box.setAttribute("aria-activedescendant", element.id);
    }
    element.addEventListener("click", () => {
      const again = line.item.isModule;
      this.choose(line.item);
      if (again) this.toggle(line.item);
    });
    return element;
  }

  toggle(one, open) {
    const key = this.isNarrow ? "closedHere" : "open";
    const now = open === undefined ? !this.isOpen(one) : open;
    one[key] = this.isNarrow ? !now : now;
    this.refresh();
  }

  choose(item) {
    this.chosen = item;
    this.onChosen(item);
    this.paint();
  }

  // Opens what is around a row, and scrolls to it.
  reveal(row) {
    for (let one = row.parent; one && one.around !== undefined; one = one.around) {
      if (!this.isOpen(one)) { one.open = true; one.closedHere = false; }
    }
    this.choose(row);
    this.refresh();
    this.scrollToChosen(true);
  }

  scrollToChosen(center) {
    const at = this.lines.findIndex((line) => line.item === this.chosen);
    if (at < 0) return;
    const top = at * ROW_HEIGHT;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop || top + ROW_HEIGHT > scrollTop + clientHeight) {
      this.box.scrollTop = center ? top - clientHeight / 2 : top < scrollTop ? top : top + ROW_HEIGHT - clientHeight;
    }
    this.paint();
  }

  move(by) {
    const at = this.lines.findIndex((line) => line.item === this.chosen);
    const next = at < 0 ? (by > 0 ? 0 : this.lines.length - 1) : Math.min(Math.max(at + by, 0), this.lines.length - 1);
    if (this.lines[next]) { this.choose(this.lines[next].item); this.scrollToChosen(false); }
  }

  // Goes to the next or previous row for which something holds, in the order of execution.
  moveTo(by, wanted) {
    const rows = this.run.rows;
    const from = this.chosen && !this.chosen.isModule ? this.chosen.number : by > 0 ? -1 : rows.length;
    for (let at = from + by; at >= 0 && at < rows.length; at += by) {
      if (wanted(rows[at]) && this.passes(rows[at])) { this.reveal(rows[at]); return true; }
    }
    return false;
  }
}

// At first the top lies open, and the way to what is guilty, or worst.
function openWorst(root) {
  let one = root;
  for (;;) {
    one.open = true;
    if (!one.children.length) return;
    const guilty = one.children.find((child) => child.guilty);
    const worst = [...one.children].sort((a, b) => (b.score ?? -1) - (a.score ?? -1))[0];
    one = guilty || worst;
  }
}

function figure(value) {
  return make("span", { class: "number" }, value === null || Number.isNaN(value) ? "" : show(Number.isFinite(value) ? value : "Infinity", 3));
}

function moduleLine(line, run) {
  const one = line.item;
  const other = one.candidate && one.candidate !== one.path ? one.candidate : "";
  return make("div", { class: "row module", title: one.path },
    make("span", { class: "name" },
      make("span", { class: "twist" }, line.open ? "▾" : "▸"),
      make("span", { class: `chip ${stepOf(one.score, run)}` }),
      make("b", {}, one.name || "(top)"),
      one.guilty ? make("span", { class: "tag guilty" }, "●") : null,
      make("span", { class: "tag" }, String(line.kept))),
    make("span", { class: "other" }, ending(other)),
    figure(one.score), figure(one.distance));
}

function tensorLine(line, run) {
  const row = line.item;
  const alone = row.kind !== "pair";
  const shown = row.candidate === null ? row.reason : row.reference === null ? row.candidate : tail(row);
  return make("div", { class: "row tensor", title: [row.reference, row.candidate, alone ? row.reason : ""].filter(Boolean).join("\n") },
    make("span", { class: "name" },
      make("span", { class: "twist" }),
      make("span", { class: `chip ${alone ? "none" : stepOf(row.score, run)} ${row.hollow ? "hollow" : ""}` }),
      row.reference === null
        ? make("b", { class: "reason" }, row.reason)
        : make("b", {}, row.leaf),
      run.steps.length > 1 ? make("span", { class: "tag" }, `step ${row.step}`) : null,
      row.rank === null ? null : make("span", { class: "tag" }, `rank ${row.rank}`),
      row.guilty ? make("span", { class: "tag guilty" }, "guilty") : null,
      row.harmless ? make("span", { class: "tag harmless" }, "harmless") : null),
    make("span", { class: row.candidate === null ? "reason" : "other" }, row.candidate === null ? shown : ending(shown)),
    figure(row.hollow ? null : row.score), figure(distanceOf(row)));
}

// The end of a name tells more than its begin.
function ending(name) {
  return name.length > LONG_NAME ? `…${name.slice(1 - LONG_NAME)}` : name;
}

// Of a candidate's name what its module's line does not say already.
function tail(row) {
  if (row.candidate === row.reference) return "";
  const module = row.parent.candidate;
  return module && row.candidate.startsWith(`${module}-`) ? row.candidate.slice(module.length + 1) : row.candidate;
}
