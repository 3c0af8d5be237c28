// The two-point model, step for step as acclimate.theory.simulate: points of norm 1 that do not
// overlap, the teacher copied after every step. Settings: tauS, tauT (0 is hard labels),
// stopGradient, lr, momentum, q, steps, start [y_k, y_l].
"use strict";

const HARD = 1e200;
const SHRINK = 0.1;
const LOOK = 50;
const REST = 1e-6;
const GROWN = 10;

const inverse = (tau) => (tau === 0 ? HARD : 1 / tau);

function sigmoid(z) {
  const e = Math.exp(-Math.abs(z));
  return (z >= 0 ? 1 : e) / (1 + e);
}

const logSigmoid = (z) => Math.min(z, 0) - Math.log1p(Math.exp(-Math.abs(z)));

function sigmoidDifference(a, b) {
  const ea = Math.exp(-Math.abs(a)), eb = Math.exp(-Math.abs(b));
  const sign = a === 0 ? Math.sign(b) : Math.sign(a);
  const same = Math.sign(a) * Math.sign(b) >= 0;
  return (sign * (same ? eb - ea : 1 - ea * eb)) / ((1 + ea) * (1 + eb));
}

/** Minus the loss's gradient on one output, for inverse temperatures. */
function pull(y, bs, bt, stop, q) {
  if (q === 0) {
    const hs = bs / 2, ht = bt / 2;
    const hard = Math.tanh(y * ht);
    const force = (hard - Math.tanh(y * hs)) * hs;
    return stop ? force : force + (1 - hard * hard) * y * (hs * ht);
  }
  const s = y * bs, t = y * bt;
  const yes = Math.exp(q * logSigmoid(s)), no = Math.exp(q * logSigmoid(-s));
  const weight = sigmoid(t) * yes + sigmoid(-t) * no;
  const force = bs * weight * sigmoidDifference(t + q * s, s);
  if (stop) return force;
  const e = Math.exp(-Math.abs(t)), size = Math.abs(s);
  const gap = (Math.exp(q * logSigmoid(size)) * -Math.expm1(-q * size)) / q;
  return force + bt * ((e / (1 + e) ** 2) * Math.sign(s) * gap);
}

/** Both outputs after every step: y_k, y_l of the start, then of step 1, ... */
function trajectory(m) {
  const bs = inverse(m.tauS), bt = inverse(m.tauT);
  const path = new Float64Array(2 * (m.steps + 1));
  for (let point = 0; point < 2; point++) {
    let y = m.start[point], v = 0;
    path[point] = y;
    for (let step = 1; step <= m.steps; step++) {
      v = v * m.momentum + pull(y, bs, bt, m.stopGradient, m.q);
      y += m.lr * v;
      path[2 * step + point] = y;
    }
  }
  return path;
}

/** Where one output ends; not computed on once it rests, or is far out and pulled further out. */
function settle(start, tauS, tauT, m) {
  const bs = inverse(tauS), bt = inverse(tauT);
  let y = start, v = 0;
  for (let step = 1; step <= m.steps; step++) {
    const force = pull(y, bs, bt, m.stopGradient, m.q);
    v = v * m.momentum + force;
    y += m.lr * v;
    if (step % LOOK === 0) {
      const pace = (m.lr * Math.max(Math.abs(v), Math.abs(force))) / (1 - m.momentum);
      if (pace * (m.steps - step) * bs < REST) break;
      if (Math.max(Math.abs(y), pace) < REST * Math.abs(start)) break;
      if (Math.abs(y) > GROWN * Math.abs(start) && y * force > 0 && y * v > 0) break;
    }
  }
  return y;
}

/** What became of the start. flipped: an output passed zero and is not near it; one: one vanished. */
function outcome(start, final) {
  const from = Math.max(Math.abs(start[0]), Math.abs(start[1]));
  const size = Math.max(Math.abs(final[0]), Math.abs(final[1]));
  const collapsed = size < SHRINK * from;
  const gone = [0, 1].map((i) => Math.abs(final[i]) < SHRINK * from);
  const flipped = [0, 1].some((i) => !gone[i] && Math.sign(final[i]) !== Math.sign(start[i]));
  const one = gone[0] !== gone[1] && [0, 1].some((i) => gone[i] && start[i] !== 0);
  return { collapsed, flipped, one, ratio: from > 0 ? size / from : 1 };
}

