// The three drawings, of what page.js holds: model, path and map.
"use strict";

const CELLS = 60;
const LOW = -3, HIGH = 1;
const byId = (id) => document.getElementById(id);
const canvases = { phase: byId("phase"), plane: byId("plane"), time: byId("time") };
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const mix = (a, b, share) => a.map((part, i) => part + (b[i] - part) * share);

/** The rectangle inside a canvas that two axes span, and the ways between values and pixels. */
function frame(canvas, x, y) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const left = 56, top = 12, w = width - left - 14, h = height - top - 38;
  const at = (axis, value) => (value - axis.low) / (axis.high - axis.low);
  return {
    canvas, left, top, w, h, x, y,
    px: (value) => left + at(x, value) * w,
    py: (value) => top + (1 - at(y, value)) * h,
    fromPx: (px) => x.low + (clamp((px - left) / w, 0, 1)) * (x.high - x.low),
    fromPy: (py) => y.low + (1 - clamp((py - top) / h, 0, 1)) * (y.high - y.low),
  };
}

/** An empty canvas, as sharp as the screen. */
function blank(canvas) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(canvas.clientWidth * scale);
  canvas.height = Math.round(canvas.clientHeight * scale);
  const ctx = canvas.getContext("2d");
  ctx.scale(scale, scale);
  ctx.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  return ctx;
}

function axesOf(f, ctx) {
  ctx.lineWidth = 1;
  ctx.strokeStyle = colour("--rule");
  ctx.fillStyle = colour("--soft");
  ctx.strokeRect(f.left, f.top, f.w, f.h);
  ctx.textAlign = "center";
  for (const [value, words] of f.x.ticks) ctx.fillText(words, f.px(value), f.top + f.h + 15);
  ctx.fillText(f.x.label, f.left + f.w / 2, f.top + f.h + 32);
  ctx.textAlign = "right";
  for (const [value, words] of f.y.ticks) ctx.fillText(words, f.left - 5, f.py(value) + 4);
  ctx.save();
  ctx.translate(11, f.top + f.h / 2);
  ctx.rotate(-Math.PI / 2);
  ctx.textAlign = "center";
  ctx.fillText(f.y.label, 0, 0);
  ctx.restore();
}

/** Paint inside the frame, then its axes around it. */
function paint(f, marks) {
  const ctx = blank(f.canvas);
  ctx.save();
  ctx.beginPath();
  ctx.rect(f.left, f.top, f.w, f.h);
  ctx.clip();
  marks(ctx);
  ctx.restore();
  axesOf(f, ctx);
  return ctx;
}

function ring(ctx, x, y) {
  for (const [style, width] of [[colour("--paper"), 6], [colour("--ink"), 3]]) {
    ctx.beginPath();
    ctx.arc(x, y, 8, 0, 2 * Math.PI);
    ctx.strokeStyle = style;
    ctx.lineWidth = width;
    ctx.stroke();
  }
}

/** Large numbers in few letters: 200000 is 2e5. */
const tick = (x) => (Math.abs(x) < 1e4 ? plain(x) : x.toExponential().replace("+", ""));

const DECADES = [-3, -2, -1, 0, 1].map((k) => [k, plain(10 ** k)]);
const phaseFrame = () =>
  frame(
    canvases.phase,
    { low: LOW, high: HIGH, ticks: DECADES, label: "teacher temperature τt" },
    { low: LOW, high: HIGH, ticks: DECADES, label: "student temperature τs" },
  );

function drawPhase() {
  const f = phaseFrame();
  const ctx = paint(f, (ctx) => {
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(mapImage(), f.left, f.top, f.w, f.h);
    for (const stopGradient of [true, false]) {
      const shift = Math.log10(boundOnStudent({ ...model, stopGradient }));
      if (!Number.isFinite(shift)) continue;
      const counts = stopGradient === model.stopGradient;
      for (const [style, width] of [[colour("--paper"), counts ? 6 : 3], [colour("--ink"), counts ? 3 : 1]]) {
        ctx.beginPath();
        ctx.setLineDash(stopGradient ? [] : [7, 5]);
        ctx.moveTo(f.px(LOW), f.py(LOW + shift));
        ctx.lineTo(f.px(HIGH), f.py(HIGH + shift));
        ctx.strokeStyle = style;
        ctx.lineWidth = width;
        ctx.stroke();
      }
    }
    ctx.setLineDash([]);
  });
  ring(ctx, ...marker(f));
  canvases.phase.setAttribute("aria-label",
    `Map of both temperatures. The marker is at τs = ${short(model.tauS)}, τt = ${short(model.tauT)}.`);
}

const marker = (f) => [f.px(model.tauT === 0 ? LOW : Math.log10(model.tauT)), f.py(Math.log10(model.tauS))];

