// Errors over the depth of the model: what is carried over, what is made there, what rounding explains.

const PLOT_HEIGHT = 190;

function drawDepth(run, onRow) {
  const points = run.depth.map(([name, row, [inherited, local, excess, rounding]]) => ({ name, row, inherited, local, excess, rounding }));
  byId("depth").hidden = points.length < 2;
  if (points.length < 2) return;
  const width = Math.max(320, byId("depth-plot").clientWidth);
  const box = { left: 46, right: 8, top: 8, bottom: 18, width };
  const scale = depthScale(points, box);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${PLOT_HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": "Inherited and local error over depth" });
  for (const power of scale.powers) {
    svg.append(draw("line", { class: "grid", x1: box.left, x2: width - box.right, y1: scale.y(10 ** power), y2: scale.y(10 ** power) }),
      draw("text", { x: box.left - 6, y: scale.y(10 ** power) + 4, "text-anchor": "end" }, `1e${power}`));
  }
  if (scale.hasZeros) svg.append(draw("text", { x: box.left - 6, y: scale.y(0) + 4, "text-anchor": "end" }, "0"));
  if (run.replayed) svg.append(draw("path", { class: "band", d: band(points, scale) }));
  svg.append(draw("path", { class: "carried", d: line(points, "inherited", scale) }));
  if (run.replayed) svg.append(draw("path", { class: "own", d: dots(points, scale) }));
  points.forEach((point, i) => {
    const row = point.row === null ? null : run.rows[point.row];
    if (row && row.guilty) svg.append(draw("circle", { class: "mark", cx: scale.x(i), cy: scale.y(run.replayed ? point.local : point.inherited), r: 5 }));
  });
  const cursor = draw("line", { class: "cursor", y1: 0, y2: PLOT_HEIGHT - box.bottom, x1: -9, x2: -9 });
  svg.append(cursor, draw("text", { x: box.left, y: PLOT_HEIGHT - 4 }, "first"),
    draw("text", { x: width - box.right, y: PLOT_HEIGHT - 4, "text-anchor": "end" }, "last, in order of execution"));
  const nearest = (event) => {
    const at = ((event.clientX - svg.getBoundingClientRect().left) * width) / svg.getBoundingClientRect().width;
    return Math.min(points.length - 1, Math.max(0, Math.round(scale.index(at))));
  };
  svg.addEventListener("mousemove", (event) => {
    const at = nearest(event);
    cursor.setAttribute("x1", scale.x(at));
    cursor.setAttribute("x2", scale.x(at));
    byId("depth-at").textContent = depthText(points[at], run);
  });
  svg.addEventListener("mouseleave", () => { byId("depth-at").textContent = depthHint(); cursor.setAttribute("x1", -9); cursor.setAttribute("x2", -9); });
  svg.addEventListener("click", (event) => { const { row } = points[nearest(event)]; if (row !== null) onRow(run.rows[row]); });
  byId("depth-plot").replaceChildren(svg);
  byId("depth-at").textContent = depthHint();
  drawLegend(run);
  byId("depth-note").textContent = depthNote(run);
}

// What the lines say, for who sees such a plot for the first time.
function depthNote(run) {
  const whole = "The line is each tensor's distance from the reference (relative L2), errors made before it included";
  return run.replayed
    ? `${whole}; a dot is what the tensor's own computation adds to that. A dot above the band is a fault of its own; a high line over low dots is passed on.`
    : `${whole}: a rise shows where an error is made, a height that stays is passed on.`;
}

function depthHint() {
  return "Point at the plot to read it, click to go to the tensor.";
}

function depthText(point, run) {
  const parts = [`inherited ${show(point.inherited, 3) || "unknown"}`];
  if (run.replayed) parts.push(`local ${show(point.local, 3)}, ${show(point.excess, 3)} times rounding (${show(point.rounding, 3)})`);
  return `${point.name}: ${run.replayed ? parts.join("; ") : `distance ${show(point.inherited, 3)}`}`;
}

function drawLegend(run) {
  const item = (css, text) => make("span", {}, make("i", { class: css }), text);
  byId("depth-legend").replaceChildren(...(run.replayed
    ? [item("own", "local error, made right there"), item("carried", "inherited, the whole error"), item("band", "what rounding explains"), item("dot", "guilty")]
    : [item("carried", "relative L2 distance between both sides (without a replay, inherited and local together)"), run.rows.some((row) => row.guilty) ? item("dot", "where it jumps") : ""]));
}

function depthScale(points, box) {
  const known = points.flatMap((p) => [p.inherited, p.local, p.rounding]).map(number).filter((v) => Number.isFinite(v) && v > 0);
  // Not spread over arguments: a call takes some ten thousands, and steps and tensors are more.
  const high = Math.ceil(Math.log10(known.reduce((a, b) => Math.max(a, b), 1e-8)));
  const least = Math.max(Math.floor(Math.log10(known.reduce((a, b) => Math.min(a, b), 10 ** high))), high - 14);
  const hasZeros = points.some((point) => number(point.inherited) === 0);
  const low = hasZeros ? least - 1 : least; // what is exact lies below all that is not
  const span = Math.max(high - low, 1);
  const inner = box.width - box.left - box.right;
  const tall = PLOT_HEIGHT - box.top - box.bottom;
  const every = Math.ceil(span / 6);
  return {
    hasZeros,
    powers: Array.from({ length: Math.floor((high - least) / every) + 1 }, (_, i) => least + i * every),
    x: (i) => box.left + (inner * i) / (points.length - 1),
    index: (x) => ((x - box.left) / inner) * (points.length - 1),
    y: (value) => {
      const size = number(value);
      const power = size === Infinity ? high : size > 0 ? Math.min(Math.max(Math.log10(size), low), high) : low;
      return box.top + (tall * (high - power)) / span;
    },
    floor: PLOT_HEIGHT - box.bottom,
  };
}

// Each a line without length, which a round cap makes a dot; what is exact is not drawn.
function dots(points, scale) {
  return points.map((point, i) => (number(point.local) > 0 ? `M${scale.x(i).toFixed(1)} ${scale.y(point.local).toFixed(1)}h0` : "")).join("");
}

function line(points, key, scale) {
  let path = "";
  let pen = "M";
  points.forEach((point, i) => {
    if (point[key] === null) { pen = "M"; return; }
    path += `${pen}${scale.x(i).toFixed(1)} ${scale.y(point[key]).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

// The area below what rounding explains; where that is not known it stays at the last that is.
function band(points, scale) {
  let last = (points.find((point) => point.rounding !== null) || { rounding: 0 }).rounding;
  const edge = points.map((point, i) => {
    if (point.rounding !== null) last = point.rounding;
    return `L${scale.x(i).toFixed(1)} ${scale.y(last).toFixed(1)}`;
  });
  return `M${scale.x(0)} ${scale.floor}${edge.join("")}L${scale.x(points.length - 1)} ${scale.floor}Z`;
}
