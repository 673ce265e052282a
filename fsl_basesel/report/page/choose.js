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
const ROUNDS = 10; // of exchanging, dropping and adding, where the number of classes is not fixed

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

/**
 * The `place`-th best value of every novel class, from 0.
 * @param {State} state
 * @param {number} place
 */
const valuesAt = ({ depth, value }, place) =>
  Float64Array.from({ length: value.length / depth }, (_, n) => value[n * depth + place]);

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

/** What may still be added to a choice; every addition it allows keeps to the limits. */
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
    this.chosen = [...chosen];
    for (const u of chosen) this.counts[this.groupOf(u)] += 1;
    this.spent = this.costOf(chosen);
    this.cheapest = [...candidates].sort((a, b) => this.cost[a] - this.cost[b]);
  }

  groupOf(/** @type {number} */ u) {
    return this.limits.group ? this.limits.group[u] : 0;
  }

  costOf(/** @type {number[]} */ classes) {
    return sum(Float64Array.from(classes, (u) => this.cost[u]).sort());
  }

  /** How many classes of each group are still missing. */
  needs() {
    return this.least.map((least, g) => Math.max(least - this.counts[g], 0));
  }

  /**
   * Whether the budget is enough for a sum, and for the cheapest classes that groups still need.
   * @param {number} cost
   * @param {number[]} needs
   * @param {number[]} taken cannot be among them
   */
  affords(cost, needs, taken) {
    if (this.limits.budget === undefined) return true;
    let reserve = 0;
    for (const [g, need] of needs.entries()) {
      const free = need ? this.cheapest.filter((v) => this.groupOf(v) === g && !taken.includes(v)) : [];
      reserve += free.slice(0, need).reduce((total, v) => total + this.cost[v], 0);
    }
    return cost + reserve <= this.limits.budget * (1 + TOLERANCE);
  }

  /** Add `u` if it can be added, and say so; what cannot once never can. */
  take(/** @type {number} */ u) {
    const group = this.groupOf(u);
    if (this.counts[group] >= this.most[group]) return false;
    const needs = this.needs();
    needs[group] = Math.max(0, needs[group] - 1);
    if (this.chosen.length + 1 + needs.reduce((a, b) => a + b) > this.limits.m) return false;
    if (!this.affords(this.spent + this.cost[u], needs, [...this.chosen, u])) return false;
    this.chosen.push(u);
    this.counts[group] += 1;
    this.spent = this.costOf(this.chosen);
    return true;
  }
}

/** Greedy and swaps for one problem under limits. Methods take classes by number. */
class Chooser {
  /**
   * @param {Problem} problem
   * @param {Limits} limits
   */
  constructor(problem, limits) {
    const { candidates, rows, k, selected, lam, mu, cost, means } = problem;
    this.problem = problem;
    this.limits = limits;
    const taken = new Set([...selected, ...limits.exclude]);
    this.available = Array.from({ length: candidates }, (_, u) => u).filter((u) => !taken.has(u));
    this.depth = Math.min(k, candidates);
    this.scale = rows * k;
    this.lanes = new Float64Array(LANES);
    this.everyRow = Int32Array.from({ length: rows }, (_, n) => n);
    /** The modular cost of each class: the lambda and mu terms of the objective. */
    this.modular = new Float64Array(candidates);
    const share = lam / Math.max(1, selected.length + limits.m);
    const there = new Set(selected);
    for (let u = 0; u < candidates; u++) {
      if (share) this.modular[u] = share * means[u];
      if (cost && mu && !there.has(u)) this.modular[u] += mu * cost[u];
    }
  }

  /**
   * Bring candidate `u` into rows of a state; equal similarities are ordered by number.
   * @param {State} state
   * @param {number} u
   * @param {ArrayLike<number>} [which]
   */
  insert({ depth, value, index }, u, which = this.everyRow) {
    const { similarity, rows } = this.problem;
    for (let i = 0; i < which.length; i++) {
      const found = similarity[u * rows + which[i]];
      const row = which[i] * depth;
      const last = row + depth - 1;
      const before = (/** @type {number} */ at) =>
        found > value[at] || (found === value[at] && !(index[at] > -1 && index[at] < u));
      if (found < value[last] || !before(last)) continue;
      let at = last;
      for (; at > row && before(at - 1); at--) {
        value[at] = value[at - 1];
        index[at] = index[at - 1];
      }
      value[at] = found;
      index[at] = u;
    }
  }

  /**
   * Take candidate `v` out of a state: the rows that list it are made again from `members`.
   * @param {State} state
   * @param {number} v
   * @param {number[]} members those that stay
   */
  remove(state, v, members) {
    const { depth, value, index } = state;
    const listing = this.everyRow.filter((n) => index.subarray(n * depth, (n + 1) * depth).includes(v));
    for (const n of listing) {
      value.fill(this.problem.floor, n * depth, (n + 1) * depth);
      index.fill(-1, n * depth, (n + 1) * depth);
    }
    for (const u of members) this.insert(state, u, listing);
  }