function mapImage() {
  const image = document.createElement("canvas");
  image.width = image.height = CELLS;
  const ctx = image.getContext("2d");
  const data = ctx.createImageData(CELLS, CELLS);
  const [worse, same, better, flip, paper] =
    ["--worse", "--same", "--better", "--flip", "--paper"].map((name) => rgb(colour(name)));
  for (let row = 0; row < CELLS; row++) {
    for (let column = 0; column < CELLS; column++) {
      const v = map.values[row * CELLS + column];
      const c = Number.isNaN(v) ? paper : v === Infinity ? flip : mix(same, v < 0 ? worse : better, Math.abs(v));
      data.data.set([...c, 255], 4 * ((CELLS - 1 - row) * CELLS + column));
    }
  }
  ctx.putImageData(data, 0, 0);
  return image;
}

/** 1, 2, 5, 10, ...: the first that holds all of the path. */
function extent() {
  let most = 0.95;
  for (const y of path) if (Number.isFinite(y)) most = Math.max(most, Math.abs(y));
  const ten = 10 ** Math.floor(Math.log10(most * 1.05));
  return ten * [1, 2, 5, 10].find((m) => m * ten >= most * 1.05);
}

const even = (limit) => [-1, -0.5, 0, 0.5, 1].map((part) => [part * limit, tick(part * limit)]);
let held = null; // the plane's extent while its marker is dragged

const planeFrame = () => {
  const limit = held ?? extent();
  const axis = { low: -limit, high: limit, ticks: even(limit) };
  return frame(canvases.plane, { ...axis, label: "output y_k" }, { ...axis, label: "output y_l" });
};

function drawPlane() {
  const f = planeFrame();
  const [bs, bt] = [inverse(model.tauS), inverse(model.tauT)];
  const force = (y) => pull(y, bs, bt, model.stopGradient, model.q);
  const ctx = paint(f, (ctx) => {
    ctx.strokeStyle = colour("--soft");
    const count = 15, cell = f.w / count;
    for (let i = 0; i < count; i++) {
      for (let j = 0; j < count; j++) {
        const x = f.left + (i + 0.5) * cell, y = f.top + ((j + 0.5) * f.h) / count;
        arrow(ctx, x, y, force(f.fromPx(x)), -force(f.fromPy(y)), cell * 0.6);
      }
    }
    ctx.strokeStyle = colour("--path");
    ctx.lineWidth = 2.5;
    ctx.lineJoin = "round";
    ctx.beginPath();
    for (let i = 0; i < path.length; i += 2) ctx.lineTo(f.px(path[i]), f.py(path[i + 1]));
    ctx.stroke();
    ctx.fillStyle = colour("--ink");
    ctx.beginPath();
    ctx.arc(f.px(path.at(-2)), f.py(path.at(-1)), 5, 0, 2 * Math.PI);
    ctx.fill();
  });
  ring(ctx, f.px(model.start[0]), f.py(model.start[1]));
  canvases.plane.setAttribute("aria-label",
    `Path of the outputs from ${model.start.map(short).join(", ")} to ${[path.at(-2), path.at(-1)].map(short).join(", ")}.`);
}

function arrow(ctx, x, y, dx, dy, length) {
  const size = Math.hypot(dx, dy);
  if (size === 0) return;
  const u = (dx / size) * length, v = (dy / size) * length;
  ctx.globalAlpha = clamp(0.75 + Math.log10(size) / 8, 0.15, 0.9); // fainter where the pull is weak
  ctx.beginPath();
  ctx.moveTo(x - u / 2, y - v / 2);
  ctx.lineTo(x + u / 2, y + v / 2);
  ctx.lineTo(x + u * 0.15 + v * 0.2, y + v * 0.15 - u * 0.2);
  ctx.moveTo(x + u / 2, y + v / 2);
  ctx.lineTo(x + u * 0.15 - v * 0.2, y + v * 0.15 + u * 0.2);
  ctx.stroke();
  ctx.globalAlpha = 1;
}

function drawTime() {
  const limit = extent();
  const decades = [1, 10, 100, 1000, 10000].filter((n) => n <= model.steps);
  const f = frame(
    canvases.time,
    { low: 0, high: Math.log10(1 + model.steps), ticks: decades.map((n) => [Math.log10(1 + n), tick(n)]), label: "step" },
    { low: -limit, high: limit, ticks: even(limit), label: "output" },
  );
  paint(f, (ctx) => {
    ctx.strokeStyle = colour("--rule");
    ctx.beginPath();
    ctx.moveTo(f.left, f.py(0));
    ctx.lineTo(f.left + f.w, f.py(0));
    ctx.stroke();
    ctx.lineWidth = 2.5;
    ["--path", "--other"].forEach((name, point) => {
      ctx.strokeStyle = colour(name);
      ctx.beginPath();
      for (let step = 0; step <= model.steps; step++) {
        ctx.lineTo(f.px(Math.log10(1 + step)), f.py(path[2 * step + point]));
      }
      ctx.stroke();
    });
  });
  canvases.time.setAttribute("aria-label", `Both outputs over ${model.steps} steps. ${happened(model,
    outcome(model.start, [path.at(-2), path.at(-1)]))}`);
}

function draw() {
  drawPhase();
  drawPlane();
  drawTime();
}
