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
 * What a choice has to keep to, as `fsl_basesel/limits.py` has it.
 * @typedef {Object} Limits
 * @property {number} m most classes to choose
 * @property {number[]} exclude cannot be chosen
 * @property {number[]} include must be chosen
 * @property {number} [budget] what the choice may cost; then it may have fewer than m classes
 * @property {ArrayLike<number>} [group] number of each candidate's group, the last one without limits
 * @property {number[]} [most] classes of each group that may be chosen
 * @property {number[]} [least] classes of each group that must be chosen
 */

/**
 * The best chosen classes of each novel class, best first: `[rows, depth]`, -1 for none.
 * @typedef {{ depth: number, value: Float64Array, index: Int32Array }} State
 */

const ROWS = 256; // novel classes whose terms are added up before the blocks are
const LANES = 64; // partial sums within a block
const TOLERANCE = 1e-12; // what rounding may make of a sum, and what a budget may be exceeded by
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
  const column = u * rows;
  for (let start = 0; start < rows; start += ROWS) {
    const stop = Math.min(start + ROWS, rows);
    const whole = stop - ((stop - start) % LANES);
    for (let lane = 0; lane < LANES; lane++) {
      let part = 0;
      for (let n = start + lane; n < whole; n += LANES) {
        const above = similarity[column + n] - kth[n];
        if (above > 0) part += weights[n] * above;
      }
      lanes[lane] = part;
    }
    for (let half = LANES / 2; half >= 1; half /= 2) {
      for (let lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
    }
    let total = lanes[0];
    for (let n = whole; n < stop; n++) {
      const above = similarity[column + n] - kth[n];
      if (above > 0) total += weights[n] * above;
    }
    sum += total;
  }
  return sum;
};

/**
 * The sum of `count` numbers from `start` on, in numpy's order of additions.
 * @param {ArrayLike<number>} values
 * @param {number} [start]
 * @param {number} [count]
 * @returns {number}
 */
const sum = (values, start = 0, count = values.length) => {
  if (count > 128) {
    const half = Math.floor(count / 2) - (Math.floor(count / 2) % 8);
    return sum(values, start, half) + sum(values, start + half, count - half);
  }
  let total = 0;
  let at = 0;
  if (count >= 8) {
    const r = Array.from({ length: 8 }, (_, lane) => values[start + lane]);
    for (at = 8; at < count - (count % 8); at += 8) {
      for (let lane = 0; lane < 8; lane++) r[lane] += values[start + at + lane];
    }
    total = r[0] + r[1] + (r[2] + r[3]) + (r[4] + r[5] + (r[6] + r[7]));
  }
  for (; at < count; at++) total += values[start + at];
  return total;
};

const ascending = (/** @type {Iterable<number>} */ values) => Float64Array.from(values).sort();

/**
 * h of base classes, those that were there before included.
 * @param {Problem} problem
 * @param {number[]} members
 * @param {Float64Array} modular
 */
const valueOf = (problem, members, modular) => {
  const { rows, k, floor, weights } = problem;
  const depth = depthOf(problem);
  const { value } = stateOf(problem, members, depth);
  const perRow = weights.map((weight, n) => weight * sum(value, n * depth, depth));
  let all = 0;
  for (let start = 0; start < rows; start += ROWS) {
    all += sum(perRow, start, Math.min(ROWS, rows - start));
  }
  const top = all / rows / k + (floor * (k - depth)) / k;
  return top - sum(ascending(members.map((u) => modular[u])));
};

/**
 * A heap of candidates: the largest bound first, the lowest number where bounds are equal.
 * @param {Int32Array} heap changes
 * @param {number} size
 * @param {Float64Array} bound
 * @param {number} at where to begin
 */
