// Inputs and dragging to settings, settings to path, sentence and map. model.js computes,
// drawing.js draws.
"use strict";

const PRESETS = {
  entropy: { tauS: 1, tauT: 1, stopGradient: false },
  hard: { tauS: 1, tauT: 0, stopGradient: true },
  equal: { tauS: 1, tauT: 1, stopGradient: true },
  collapses: { tauS: 0.4, tauT: 1, stopGradient: true },
  robust: { tauS: 0.4, tauT: 1, stopGradient: true, q: 0.8 },
};
const BASE = { q: 0, lr: 0.1, momentum: 0.9, steps: 2000, start: [0.5, -0.5] };

let model = { ...BASE, ...PRESETS.collapses };
let path = trajectory(model);
let map = { key: "", values: null, done: true, ms: 0 };

// ---- inputs ----

const power = (x, digits) => Number((10 ** x).toPrecision(digits));

/** A slider's number as the setting it stands for, and back. */
const INPUTS = {
  tauS: { read: (x) => power(x, 3), show: Math.log10, words: short },
  tauT: {
    read: (x) => (x < LOW ? 0 : power(x, 3)),
    show: (t) => (t === 0 ? LOW - 0.01 : Math.log10(t)),
    words: (t) => (t === 0 ? "0 (hard labels)" : short(t)),
  },
  q: { read: Number, show: Number, words: (q) => (q === 0 ? "0 (cross-entropy)" : short(q)) },
  lr: { read: (x) => power(x, 2), show: Math.log10, words: short },
  momentum: { read: Number, show: Number, words: short },
  steps: { read: (x) => power(x, 2), show: Math.log10, words: (n) => n.toLocaleString("en") },
  yk: { read: Number, show: Number, words: short },
  yl: { read: Number, show: Number, words: short },
};

const setting = (id) => (id === "yk" ? model.start[0] : id === "yl" ? model.start[1] : model[id]);

function showInputs() {
  for (const [id, { read, show, words }] of Object.entries(INPUTS)) {
    const value = setting(id);
    // Only if it stands for another value: a slider keeps the place it was put.
    if (read(Number(byId(id).value)) !== value) byId(id).value = show(value);
    byId(id).setAttribute("aria-valuetext", words(value));
    document.querySelector(`output[for=${id}]`).value = words(value);
  }
  byId("stopGradient").checked = model.stopGradient;
  for (const button of document.querySelectorAll("[data-preset]")) {
    const same = JSON.stringify(withPreset(button.dataset.preset)) === JSON.stringify(sorted(model));
    button.setAttribute("aria-pressed", same);
  }
}

const sorted = (m) => Object.fromEntries(Object.entries(m).sort(([a], [b]) => (a < b ? -1 : 1)));
const withPreset = (name) => sorted({ ...BASE, ...PRESETS[name] });

function change(part) {
  model = { ...model, ...part };
  path = trajectory(model);
  update();
}

function update() {
  showInputs();
  const end = outcome(model.start, [path.at(-2), path.at(-1)]);
  byId("sentence").textContent = explain(model, path);
  byId("sentence").dataset.end = end.collapsed ? "collapsed" : end.flipped ? "flipped" : "kept";
  startMap();
  draw();
}

for (const [id, { read }] of Object.entries(INPUTS)) {
  byId(id).addEventListener("input", (event) => {
    const value = read(Number(event.target.value));
    if (id === "yk") change({ start: [value, model.start[1]] });
    else if (id === "yl") change({ start: [model.start[0], value] });
    else change({ [id]: value });
  });
}
byId("stopGradient").addEventListener("input", (e) => change({ stopGradient: e.target.checked }));
for (const button of document.querySelectorAll("[data-preset]")) {
  button.addEventListener("click", () => change(withPreset(button.dataset.preset)));
}
byId("controls").addEventListener("submit", (event) => event.preventDefault());

// ---- the map, computed in slices so that sliders never wait for it ----

function startMap() {
  const { tauS, tauT, ...rest } = model;
  const key = JSON.stringify(sorted(rest));
  if (key === map.key) return;
  map = { key, values: new Float64Array(CELLS * CELLS).fill(NaN), done: false, ms: 0 };
  const mine = map;
  // Every third cell first, in blocks of nine, then all of them.
  const order = [];
  for (const stride of [3, 1]) {
    for (let row = 0; row < CELLS; row += stride) {
      for (let column = 0; column < CELLS; column += stride) order.push([row, column, stride]);
    }
  }
  let next = 0;
  const slice = () => {
    if (mine !== map) return;
    const began = performance.now();
    while (next < order.length && performance.now() - began < 10) mapCell(mine, ...order[next++]);
    mine.ms += performance.now() - began;
    mine.done = next === order.length;
    drawPhase();
    if (!mine.done) setTimeout(slice, 0);
  };
  slice();
}

const temperature = (cell) => 10 ** (LOW + ((HIGH - LOW) * (cell + 0.5)) / CELLS);

function mapCell(to, row, column, stride) {
  const middle = (stride - 1) / 2;
  const tauS = temperature(row + middle), tauT = temperature(column + middle);
  const [k, l] = model.start;
  const first = settle(Math.abs(k), tauS, tauT, model);
  // The model is odd and its points do not meet: |y| is all that counts.
  const second = Math.abs(k) === Math.abs(l) ? first : settle(Math.abs(l), tauS, tauT, model);
  const end = outcome([Math.abs(k), Math.abs(l)], [first, second]);
  const value = end.flipped ? Infinity : end.collapsed ? -1 : clamp(Math.log10(end.ratio), -1, 1);
  for (let i = row; i < row + stride; i++) {
    for (let j = column; j < column + stride; j++) to.values[i * CELLS + j] = value;
  }
}

// ---- dragging ----

/** The mouse drags from anywhere; a finger only from the marker, so that the page still scrolls. */
function draggable(canvas, frameOf, markerOf, moveTo) {
  let dragging = false, dragged = false;
  const near = (x, y) => {
    const f = frameOf(), [mx, my] = markerOf(f), box = canvas.getBoundingClientRect();
    return Math.hypot(x - box.left - mx, y - box.top - my) < 32;
  };
  const move = (event) => {
    const box = canvas.getBoundingClientRect();
    moveTo(frameOf(), event.clientX - box.left, event.clientY - box.top);
  };
  canvas.addEventListener("touchstart", (event) => {
    const [touch] = event.touches;
    if (near(touch.clientX, touch.clientY)) event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    dragged = dragging = event.pointerType === "mouse" || near(event.clientX, event.clientY);
    if (!dragging) return;
    held = extent();
    canvas.setPointerCapture(event.pointerId);
    move(event);
  });
  canvas.addEventListener("pointermove", (event) => dragging && move(event));
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      dragging = false;
      held = null;
      draw();
    });
  }
  canvas.addEventListener("click", (event) => dragged || move(event)); // a tap away from the marker
}

draggable(canvases.phase, phaseFrame, marker, (f, x, y) => {
  const hard = x < f.left - 4;
  change({ tauS: power(f.fromPy(y), 3), tauT: hard ? 0 : power(f.fromPx(x), 3) });
});
draggable(canvases.plane, planeFrame, (f) => [f.px(model.start[0]), f.py(model.start[1])], (f, x, y) => {
  const round = (value) => clamp(Number(value.toFixed(2)), -5, 5);
  change({ start: [round(f.fromPx(x)), round(f.fromPy(y))] });
});

window.addEventListener("resize", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
update();

// On a phone the words would push the sliders off the screen.
if (window.innerWidth < 600) document.querySelector(".words").open = false;
