"use strict";
// Elements, numbers and colours. Texts of a dump come onto the page as text alone.

const SVG = "http://www.w3.org/2000/svg";

function byId(id) {
  return document.getElementById(id);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function readJson(id) {
  return JSON.parse(byId(id).textContent);
}

// JSON has no infinity and no NaN: these come as words.
function number(value) {
  if (value === null || value === undefined) return NaN;
  if (typeof value === "number") return value;
  if (value === "Infinity") return Infinity;
  if (value === "-Infinity") return -Infinity;
  return Number(value);
}

function show(value, digits = 4) {
  if (value === null || value === undefined) return "";
  if (value === "Infinity") return "infinite";
  if (value === "-Infinity") return "-infinite";
  if (typeof value === "string") return value;
  if (Number.isInteger(value) && Math.abs(value) < 1e5) return String(value);
  const text = value.toPrecision(digits);
  const size = Math.abs(value);
  if (size >= 1e5 || (size < 1e-4 && size > 0)) return tidy(value.toExponential(digits - 1));
  return tidy(text);
}

function tidy(text) {
  const [digits, power] = text.split("e");
  const short = digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
  return power === undefined ? short : `${short}e${power.replace("+", "")}`;
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

function indexText(index) {
  return `[${index.join(", ")}]`;
}

// Steps of colour. A tolerance is kept or not; what rounding explains is met only roughly.
const OF_TOLERANCE = [1, 10, 100, 1e3, 1e5];
const OF_ROUNDING = [3, 10, 100, 1e3, 1e5];

function stepsOf(run) {
  return run.judged && !run.replayed ? OF_TOLERANCE : OF_ROUNDING;
}

function stepOf(score, run) {
  if (score === null || score === undefined || Number.isNaN(score)) return "none";
  const steps = stepsOf(run);
  const at = steps.findIndex((limit) => score <= limit);
  return `s${at < 0 ? steps.length : at}`;
}

function styleColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// From a share between 0 and 1 to red, green and blue, from the page's colours to its red.
function ramp() {
  const stops = ["--panel", "--s1", "--s3", "--s4", "--s5"].map(styleColour).map(rgbOf);
  return (share) => {
    const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((part, i) => Math.round(part + (stops[low + 1][i] - part) * (at - low)));
  };
}

function rgbOf(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