const siftDown = (heap, size, bound, at) => {
  const u = heap[at];
  const mine = bound[u];
  for (let child = 2 * at + 1; child < size; child = 2 * at + 1) {
    let next = heap[child];
    const other = child + 1 < size ? heap[child + 1] : next;
    if (bound[other] > bound[next] || (bound[other] === bound[next] && other < next)) {
      next = other;
      child++;
    }
    if (!(bound[next] > mine || (bound[next] === mine && next < u))) break;
    heap[at] = next;
    at = child;
  }
  heap[at] = u;
};

/**
 * What depends on the problem alone: what each candidate adds to those that were there before, and
 * the largest similarity.
 * @type {WeakMap<Problem, { alone: Float64Array, peak: number }>}
 */
const known = new WeakMap();

/** @param {Problem} problem */
const knownOf = (problem) => {
  let found = known.get(problem);
  if (!found) {
    const kth = valuesAt(stateOf(problem, problem.selected, depthOf(problem)), depthOf(problem) - 1);
    const alone = new Float64Array(problem.candidates);
    for (let u = 0; u < problem.candidates; u++) alone[u] = excess(problem, u, kth);
    found = { alone, peak: problem.similarity.reduce((a, b) => Math.max(a, b), problem.floor) };
    known.set(problem, found);
  }
  return found;
};

/** What may still be added to a choice; it keeps to the limits whatever is added in turn. */
class Remaining {
  /**
   * @param {Problem} problem
   * @param {Limits} limits
   * @param {number[]} candidates
   * @param {number[]} chosen
   */
  constructor(problem, limits, candidates, chosen) {
    this.limits = limits;
    this.cost = problem.cost || new Float64Array(problem.candidates).fill(1);
    this.most = limits.most || [Infinity];
    this.least = limits.least || [0];
    this.counts = this.least.map(() => 0);
    /** @type {number[]} */
    this.chosen = [];
    this.spent = 0;
    this.cheapest = [...candidates].sort((a, b) => this.cost[a] - this.cost[b]);
    for (const u of chosen) this.add(u);
  }

  /** @param {number} u */
  groupOf(u) {
    return this.limits.group ? this.limits.group[u] : 0;
  }

  /** How many classes of each group are still missing. */
  needs() {
    return this.least.map((least, g) => Math.max(least - this.counts[g], 0));
  }

  /** @param {number} cost */
  affords(cost) {
    return this.limits.budget === undefined || cost <= this.limits.budget * (1 + TOLERANCE);
  }

  /** Whether `u` can be added; once it cannot, it never can. */
  fits(/** @type {number} */ u) {
    const group = this.groupOf(u);
    if (this.counts[group] >= this.most[group]) return false;
    const needs = this.needs();
    needs[group] = Math.max(0, needs[group] - 1);
    if (this.chosen.length + 1 + needs.reduce((a, b) => a + b) > this.limits.m) return false;
    if (this.limits.budget === undefined) return true;
    let reserve = 0;
    for (const [g, need] of needs.entries()) {
      if (!need) continue;
      const free = this.cheapest.filter((v) => v !== u && this.groupOf(v) === g && !this.chosen.includes(v));
      reserve += free.slice(0, need).reduce((total, v) => total + this.cost[v], 0);
    }
    return this.affords(this.spent + this.cost[u] + reserve);
  }

  add(/** @type {number} */ u) {
    this.chosen.push(u);
    this.counts[this.groupOf(u)] += 1;
    this.spent = sum(ascending(this.chosen.map((v) => this.cost[v])));
  }
}

/**
 * Greedy picks for one K, from a state, which changes; ends early where no class adds anything.
 * Gains never grow, so old ones are upper bounds: only those that come first are computed again.
 * @param {Problem} problem
 * @param {State} state
 * @param {number[]} candidates
 * @param {number} count
 * @param {Float64Array} modular
 * @param {{ room?: Remaining, price?: Float64Array, least?: number, alone?: Float64Array }} [options]
 *   what limits allow, what gains are divided by, what they have to exceed, what each class adds to
 *   the state if that is known
 */
