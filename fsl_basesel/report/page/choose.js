// Greedy and swaps in the page: the same choice, class by class, as fsl_basesel makes in Python.
// @ts-check
"use strict";

/**
 * What is chosen from. Sums run over novel classes in the order of `fsl_basesel/topk.py`.
 * @typedef {Object} Problem
 * @property {number} candidates how many
 * @property {number} rows how many novel classes
 * @property {Float32Array} similarity of candidate u and novel class n at `u * rows + n`
 * @property {Float64Array} weights what each novel class counts, 1 in the mean
 * @property {Float64Array} means mean similarity of each candidate
 * @property {Float64Array | null} cost of each candidate
 * @property {number[]} selected classes that are there already
 * @property {number} k
 * @property {number} lam
 * @property {number} mu
 * @property {number} floor
 */

/**
 * What a choice has to keep to.
 * @typedef {Object} Limits
 * @property {number} m
 * @property {number[]} exclude
 * @property {number[]} include
 */

/**
 * The best chosen classes of each novel class, best first: `[rows, depth]`, -1 for none.
 * @typedef {{ depth: number, value: Float64Array, index: Int32Array }} State
 */

const ROWS = 256; // novel classes whose terms are added up before the blocks are
const LANES = 64; // partial sums within a block
const TOLERANCE = 1e-12; // what rounding may make of a sum
const PASSES = 100; // looks over all candidates for an exchange, at most
const lanes = new Float64Array(LANES);

/** @param {Problem} problem */
const depthOf = (problem) => Math.min(problem.k, problem.candidates);

/**
 * What each class costs whatever else is in: the lambda and mu terms of the objective.
 * @param {Problem} problem
 * @param {number} m
 */
const modularOf = (problem, m) => {
  const { candidates, selected, lam, mu, cost, means } = problem;
  const share = lam / Math.max(1, selected.length + m);
  const there = new Set(selected);
  const modular = new Float64Array(candidates);
  for (let u = 0; u < candidates; u++) {
    if (share) modular[u] = share * means[u];
    if (cost && mu && !there.has(u)) modular[u] += mu * cost[u];
  }
  return modular;
};

/**
 * Bring candidate `u` into a state; equal similarities are ordered by number.
 * @param {Problem} problem
 * @param {State} state
 * @param {number} u
 */
const insert = ({ similarity, rows }, { depth, value, index }, u) => {
  const last = depth - 1;
  for (let n = 0; n < rows; n++) {
    const found = similarity[u * rows + n];
    const row = n * depth;
    let at = row + last;
    if (found < value[at] || (found === value[at] && index[at] > -1 && index[at] < u)) continue;
    while (
      at > row &&
      (found > value[at - 1] || (found === value[at - 1] && !(index[at - 1] > -1 && index[at - 1] < u)))
    ) {
      value[at] = value[at - 1];
      index[at] = index[at - 1];
      at--;
    }
    value[at] = found;
    index[at] = u;
  }
};

/**
 * Take candidate `v` out of a state; `members` are those that stay.
 * @param {Problem} problem
 * @param {State} state
 * @param {number} v
 * @param {number[]} members
 */
const remove = ({ similarity, rows, floor }, { depth, value, index }, v, members) => {
  for (let n = 0; n < rows; n++) {
    const row = n * depth;
    const last = row + depth - 1;
    let at = row;
    while (at <= last && index[at] !== v) at++;
    if (at > last) continue;
    for (; at < last; at++) {
      value[at] = value[at + 1];
      index[at] = index[at + 1];
    }
    value[last] = floor;
    index[last] = -1;
    if (last > row && index[last - 1] === -1) continue; // the row already lists every member
    let best = floor;
    let who = -1;
    for (const u of members) {
      const found = similarity[u * rows + n];
      if (found < best || (found === best && who > -1 && who < u)) continue;
      let listed = false;
      for (let j = row; j < last; j++) listed ||= index[j] === u;
      if (!listed) [best, who] = [found, u];
    }
    value[last] = best;
    index[last] = who;
  }
};

/**
 * The state in which exactly `members` are in.
 * @param {Problem} problem
 * @param {number[]} members
 * @param {number} depth
 * @returns {State}
 */
const stateOf = (problem, members, depth) => {
  const size = problem.rows * depth;
  const state = {
    depth,
    value: new Float64Array(size).fill(problem.floor),
    index: new Int32Array(size).fill(-1),
  };
  for (const u of members) insert(problem, state, u);
  return state;
};

/**
 * The `place`-th best value of every novel class, from 0.
 * @param {State} state
 * @param {number} place
 */