/** As Python's: below this share of the teacher's temperature zero attracts. */
const boundOnStudent = (m) => (1 - m.q) * (m.stopGradient ? 1 : 0.5);

const plain = (x) => String(Number(x.toPrecision(6)));
const short = (x) => String(Number(x.toPrecision(3)));

/** Proposition 1, in the words of acclimate.theory.will_collapse. */
function willCollapse(m) {
  const bound = boundOnStudent(m) * m.tauT;
  let method = m.stopGradient ? "pseudo-labels" : "entropy minimisation";
  let rule = m.stopGradient ? "τt" : "τt/2";
  if (m.q) {
    method += ` with q = ${plain(m.q)}`;
    rule = `(1 - q) ${rule}`;
  }
  const below = m.tauS < bound;
  const where = m.tauS === bound ? "on the line, not below it:" : "not below";
  const reason = below
    ? `${method} need τs > ${rule}: τs = ${plain(m.tauS)} is below ${rule} = ${plain(bound)}`
    : `τs = ${plain(m.tauS)} is ${where} ${rule} = ${plain(bound)}`;
  return { collapses: below, reason };
}

/** Whether a step from somewhere between zero and the start would pass zero. */
function overshoots(m) {
  const bs = inverse(m.tauS), bt = inverse(m.tauT);
  const reach = m.lr / (1 - m.momentum);
  for (const start of m.start.map(Math.abs)) {
    for (let part = 1; part <= 20; part++) {
      const y = (start * part) / 20;
      if (y > 0 && reach * -pull(y, bs, bt, m.stopGradient, m.q) > y) return true;
    }
  }
  return false;
}

/** What the proposition says, what the run did, and why where the two differ. */
function explain(m, path) {
  const final = [path[2 * m.steps], path[2 * m.steps + 1]];
  const end = outcome(m.start, final);
  const rule = willCollapse(m);
  const onLine = m.tauS === boundOnStudent(m) * m.tauT;
  const says = rule.collapses ? "Proposition 1 predicts collapse" :
    onLine ? "Proposition 1 says nothing" : "Proposition 1: no collapse";
  return `${says}, since ${rule.reason}. ${happened(m, end)}${reasons(m, rule.collapses, end)}`;
}

function happened(m, end) {
  const after = `After ${m.steps.toLocaleString("en")} steps`;
  if (m.start[0] === 0 && m.start[1] === 0) return "The start is zero, from where nothing moves.";
  if (end.collapsed) return `${after} both outputs have vanished: the model has collapsed.`;
  if (end.flipped) return `${after} an output is on the wrong side of zero.`;
  const times = `${short(end.ratio)} times the start`;
  if (end.one) return `${after} one output has vanished, and the other is ${times}.`;
  if (Math.abs(end.ratio - 1) < 0.01) return `${after} the outputs are where they were.`;
  if (end.ratio > 1) return `${after} the larger output is ${times}: the model has become more confident.`;
  return `${after} the larger output is ${times}, on its way to zero.`;
}

function reasons(m, predicted, end) {
  const still = Math.abs(end.ratio - 1) < 0.01 && !end.flipped;
  const [bs, bt] = [inverse(m.tauS), inverse(m.tauT)];
  if (predicted === end.collapsed && !end.flipped) {
    if (m.tauS === boundOnStudent(m) * m.tauT && still && m.stopGradient) {
      return " On the line student and teacher say the same, so nothing pulls.";
    }
    const slow = " The pull is too weak to be seen in this time.";
    return !predicted && still && (m.start[0] || m.start[1]) ? slow : "";
  }
  const outward = m.start.some((y) => y * pull(y, bs, bt, m.stopGradient, m.q) > 0);
  if (predicted && !end.flipped && !m.stopGradient && outward) {
    return " Without stop-gradient zero attracts only from near by, and this start is too far out.";
  }
  const saturated = Math.max(...m.start.map(Math.abs)) > 8 * Math.max(m.tauS, m.tauT);
  if (still && saturated) return " So far out both sigmoids are saturated: next to no pull is left.";
  if (!still && overshoots(m)) {
    return " The steps are too long: they jump over zero, which the proposition's flow cannot.";
  }
  return " It takes longer than this: more steps, or a higher learning rate, would show it.";
}

if (typeof module !== "undefined") {
  module.exports = { explain, outcome, overshoots, pull, settle, trajectory, willCollapse };
}