const pick = (problem, state, candidates, count, modular, { room, price, least, alone } = {}) => {
  const threshold = least ?? (modular.some((one) => one !== 0) ? -Infinity : 0);
  const scale = problem.rows * problem.k;
  const bound = new Float64Array(problem.candidates);
  const exactAt = new Int32Array(problem.candidates); // the pick at which a bound was exact
  /** @type {number[]} */
  const picks = [];
  let kth = valuesAt(state, state.depth - 1);
  const worth = (/** @type {number} */ u, /** @type {number} */ adds) => {
    const gain = adds / scale - modular[u];
    return price ? gain / price[u] : gain;
  };
  for (const u of candidates) bound[u] = worth(u, alone ? alone[u] : excess(problem, u, kth));
  const heap = Int32Array.from(candidates);
  let size = heap.length;
  for (let at = size >> 1; at-- > 0; ) siftDown(heap, size, bound, at);
  while (picks.length < count && size) {
    while (exactAt[heap[0]] < picks.length) {
      bound[heap[0]] = worth(heap[0], excess(problem, heap[0], kth));
      exactAt[heap[0]] = picks.length;
      siftDown(heap, size, bound, 0);
    }
    const best = heap[0];
    if (bound[best] <= threshold) break;
    size--;
    if (size) {
      heap[0] = heap[size];
      siftDown(heap, size, bound, 0);
    }
    if (room && !room.fits(best)) continue;
    if (room) room.add(best);
    picks.push(best);
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
 * @param {Remaining} [room]
 */
const extend = (problem, members, candidates, count, modular, room) => {
  let k = depthOf(problem);
  const state = stateOf(problem, members, k);
  const alone = members.length === problem.selected.length ? knownOf(problem).alone : undefined;
  let picks = pick(problem, state, candidates, count, modular, { room, alone });
  let kth = valuesAt(state, k - 1);
  const left = () => {
    const taken = new Set(picks);
    return candidates.filter((u) => !taken.has(u));
  };
  for (; picks.length < count && k <= members.length + picks.length; k++) {
    const value = nextValues(problem, [...members, ...picks], k, kth);
    const next = { depth: 1, value, index: new Int32Array(problem.rows).fill(-1) };
    picks = picks.concat(pick(problem, next, left(), count - picks.length, modular, { room }));
    kth = value;
  }
  for (const u of left()) {
    if (picks.length === count) break;
    if (room && !room.fits(u)) continue;
    if (room) room.add(u);
    picks.push(u);
  }
  return picks;
};

/**
 * Members in the order in which greedy would add them.
 * @param {Problem} problem
 * @param {number[]} members
 * @param {Float64Array} modular
 */
const inOrder = (problem, members, modular) => {
  const sorted = [...members].sort((a, b) => a - b);
  return extend(problem, problem.selected, sorted, sorted.length, modular);
};

/**
 * `chosen` with what greedy adds to it within the limits; with a budget only what gains something,
 * and what groups must have.
 * @param {Problem} problem
 * @param {Limits} limits
 * @param {number[]} chosen
 * @param {number[]} available
 * @param {Float64Array} modular
 * @param {boolean} [perCost] go by gain per cost
 */
const fill = (problem, limits, chosen, available, modular, perCost = false) => {
  const inside = new Set(chosen);
  const candidates = available.filter((u) => !inside.has(u));
  const room = new Remaining(problem, limits, candidates, chosen);
  const members = [...problem.selected, ...chosen];
  const count = limits.m - chosen.length;
  if (limits.budget === undefined) {
    return chosen.concat(extend(problem, members, candidates, count, modular, room));
  }
  let price;
  if (perCost) {
    // What is free comes first.
    const least = Math.min(...room.cost.filter((one) => one > 0), 1);
    price = room.cost.map((one) => (one > 0 ? one : 1e-3 * least));
  }
  const state = stateOf(problem, members, depthOf(problem));
  const alone = chosen.length ? undefined : knownOf(problem).alone;
  let picks = pick(problem, state, candidates, count, modular, { room, price, least: 0, alone });
  for (let needs = room.needs(); needs.some(Boolean); needs = room.needs()) {
    const left = candidates.filter((u) => needs[room.groupOf(u)] > 0 && !picks.includes(u));
    const more = pick(problem, state, left, 1, modular, { room, price, least: -Infinity });
    if (!more.length) break;
    picks = picks.concat(more);
  }
  return chosen.concat(picks);
};

/**
 * What each member saves: the top-k sums without it are lower by so much; one more place for sums.
 * @param {Problem} problem
 * @param {State} state one deeper than K
 * @param {Int32Array} where position of each member
 * @param {Float64Array} parts room for the sums of the blocks of novel classes
 * @param {number} width
 */
const lossesOf = ({ rows, weights }, { depth, value, index }, where, parts, width) => {
  parts.fill(0);
  for (let n = 0; n < rows; n++) {
    const block = ((n / ROWS) | 0) * width;
    const end = n * depth + depth - 1;
    for (let j = n * depth; j < end; j++) {
      if (index[j] >= 0) parts[block + where[index[j]]] += weights[n] * (value[j] - value[end]);
    }
  }
  return added(parts, width).slice(0, width);
};

/**
 * The blocks of a sum added to the first one, in order.
 * @param {Float64Array} parts
 * @param {number} width
 */
const added = (parts, width) => {
  for (let block = width; block < parts.length; block += width) {
    for (let j = 0; j < width; j++) parts[j] += parts[block + j];
  }
  return parts;
};

/**
 * Exchange members from position `first` on while one exchange raises h; says whether any did.
 * @param {Problem} problem
 * @param {Limits} limits
 * @param {number[]} members changes
 * @param {number} first
 * @param {number[]} available
 * @param {Float64Array} modular
 */
const exchange = (problem, limits, members, first, available, modular) => {
  const { similarity, rows, weights } = problem;
  const k = depthOf(problem);
  const scale = rows * problem.k;
  const state = stateOf(problem, members, k + 1);
  const { depth, value, index } = state;
  const inside = new Set(members);
  const outside = available.filter((u) => !inside.has(u));
  const kth = valuesAt(state, k - 1);
  const top = Math.max(1e-300, Math.abs(valueOf(problem, members, new Float64Array(problem.candidates))));
  // Rounding, relative to the largest gain. That is computed only if it decides; it is at most this:
  const most = Math.max(top, 1.000001 * (knownOf(problem).peak - problem.floor));
  const starters = [...outside];
  let largest = 0;
  /** Whether a change is more than rounding could make of it, given the modular terms in it. */
  const counts = (/** @type {number} */ change, /** @type {number} */ terms) => {
    if (change > TOLERANCE * most + TOLERANCE * terms) return true;
    if (change <= TOLERANCE * top + TOLERANCE * terms) return false;
    largest ||= starters.reduce((a, u) => Math.max(a, excess(problem, u, kth) / scale), top);
    return change > TOLERANCE * largest + TOLERANCE * terms;
  };
  const where = new Int32Array(problem.candidates).fill(-1); // position among `members`
  for (const [position, u] of members.entries()) where[u] = position;
  const width = members.length + 1;
  const parts = new Float64Array(Math.ceil(rows / ROWS) * width);
  const own = Float64Array.from(members, (u) => modular[u]);
  /** What each novel class has beyond its nearest k: less than this adds nothing. */
  const beyond = valuesAt(state, k);
  /** At most what `u` adds and saves together. */
  const promise = (/** @type {number} */ u) => {
    let total = 0;
    const start = u * rows;
    for (let n = 0; n < rows; n++) {
      const above = similarity[start + n] - beyond[n];
      if (above > 0) total += weights[n] * above;
    }
    return total;
  };
  /** What `u` saves of each member's loss; the last entry is what it adds. */
  const prices = (/** @type {number} */ u) => {
    parts.fill(0);
    for (let n = 0; n < rows; n++) {
      const found = similarity[u * rows + n];
      const row = n * depth;
      const following = value[row + k];
      if (found <= following) continue;
      const block = ((n / ROWS) | 0) * width;
      const last = value[row + k - 1];
      if (found > last) parts[block + width - 1] += weights[n] * (found - last);
      const kept = weights[n] * (Math.min(found, last) - following);
      for (let j = row; j < row + k && index[j] >= 0; j++) parts[block + where[index[j]]] += kept;
    }
    return added(parts, width);
  };
  const limited = limits.budget !== undefined || limits.most || limits.include.length > 0;
  const stays = new Set(limits.include);
  let room = new Remaining(problem, limits, [], members.slice(first));
  /** Whether `u` may come for `v` as far as the limits go. */
  const allowed = (/** @type {number} */ u, /** @type {number} */ v) => {
    const [into, from] = [room.groupOf(u), room.groupOf(v)];
    if (stays.has(v)) return false;
    if (into !== from && !(room.counts[into] < room.most[into] && room.counts[from] > room.least[from])) return false;
    if (limits.budget === undefined) return true;
    return room.spent - room.cost[v] + room.cost[u] <= limits.budget * (1 + TOLERANCE / 2);
  };
  let lost = lossesOf(problem, state, where, parts, width);
  /** What an exchange has to promise: the smallest loss, less what leaving saves. */
  const cheapest = () => {
    let least = Infinity;
    for (let j = first; j < members.length; j++) least = Math.min(least, lost[j] - scale * own[j]);
    return least;
  };
  let needed = cheapest();
  let swaps = 0;
  for (let idle = 0, visits = 0; idle < outside.length && visits < PASSES * outside.length; visits++) {
    const at = visits % outside.length;
    const u = outside[at];
    idle++;
    const promised = promise(u);
    const fee = scale * modular[u];
    if (promised - fee + 1e-9 * (promised + Math.abs(fee) + Math.abs(needed)) < needed) continue;
    const price = prices(u);
    const adds = price[width - 1];
    let best = 0;
    let out = -1;
    for (let j = first; j < members.length; j++) {
      const change = (adds + price[j] - lost[j]) / scale - modular[u] + own[j];
      if (change <= best || !counts(change, Math.abs(modular[u]) + Math.abs(own[j]))) continue;
      if (!limited || allowed(u, members[j])) [best, out] = [change, j];
    }
    if (out < 0) continue;
    const v = members[out];
    [members[out], outside[at]] = [u, v];
    [where[v], where[u]] = [-1, out];
    own[out] = modular[u];
    insert(problem, state, u);
    remove(problem, state, v, members);
    lost = lossesOf(problem, state, where, parts, width);
    needed = cheapest();
    for (let n = 0; n < rows; n++) beyond[n] = value[n * depth + k];
    if (limited) room = new Remaining(problem, limits, [], members.slice(first));
    swaps++;
    idle = 0;
  }
  return swaps > 0;
};

/**
 * The members after exchanges, after dropping what is of no use and adding what gains: for a
 * budget, where the number of classes is not fixed.
 * @param {Problem} problem
 * @param {Limits} limits
 * @param {number[]} start
 * @param {number} first
 * @param {number[]} available
 * @param {Float64Array} modular
 */
const addDropExchange = (problem, limits, start, first, available, modular) => {
  let members = [...start];
  for (let pass = 0; pass < PASSES; pass++) {
    const before = new Set(members);
    exchange(problem, limits, members, first, available, modular);
    const state = stateOf(problem, members, depthOf(problem) + 1);
    const where = new Int32Array(problem.candidates).fill(-1);
    for (const [position, u] of members.entries()) where[u] = position;
    const width = members.length + 1;
    const parts = new Float64Array(Math.ceil(problem.rows / ROWS) * width);
    const losses = lossesOf(problem, state, where, parts, width);
    const room = new Remaining(problem, limits, [], members.slice(first));
    let [worst, least] = [-1, Infinity];
    for (let j = first; j < members.length; j++) {
      const v = members[j];
      const loss = losses[j] / (problem.rows * problem.k) - modular[v];
      const group = room.groupOf(v);
      if (limits.include.includes(v) || room.counts[group] <= room.least[group]) continue;
      // What loses nothing is dropped too if it costs something: the money may buy a gain.
      if ((loss < 0 || (loss === 0 && room.cost[v] > 0)) && loss < least) [worst, least] = [j, loss];
    }
    if (worst >= 0) members.splice(worst, 1);
    const tries = [false, true].map((perCost) =>
      members.slice(0, first).concat(fill(problem, limits, members.slice(first), available, modular, perCost)),
    );
    const [one, two] = tries.map((found) => valueOf(problem, found, modular));
    members = two > one ? tries[1] : tries[0];
    if (members.length === before.size && members.every((u) => before.has(u))) break;
  }
  return members;
};

/**
 * The choice under limits, in greedy order.
 * @param {Problem} problem
 * @param {Limits} limits
 * @returns {number[]}
 */
const choose = (problem, limits) => {
  const taken = new Set([...problem.selected, ...limits.exclude]);
  const available = [];
  for (let u = 0; u < problem.candidates; u++) if (!taken.has(u)) available.push(u);
  const modular = modularOf(problem, limits.m);
  const first = problem.selected.length;
  const value = (/** @type {number[]} */ chosen) => valueOf(problem, [...problem.selected, ...chosen], modular);
  const budget = limits.budget !== undefined;
  const limited = budget || limits.most !== undefined || limits.include.length > 0;
  let chosen;
  if (limited) {
    chosen = fill(problem, limits, limits.include, available, modular);
    if (budget) {
      const other = fill(problem, limits, limits.include, available, modular, true);
      if (value(other) > value(chosen)) chosen = other;
    }
    chosen = inOrder(problem, chosen, modular);
  } else {
    chosen = extend(problem, problem.selected, available, limits.m, modular);
    if (!chosen.length || chosen.length === available.length) return chosen;
  }
  let members = [...problem.selected, ...chosen];
  if (budget) members = addDropExchange(problem, limits, members, first, available, modular);
  else if (!exchange(problem, limits, members, first, available, modular)) return chosen;
  const better = members.slice(first);
  return value(better) > value(chosen) ? inOrder(problem, better, modular) : chosen;
};

/**
 * Why no choice can keep to the limits, in words; empty if one can.
 * @param {Problem} problem
 * @param {Limits} limits
 */
const contradiction = (problem, limits) => {
  const taken = new Set([...problem.selected, ...limits.exclude]);
  const available = [];
  for (let u = 0; u < problem.candidates; u++) if (!taken.has(u)) available.push(u);
  const room = new Remaining(problem, limits, available, limits.include);
  const there = room.counts.map((_, g) => available.filter((u) => room.groupOf(u) === g).length);
  const reach = there.map((count, g) => Math.min(count, room.most[g]));
  const total = (/** @type {number[]} */ counts) => counts.reduce((a, b) => a + b, 0);
  if (room.counts.some((count, g) => count > room.most[g])) return "More classes of a group are forced than it may have.";
  if (room.least.some((least, g) => least > reach[g])) return "A group has too few classes for what it must have.";
  if (limits.include.length + total(room.needs()) > limits.m) return "More classes must be in than may be chosen.";
  if (limits.budget === undefined) return total(reach) < limits.m ? "Too few classes are left to choose from." : "";
  let cheapest = room.spent;
  for (const [g, need] of room.needs().entries()) {
    const free = room.cheapest.filter((u) => room.groupOf(u) === g && !limits.include.includes(u));
    cheapest += free.slice(0, need).reduce((cost, u) => cost + room.cost[u], 0);
  }
  return room.affords(cheapest) ? "" : "The classes that must be in cost more than the budget.";
};

globalThis.chooser = { choose, contradiction, depthOf, excess, insert, modularOf, stateOf, valueOf, valuesAt };
