// What is said of the chosen tensor or module.

const themed = new Set(); // painters of what has no style of its own

function showDetail(item, run, go) {
  themed.clear();
  byId("detail").replaceChildren(...(item === null ? nothingChosen() : item.isModule ? moduleDetail(item, go) : tensorDetail(item, run)));
  byId("detail").scrollTop = 0;
}

function nothingChosen() {
  return [make("p", { class: "soft" }, "Choose a tensor in the table, or press n for the first that differs.")];
}

function rowsIn(one) {
  return [...one.rows, ...one.children.flatMap(rowsIn)];
}

function moduleDetail(one, go) {
  const rows = rowsIn(one);
  const worst = rows.filter((row) => row.score).sort((a, b) => b.score - a.score).slice(0, 8);
  const unpaired = rows.filter((row) => row.kind !== "pair").length;
  const differing = rows.filter((row) => row.differs).length;
  return [
    make("h2", {}, one.path || "(top)"),
    make("p", { class: "against" }, one.candidate ? `candidate: ${one.candidate}` : ""),
    make("p", { class: "facts" }, `${plural(rows.length, "tensor")}, ${differing} judged as differing, ${unpaired} without counterpart`),
    worst.length ? make("h3", {}, "Furthest apart") : null,
    worst.length ? make("table", { class: "figures" }, ...worst.map((row) => make("tr", {},
      make("td", {}, make("a", { href: `#${encodeURIComponent(row.id)}`, onclick: (event) => { event.preventDefault(); go(row); } }, row.reference)),
      make("td", { class: "number" }, show(row.score === Infinity ? "Infinity" : row.score, 3))))) : null,
  ].filter(Boolean);
}

function tensorDetail(row, run) {
  const detail = row.detail ? readJson(`detail-${run.number}-${row.number}`) : null;
  const parts = [
    make("h2", {}, row.reference === null ? row.candidate : row.reference),
    row.kind === "pair" && row.candidate !== row.reference ? make("p", { class: "against" }, `candidate: ${row.candidate}`) : null,
    make("p", { class: "facts" }, facts(row, run)),
    ...callouts(row),
  ];
  if (row.metrics || row.error) parts.push(figures(row, detail, run));
  if (detail) {
    parts.push(...windowTable(detail), make("div", { class: "charts" },
      ...detail.maps.map(heatMap), histogram(detail.histogram), scatter(detail.scatter, detail.worst) || ""));
  } else if (row.metrics) {
    parts.push(make("p", { class: "callout" }, whyNoDetail(row, run)));
  }
  return parts.filter(Boolean);
}

function facts(row, run) {
  const parts = [`step ${row.step}`];
  if (row.rank !== null) parts.push(`rank ${row.rank}`);
  parts.push(row.finding);
  if (row.shapes) {
    const [left, right] = row.shapes.map((shape) => (shape ? indexText(shape) : "unknown"));
    parts.push(left === right ? left : `${left} against ${right}`);
  }
  if (row.dtypes) parts.push(row.dtypes[0] === row.dtypes[1] ? row.dtypes[0] : row.dtypes.join(" against "));
  if (row.kind === "pair") parts.push(`paired: ${row.reason}`);
  return parts.join(" · ");
}

function callouts(row) {
  const made = [];
  const lines = (css, texts) => made.push(make("div", { class: `callout ${css}` }, ...texts.map((text) => make("p", {}, text))));
  if (row.guilty) lines("bad", row.guilty);
  if (row.harmless) lines("good", [`Different, and harmless: ${row.harmless}`]);
  if (row.kind !== "pair") {
    const only = row.kind === "unreadable" ? "It cannot be read" : `Only in the ${row.reference === null ? "candidate" : "reference"}`;
    lines("unsure", [`${only}: ${row.reason}`]);
  }
  if (row.outcome.length) lines("", row.outcome);
  return made;
}

function whyNoDetail(row, run) {
  if (row.severity === 0) return "Both sides are equal, so there is nothing to show of single elements.";
  if (row.dtypes && row.dtypes[0].startsWith("complex")) return "Single elements of complex numbers are not shown.";
  return `Single elements are kept of ${run.detailed} of the ${run.differing} pairs that differ at all: the guilty ones, then the worst by ${run.unit}. ` +
    "This pair is not among them, so that the page stays small.";
}

function figures(row, detail, run) {
  const table = make("table", { class: "figures" });
  const add = (name, value, more) => table.append(make("tr", {}, make("th", {}, name), make("td", { class: "number" }, value), make("td", {}, more || "")));
  if (row.error && row.error[1] !== null) {
    const [inherited, local, excess, rounding] = row.error;
    add("Local error", show(local), `${show(excess, 3)} times what rounding explains${rounding === null ? "" : `, ${show(rounding, 3)}`}; over all steps`);
    if (inherited !== null) add("Inherited error", show(inherited), "from the reference's own run; over all steps");
  }
  if (!row.metrics) return table;
  const [elements, absolute, relative, mean, relativeL2, cosine, snr, mismatched] = row.metrics;
  add("Absolute, greatest", show(absolute[0]), extremeText(absolute));
  add("Relative, greatest", show(relative[0]), extremeText(relative));
  if (detail && detail.ulp) add("ULP, greatest", show(detail.ulp[1]), `mean ${show(detail.ulp[2], 3)}, in units in the last place of ${detail.ulp[0]}`);
  add("Absolute, mean", show(mean), `over ${plural(elements, "finite element")}`);
  add("Relative L2", show(relativeL2), "");
  add("Cosine", show(cosine, 9), "");
  add("SNR", snr === "Infinity" ? "no noise" : `${show(snr)} dB`, "");
  if (mismatched) add("Beyond tolerance", mismatched, "");
  return table;
}

function extremeText([, index, reference, candidate, allowed]) {
  const granted = allowed === null ? "" : `, ${show(allowed, 3)} allowed`;
  // Integers and complex numbers come as text, which is exact.
  return `at ${indexText(index)}: ${show(reference, 6)} against ${show(candidate, 6)}${granted}`;
}
