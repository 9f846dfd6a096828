// Heat map, histogram, scatter and window of one tensor.

function heatMap(map) {
  const rows = map.values.length;
  const columns = map.values[0].length;
  const canvas = make("canvas", { width: columns, height: rows });
  canvas.style.height = `${Math.max(70, Math.min(260, rows * 7))}px`;
  const values = map.values.flat().map(number);
  const finite = values.filter((value) => Number.isFinite(value) && value > 0);
  const top = Math.log10(Math.max(...finite, 1e-300));
  const low = Math.min(Math.max(Math.log10(Math.min(...finite, 1e300)), top - 8), top - 1); // small differences stay small
  const caption = make("p", { class: "caption" });
  const rest = finite.length
    ? `|difference| by block, up to ${show(10 ** top, 3)}, on a logarithmic scale from ${show(10 ** low, 2)}.`
    : values.length && values.some((value) => value === Infinity) ? "Only NaN or infinity differs." : "No difference.";
  caption.textContent = rest;
  const paint = () => {
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    const colour = ramp();
    values.forEach((value, i) => {
      const share = value === Infinity ? 1 : value > 0 ? 0.12 + 0.88 * ((Math.log10(value) - low) / (top - low)) : 0;
      image.data.set([...colour(share), 255], i * 4);
    });
    context.putImageData(image, 0, 0);
  };
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const r = Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * rows)));
    const c = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * columns)));
    const places = `${map.rows} ${block(r, rows, map.rowSize)}, ${map.columns} ${block(c, columns, map.columnSize)}`;
    caption.textContent = `${places}: ${show(map.values[r][c], 3)}`;
  });
  canvas.addEventListener("mouseleave", () => { caption.textContent = rest; });
  paint();
  themed.add(paint);
  return make("div", { class: "chart" },
    make("h3", {}, `By ${map.rows} (down, ${map.rowSize}) and ${map.columns} (across, ${map.columnSize})`),
    canvas, caption);
}

function block(at, cells, size) {
  const first = Math.ceil((at * size) / cells);
  const last = Math.ceil(((at + 1) * size) / cells) - 1;
  return first === last ? String(first) : `${first}–${last}`;
}

function histogram(found) {
  const total = found.counts.reduce((sum, count) => sum + count, 0);
  const width = 360, height = 150, left = 8, bottom = 20;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Histogram of the absolute differences" });
  const tallest = Math.log10(1 + Math.max(...found.counts, 1));
  const step = (width - 2 * left) / Math.max(found.counts.length, 1);
  found.counts.forEach((count, i) => {
    const tall = (Math.log10(1 + count) / tallest) * (height - bottom - 6);
    svg.append(draw("rect", { class: "bar", x: left + i * step, y: height - bottom - tall, width: Math.max(step - 1, 1), height: tall },
      draw("title", {}, `${show(10 ** (found.exponent + i / 4), 2)} to ${show(10 ** (found.exponent + (i + 1) / 4), 2)}: ${plural(count, "element")}`)));
  });
  const wide = Math.max(1, Math.round(found.counts.length / 4 / 5));
  for (let power = Math.ceil(found.exponent); power <= found.exponent + found.counts.length / 4; power += wide) {
    const x = left + (power - found.exponent) * 4 * step;
    svg.append(draw("line", { class: "grid", x1: x, x2: x, y1: height - bottom, y2: height - bottom + 4 }),
      draw("text", { x, y: height - 5, "text-anchor": x < 16 ? "start" : x > width - 16 ? "end" : "middle" }, `1e${power}`));
  }
  svg.append(draw("line", { class: "grid", x1: 0, x2: width, y1: height - bottom, y2: height - bottom }));
  return make("div", { class: "chart" }, make("h3", {}, "Histogram of |difference|"), svg,
    make("p", { class: "caption" }, `${plural(total, "element")} differ, ${found.equal.toLocaleString("en")} are equal; the height is logarithmic.`));
}

function scatter(points, worst) {
  const size = 300, edge = 12;
  const both = points.flat().map(number).filter(Number.isFinite);
  if (!both.length) return null; // nothing is finite on both sides
  const low = Math.min(...both), high = Math.max(...both);
  // Halves, since the span of all doubles is none.
  const at = (value) => edge + ((number(value) / 2 - low / 2) / (high / 2 - low / 2 || 1)) * (size - 2 * edge);
  const svg = draw("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": "Reference against candidate" },
    draw("rect", { class: "frame", x: 0.5, y: 0.5, width: size - 1, height: size - 1 }),
    draw("line", { class: "diagonal", x1: edge, y1: size - edge, x2: size - edge, y2: edge }));
  [...points.entries()].reverse().forEach(([i, [x, y]]) => {
    svg.append(draw("circle", { class: i < worst ? "point far" : "point", cx: at(x), cy: size - at(y), r: 2.4 },
      draw("title", {}, `reference ${show(x)}, candidate ${show(y)}`)));
  });
  svg.append(draw("text", { x: 5, y: 14 }, `candidate, ${show(low, 2)} to ${show(high, 2)}`),
    draw("text", { x: size - 5, y: size - 5, "text-anchor": "end" }, "reference"));
  return make("div", { class: "chart" }, make("h3", {}, "Reference (across) against candidate (up)"), svg,
    make("p", { class: "caption" }, `Red: the ${worst} elements that differ most; blue: ${points.length - worst} of all, evenly spaced. The dashed line is equality.`));
}

// One table, each cell with the reference above the candidate, so that digits can be told apart.
function windowTable(detail) {
  const { window: cut, shape, center } = detail;
  const before = center.slice(0, -2);
  const place = before.length ? ` at ${indexText([...before, "…"])}` : "";
  const gaps = cut.reference.map((row, r) => row.map((value, c) => gap(value, cut.candidate[r][c])));
  const greatest = Math.max(...gaps.flat().filter(Number.isFinite), 0);
  const head = make("tr", {}, make("th", {}, ""), cut.reference[0].map((_, c) => make("th", {}, String(cut.column + c))));
  const body = cut.reference.map((row, r) => make("tr", {},
    make("th", {}, shape.length > 1 ? String(cut.row + r) : ""),
    row.map((value, c) => {
      const other = cut.candidate[r][c];
      return make("td", { class: cellClass(gaps[r][c], greatest, isCenter(detail, r, c)), title: `reference ${show(value, 9)}, candidate ${show(other, 9)}` },
        make("span", { class: "above" }, show(value, 5)), make("span", {}, show(other, 5)));
    })));
  return [make("h3", {}, `Values around the greatest difference${place}`),
    make("p", { class: "caption" }, "In each cell the reference above, the candidate below; the redder, the further apart."),
    make("table", { class: "cells" }, head, ...body)];
}

function isCenter(detail, r, c) {
  const { window: cut, shape, center } = detail;
  const row = shape.length > 1 ? center[center.length - 2] : 0;
  return cut.row + r === row && cut.column + c === (center.length ? center[center.length - 1] : 0);
}

function gap(reference, candidate) {
  if (reference === candidate) return 0;
  const apart = Math.abs(number(candidate) - number(reference));
  return Number.isNaN(apart) ? Infinity : apart;
}

function cellClass(apart, greatest, isCenter) {
  const share = apart === Infinity ? 1 : greatest ? apart / greatest : 0;
  const tint = share > 0.5 ? "d3" : share > 0.1 ? "d2" : share > 0.01 ? "d1" : "";
  return `${tint} ${isCenter ? "center" : ""}`.trim();
}