const valuesAt = ({ depth, value }, place) => {
  const found = new Float64Array(value.length / depth);
  for (let n = 0; n < found.length; n++) found[n] = value[n * depth + place];
  return found;
};

/**
 * What candidate `u` would add to the sums of all novel classes, given their k-th values.
 * @param {Problem} problem
 * @param {number} u
 * @param {Float64Array} kth
 */
const excess = ({ similarity, rows, weights }, u, kth) => {
  let sum = 0;
  for (let start = 0; start < rows; start += ROWS) {
    const stop = Math.min(start + ROWS, rows);
    const whole = stop - ((stop - start) % LANES);
    lanes.fill(0);
    for (let first = start; first < whole; first += LANES) {
      for (let lane = 0; lane < LANES; lane++) {
        const n = first + lane;
        const above = similarity[u * rows + n] - kth[n];
        if (above > 0) lanes[lane] += weights[n] * above;
      }
    }
    for (let half = LANES / 2; half >= 1; half /= 2) {
      for (let lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
    }
    let total = lanes[0];
    for (let n = whole; n < stop; n++) {
      const above = similarity[u * rows + n] - kth[n];
      if (above > 0) total += weights[n] * above;
    }
    sum += total;
  }
  return sum;
};

/**
 * h of base classes, those that were there before included.
 * @param {Problem} problem
 * @param {number[]} members
 * @param {Float64Array} modular
 */
const valueOf = (problem, members, modular) => {
  const depth = depthOf(problem);
  const { value } = stateOf(problem, members, depth);
  let sum = 0;
  for (let n = 0; n < problem.rows; n++) {
    let row = 0;
    for (let j = 0; j < depth; j++) row += value[n * depth + j];
    sum += problem.weights[n] * row;
  }
  const top = sum / problem.rows / problem.k + (problem.floor * (problem.k - depth)) / problem.k;
  return members.reduce((left, u) => left - modular[u], top);
};

/**
 * Greedy picks for one K, from a state, which changes; ends early where no class adds anything.
 * @param {Problem} problem
 * @param {State} state
 * @param {number[]} candidates ascending
 * @param {number} count
 * @param {Float64Array} modular
 */
const pick = (problem, state, candidates, count, modular) => {
  const least = modular.some((price) => price !== 0) ? -Infinity : 0;
  const scale = problem.rows * problem.k;
  const bound = new Float64Array(problem.candidates).fill(-Infinity);
  const exactAt = new Int32Array(problem.candidates); // the pick at which a bound was exact
  const picks = [];
  let kth = valuesAt(state, state.depth - 1);
  for (const u of candidates) bound[u] = excess(problem, u, kth) / scale - modular[u];
  while (picks.length < count) {
    let best = -1;
    for (;;) {
      best = candidates[0];
      for (const u of candidates) if (bound[u] > bound[best]) best = u;
      if (exactAt[best] === picks.length) break;
      bound[best] = excess(problem, best, kth) / scale - modular[best];
      exactAt[best] = picks.length;
    }
    if (bound[best] <= least) break;
    picks.push(best);
    bound[best] = -Infinity;
    insert(problem, state, best);
    kth = valuesAt(state, state.depth - 1);
  }
  return picks;
};

/**
 * The (k+1)-th value of every novel class over `members`, given the k-th.
 * @param {Problem} problem
 * @param {number[]} members
 * @param {number} k
 * @param {Float64Array} kth
 */
const nextValues = ({ similarity, rows, floor }, members, k, kth) => {
  const found = new Float64Array(rows).fill(floor);
  for (let n = 0; n < rows; n++) {
    let reached = 0;
    for (const u of members) {
      const one = similarity[u * rows + n];
      if (one >= kth[n]) reached++;
      else if (one > found[n]) found[n] = one;
    }
    if (reached > k) found[n] = kth[n]; // some are equal
  }
  return found;
};

/**
 * `count` greedy picks after `members`: by the objective while a class adds something, then by the
 * same objective with a larger K.
 * @param {Problem} problem
 * @param {number[]} members
 * @param {number[]} candidates ascending
 * @param {number} count
 * @param {Float64Array} modular
 */
const extend = (problem, members, candidates, count, modular) => {
  let k = depthOf(problem);
  const state = stateOf(problem, members, k);
  let picks = pick(problem, state, candidates, count, modular);
  let kth = valuesAt(state, k - 1);
  const left = () => candidates.filter((u) => !picks.includes(u));
  for (; picks.length < count && k <= members.length + picks.length; k++) {
    const value = nextValues(problem, [...members, ...picks], k, kth);
    const next = { depth: 1, value, index: new Int32Array(problem.rows).fill(-1) };
    picks = picks.concat(pick(problem, next, left(), count - picks.length, modular));
    kth = value;
  }
  return picks.concat(left()).slice(0, count);
};

/**
 * Exchange members from position `first` on while one exchange raises h; says whether any did.
 * @param {Problem} problem
 * @param {number[]} members changes
 * @param {number} first
 * @param {number[]} outside changes
 * @param {Float64Array} modular
 */
const exchange = (problem, members, first, outside, modular) => {
  const { similarity, rows, weights } = problem;
  const k = depthOf(problem);
  const scale = rows * problem.k;
  const state = stateOf(problem, members, k + 1);
  const { depth, value, index } = state;
  const kth = valuesAt(state, k - 1);
  const gains = outside.map((u) => excess(problem, u, kth) / scale);
  const top = valueOf(problem, members, new Float64Array(problem.candidates));
  const tolerance = TOLERANCE * Math.max(1e-300, ...gains, Math.abs(top));
  const where = new Int32Array(problem.candidates).fill(-1); // position among `members`
  for (const [position, u] of members.entries()) where[u] = position;
  const blocks = Math.ceil(rows / ROWS);
  const width = members.length + 1;
  const parts = new Float64Array(blocks * width); // sums of the blocks of novel classes
  const added = () => {
    const sums = parts.slice(0, width);
    for (let block = 1; block < blocks; block++) {
      for (let j = 0; j < width; j++) sums[j] += parts[block * width + j];
    }
    return sums;
  };
  const losses = () => {
    parts.fill(0);
    for (let n = 0; n < rows; n++) {
      const block = Math.floor(n / ROWS) * width;
      for (let j = n * depth; j < n * depth + k; j++) {
        if (index[j] >= 0) parts[block + where[index[j]]] += weights[n] * (value[j] - value[n * depth + k]);
      }
    }
    return added();
  };
  /** What `u` saves of each member's loss; the last entry is what it adds. */
  const prices = (u) => {
    parts.fill(0);
    for (let n = 0; n < rows; n++) {
      const found = similarity[u * rows + n];
      const row = n * depth;
      const following = value[row + k];
      if (found <= following) continue;
      const block = Math.floor(n / ROWS) * width;
      const last = value[row + k - 1];
      if (found > last) parts[block + width - 1] += weights[n] * (found - last);
      const kept = weights[n] * (Math.min(found, last) - following);
      for (let j = row; j < row + k && index[j] >= 0; j++) parts[block + where[index[j]]] += kept;
    }
    return added();
  };
  let lost = losses();
  let swaps = 0;
  for (let idle = 0, visits = 0; idle < outside.length && visits < PASSES * outside.length; visits++) {
    const at = visits % outside.length;
    const u = outside[at];
    const price = prices(u);
    let best = 0;
    let out = -1;
    for (let j = first; j < members.length; j++) {
      const v = members[j];
      const change = (price[width - 1] + price[j] - lost[j]) / scale - modular[u] + modular[v];
      const rounding = tolerance + TOLERANCE * (Math.abs(modular[u]) + Math.abs(modular[v]));
      if (change > best && change > rounding) [best, out] = [change, j];
    }
    idle++;
    if (out < 0) continue;
    const v = members[out];
    [members[out], outside[at]] = [u, v];
    [where[v], where[u]] = [-1, out];
    insert(problem, state, u);
    remove(problem, state, v, members);
    lost = losses();
    swaps++;
    idle = 0;
  }
  return swaps > 0;
};

/**
 * The choice under limits, in greedy order.
 * @param {Problem} problem
 * @param {Limits} limits
 * @returns {number[]}
 */
const choose = (problem, limits) => {
  const taken = new Set([...problem.selected, ...limits.exclude, ...limits.include]);
  const candidates = [];
  for (let u = 0; u < problem.candidates; u++) if (!taken.has(u)) candidates.push(u);
  const modular = modularOf(problem, limits.m);
  const start = [...problem.selected, ...limits.include];
  const count = Math.min(limits.m - limits.include.length, candidates.length);
  const chosen = extend(problem, start, candidates, count, modular);
  const before = [...start, ...chosen];
  const members = [...before];
  const inside = new Set(chosen);
  const outside = candidates.filter((u) => !inside.has(u));
  const better =
    chosen.length > 0 &&
    outside.length > 0 &&
    exchange(problem, members, start.length, outside, modular) &&
    valueOf(problem, members, modular) > valueOf(problem, before, modular);
  const found = (better ? members : before).slice(problem.selected.length);
  if (!better && !limits.include.length) return found;
  const ascending = found.sort((a, b) => a - b);
  return extend(problem, problem.selected, ascending, ascending.length, modular);
};

globalThis.chooser = { choose, depthOf, excess, insert, modularOf, stateOf, valueOf, valuesAt };