  /**
   * The state in which exactly `members` are in.
   * @param {number[]} members
   * @param {number} [depth]
   * @returns {State}
   */
  stateOf(members, depth = this.depth) {
    const { rows, floor } = this.problem;
    const value = new Float64Array(rows * depth).fill(floor);
    const state = { depth, value, index: new Int32Array(rows * depth).fill(-1) };
    for (const u of members) this.insert(state, u);
    return state;
  }

  /**
   * What candidate `u` would add to h, given the k-th value of every novel class.
   * @param {number} u
   * @param {Float64Array} kth
   */
  gain(u, kth) {
    return this.excess(u, kth) / this.scale - this.modular[u];
  }

  /**
   * What candidate `u` would add to the top-k sums of all novel classes.
   * @param {number} u
   * @param {Float64Array} kth
   */
  excess(u, kth) {
    const { similarity, rows, weights } = this.problem;
    const { lanes } = this;
    let all = 0;
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
      all += total;
    }
    return all;
  }

  /** Mean similarity of novel classes to their top k among base classes. */
  top(/** @type {number[]} */ members) {
    const { rows, k, floor, weights } = this.problem;
    const { value } = this.stateOf(members);
    const perRow = weights.map((weight, n) => weight * sum(value, n * this.depth, this.depth));
    let all = 0;
    for (let start = 0; start < rows; start += ROWS) {
      all += sum(perRow, start, Math.min(ROWS, rows - start));
    }
    return all / rows / k + (floor * (k - this.depth)) / k;
  }

  /** h of base classes, those that were there before included. */
  value(/** @type {number[]} */ members) {
    return this.top(members) - sum(Float64Array.from(members, (u) => this.modular[u]).sort());
  }

  /**
   * Greedy picks for one K, from a state, which changes; ends early where no class adds anything.
   * Gains never grow, so old ones are upper bounds: only those that come first are computed again.
   * @param {State} state
   * @param {number[]} candidates ascending
   * @param {number} count
   * @param {{ room?: Remaining, price?: Float64Array, least?: number }} [options] what limits allow,
   *   what gains are divided by, what they have to exceed
   */
  pick(state, candidates, count, { room, price, least } = {}) {
    const threshold = least ?? (this.modular.some((one) => one !== 0) ? -Infinity : 0);
    const bound = new Float64Array(this.problem.candidates);
    const exactAt = new Int32Array(this.problem.candidates); // the pick at which a bound was exact
    /** @type {number[]} */
    const picks = [];
    let kth = valuesAt(state, state.depth - 1);
    const refresh = (/** @type {number} */ u) => {
      bound[u] = this.gain(u, kth) / (price ? price[u] : 1);
      exactAt[u] = picks.length;
    };
    for (const u of candidates) refresh(u);
    const left = [...candidates];
    while (picks.length < count && left.length) {
      let at = 0; // of equal ones the lowest number
      for (let i = 1; i < left.length; i++) if (bound[left[i]] > bound[left[at]]) at = i;
      const best = left[at];
      if (exactAt[best] < picks.length) {
        refresh(best);
        continue;
      }
      if (bound[best] <= threshold) break;
      left.splice(at, 1);
      if (room && !room.take(best)) continue;
      picks.push(best);
      this.insert(state, best);
      kth = valuesAt(state, state.depth - 1);
    }
    return picks;
  }

  /**
   * The (k+1)-th value of every novel class over `members`, given the k-th.
   * @param {number[]} members
   * @param {number} k
   * @param {Float64Array} kth
   */
  nextValues(members, k, kth) {
    const { similarity, rows, floor } = this.problem;
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
  }

  /**
   * `count` greedy picks after `members`: by the objective while a class adds something, then by the
   * same objective with a larger K.
   * @param {number[]} members
   * @param {number[]} candidates ascending
   * @param {number} count
   * @param {Remaining} [room]
   */
  extend(members, candidates, count, room) {
    let k = this.depth;
    const state = this.stateOf(members);
    let picks = this.pick(state, candidates, count, { room });
    let kth = valuesAt(state, k - 1);
    const left = () => {
      const taken = new Set(picks);
      return candidates.filter((u) => !taken.has(u));
    };
    for (; picks.length < count && k <= members.length + picks.length; k++) {
      const value = this.nextValues([...members, ...picks], k, kth);
      const next = { depth: 1, value, index: new Int32Array(value.length).fill(-1) };
      picks = picks.concat(this.pick(next, left(), count - picks.length, { room }));
      kth = value;
    }
    for (const u of left()) {
      if (picks.length < count && (!room || room.take(u))) picks.push(u);
    }
    return picks;
  }

  /** Classes in the order in which greedy would add them. */
  inOrder(/** @type {number[]} */ chosen) {
    const sorted = [...chosen].sort((a, b) => a - b);
    return this.extend(this.problem.selected, sorted, sorted.length);
  }

  /**
   * `chosen` with what greedy adds to it within the limits; with a budget only what gains something,
   * and what groups must have.
   * @param {number[]} chosen
   * @param {boolean} [perCost] compare gains per cost
   */
  fill(chosen, perCost = false) {
    const inside = new Set(chosen);
    const candidates = this.available.filter((u) => !inside.has(u));
    const room = new Remaining(this.problem, this.limits, candidates, chosen);
    const members = [...this.problem.selected, ...chosen];
    const count = this.limits.m - chosen.length;
    if (this.limits.budget === undefined) return chosen.concat(this.extend(members, candidates, count, room));
    let price;
    if (perCost) {
      // What is free comes first.
      const least = Math.min(...room.cost.filter((one) => one > 0), 1);
      price = room.cost.map((one) => (one > 0 ? one : 1e-3 * least));
    }
    const state = this.stateOf(members);
    let picks = this.pick(state, candidates, count, { room, price, least: 0 });
    for (let needs = room.needs(); needs.some(Boolean); needs = room.needs()) {
      const left = candidates.filter((u) => needs[room.groupOf(u)] > 0 && !picks.includes(u));
      const more = this.pick(state, left, 1, { room, price, least: -Infinity });
      if (!more.length) break;
      picks = picks.concat(more);
    }
    return chosen.concat(picks);
  }

  /**
   * By position of a member, how much lower the top-k sums are without it.
   * @param {State} state one deeper than K
   * @param {number[]} members
   */
  losses({ depth, value, index }, members) {
    const { rows, weights } = this.problem;
    const where = this.positions(members);
    const parts = new Float64Array(Math.ceil(rows / ROWS) * members.length);
    for (let n = 0; n < rows; n++) {
      const block = ((n / ROWS) | 0) * members.length;
      const end = (n + 1) * depth - 1;
      for (let j = n * depth; j < end && index[j] >= 0; j++) {
        parts[block + where[index[j]]] += weights[n] * (value[j] - value[end]);
      }
    }
    return added(parts, members.length);
  }

  /** Of each candidate the position among `members`, -1 if it is not among them. */
  positions(/** @type {number[]} */ members) {
    const where = new Int32Array(this.problem.candidates).fill(-1);
    for (const [position, u] of members.entries()) where[u] = position;
    return where;
  }

  /**
   * Exchange members that were not there before while one exchange raises h.
   * @param {number[]} members changes
   */
  exchange(members) {
    const { similarity, rows, weights, selected } = this.problem;
    const { limits, modular, scale, depth: k } = this;
    const state = this.stateOf(members, k + 1);
    const { depth, value, index } = state;
    const outside = this.available.filter((u) => !members.includes(u));
    const where = this.positions(members);
    const width = members.length + 1;
    const parts = new Float64Array(Math.ceil(rows / ROWS) * width);
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
    const stays = new Set(limits.include);
    let room = new Remaining(this.problem, limits, [], members.slice(selected.length));
    /** Whether `u` may come for `v` as far as the limits go. */
    const allowed = (/** @type {number} */ u, /** @type {number} */ v) => {
      const [into, from] = [room.groupOf(u), room.groupOf(v)];
      if (stays.has(v)) return false;
      if (into !== from && !(room.counts[into] < room.most[into] && room.counts[from] > room.least[from])) return false;
      if (limits.budget === undefined) return true;
      return room.spent - room.cost[v] + room.cost[u] <= limits.budget * (1 + TOLERANCE / 2);
    };
    const kth = valuesAt(state, k - 1);
    const largest = outside.reduce((most, u) => Math.max(most, this.excess(u, kth) / scale), 1e-300);
    const tolerance = TOLERANCE * Math.max(largest, Math.abs(this.top(members)));
    let lost = this.losses(state, members);
    for (let idle = 0, visits = 0; idle < outside.length && visits < PASSES * outside.length; visits++) {
      const at = visits % outside.length;
      const u = outside[at];
      idle++;
      const price = prices(u);
      let best = 0;
      let out = -1;
      for (let j = selected.length; j < members.length; j++) {
        const own = modular[members[j]];
        const change = (price[width - 1] + price[j] - lost[j]) / scale - modular[u] + own;
        if (change <= best || change <= tolerance + TOLERANCE * (Math.abs(modular[u]) + Math.abs(own))) continue;
        if (allowed(u, members[j])) [best, out] = [change, j];
      }
      if (out < 0) continue;
      const v = members[out];
      [members[out], outside[at]] = [u, v];
      [where[v], where[u]] = [-1, out];
      this.insert(state, u);
      this.remove(state, v, members);
      lost = this.losses(state, members);
      room = new Remaining(this.problem, limits, [], members.slice(selected.length));
      idle = 0;
    }
  }

  /**
   * The members after exchanges, after dropping what is of no use and adding what gains: for a
   * budget, where the number of classes is not fixed.
   * @param {number[]} start
   */
  addDropExchange(start) {
    const { rows, weights, selected } = this.problem;
    let members = [...start];
    for (let round = 0; round < ROUNDS; round++) {
      const before = new Set(members);
      this.exchange(members);
      const state = this.stateOf(members, this.depth + 1);
      const losses = this.losses(state, members);
      const room = new Remaining(this.problem, this.limits, [], members.slice(selected.length));
      const listed = new Set();
      for (let n = 0; n < rows; n++) {
        for (let j = 0; j < this.depth && weights[n]; j++) listed.add(state.index[n * state.depth + j]);
      }
      /** @type {{ v: number, loss: number }[]} */
      const useless = [];
      for (let j = selected.length; j < members.length; j++) {
        const v = members[j];
        const loss = losses[j] / this.scale - this.modular[v];
        const group = room.groupOf(v);
        if (this.limits.include.includes(v) || room.counts[group] <= room.least[group]) continue;
        // What loses nothing is dropped too if it costs something: the money may buy a gain.
        if (loss < 0 || (loss === 0 && room.cost[v] > 0)) useless.push({ v, loss });
      }
      // Classes in no top k that no group needs are dropped at once, the others one by one.
      let gone = useless.filter(({ v }) => !listed.has(v) && !room.least[room.groupOf(v)]);
      if (!gone.length) gone = useless.sort((a, b) => a.loss - b.loss).slice(0, 1);
      members = members.filter((u) => !gone.some(({ v }) => v === u));
      const chosen = members.slice(selected.length);
      const tries = [false, true].map((perCost) => [...selected, ...this.fill(chosen, perCost)]);
      members = this.value(tries[1]) > this.value(tries[0]) ? tries[1] : tries[0];
      if (members.length === before.size && members.every((u) => before.has(u))) break;
    }
    return members;
  }

  /** The choice under the limits, in greedy order. */
  choose() {
    const { selected } = this.problem;
    const { limits, available } = this;
    const value = (/** @type {number[]} */ chosen) => this.value([...selected, ...chosen]);
    const budget = limits.budget !== undefined;
    let chosen;
    if (budget || limits.most !== undefined || limits.include.length > 0) {
      chosen = this.fill(limits.include);
      if (budget) {
        const other = this.fill(limits.include, true);
        if (value(other) > value(chosen)) chosen = other;
      }
      chosen = this.inOrder(chosen);
    } else chosen = this.extend(selected, available, limits.m);
    let members = [...selected, ...chosen];
    if (budget) members = this.addDropExchange(members);
    else this.exchange(members);
    const better = members.slice(selected.length);
    return value(better) > value(chosen) ? this.inOrder(better) : chosen;
  }

  /** Whether a choice keeps to the limits. */
  allows(/** @type {number[]} */ chosen) {
    const { m, budget, exclude, include } = this.limits;
    const room = new Remaining(this.problem, this.limits, [], chosen);
    return (
      (budget === undefined ? chosen.length === m : chosen.length <= m && room.affords(room.spent, [], [])) &&
      include.every((u) => chosen.includes(u)) &&
      !exclude.some((u) => chosen.includes(u)) &&
      room.counts.every((count, g) => room.least[g] <= count && count <= room.most[g])
    );
  }

  /** Why no choice can keep to the limits, in words; empty if one can. */
  contradiction() {
    const { limits, available } = this;
    const room = new Remaining(this.problem, limits, available, limits.include);
    const reach = room.most.map((most, g) => Math.min(most, available.filter((u) => room.groupOf(u) === g).length));
    const total = (/** @type {number[]} */ counts) => counts.reduce((a, b) => a + b, 0);
    if (room.counts.some((count, g) => count > room.most[g])) return "More classes of a group are forced than it may have.";
    if (room.least.some((least, g) => least > reach[g])) return "A group has too few classes for what it must have.";
    if (limits.include.length + total(room.needs()) > limits.m) return "More classes must be in than may be chosen.";
    if (limits.budget === undefined && total(reach) < limits.m) return "Too few classes are left to choose from.";
    const enough = room.affords(room.spent, room.needs(), limits.include);
    return enough ? "" : "The classes that must be in cost more than the budget.";
  }
}

globalThis.chooser = { Chooser, valuesAt };
