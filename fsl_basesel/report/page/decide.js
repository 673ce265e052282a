// The table of chosen classes: sort, search, copy, veto, force, other limits, choose again, save.
// @ts-check
"use strict";

(() => {
  const source = document.getElementById("problem");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const { Chooser, valuesAt } = globalThis.chooser;
  const MOST_ROWS = 200; // candidates listed at once
  const MOST_NAMES = 6; // novel classes named in a cell

  const able = Boolean(data.similarity);
  const rows = data.novel.length;
  // A name that begins with its group, as in "Greek: α", is shown without it.
  const without = (groups) => (name, n) => (groups?.[n] && name.startsWith(`${groups[n]}: `) ? name.slice(groups[n].length + 2) : name);
  const shown = data.names.map(without(data.groups));
  const novelShown = data.novel.map(without(data.novel_groups));
  const candidates = data.names.length;
  const letters = atob(data.similarity || "");
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  /** @type {import("./choose.js").Problem} */
  const problem = {
    candidates,
    rows,
    similarity: new Float32Array(bytes.buffer),
    weights: data.weights ? Float64Array.from(data.weights) : new Float64Array(rows).fill(1),
    means: Float64Array.from(data.means || []),
    cost: data.cost && Float64Array.from(data.cost),
    selected: data.selected || [],
    k: data.k,
    lam: data.lam,
    mu: data.mu,
    floor: data.floor,
  };
  const there = new Set(problem.selected);
  const free = candidates - there.size;

  /** Limits as they were when Python chose, and as they are now; null for none. */
  const first = {
    m: data.m,
    budget: data.budget ?? null,
    at_most: data.at_most ?? null,
    at_least: data.at_least ?? null,
    exclude: new Set(data.exclude),
    include: new Set(data.include),
  };
  const limits = { ...first, exclude: new Set(first.exclude), include: new Set(first.include) };
  const labels = [...new Set((data.groups || []).filter((label) => label !== null))];
  const group = Int32Array.from(data.groups || [], (label) => (label === null ? labels.length : labels.indexOf(label)));
  const already = labels.map((_, g) => problem.selected.filter((u) => group[u] === g).length);
  /** A limit of groups as one number for each; the last one is for classes without a group. */
  const perGroup = (given, otherwise) => {
    const one = (label) => (given !== null && typeof given === "object" ? given[label] : given) ?? otherwise;
    return [...labels.map((label, g) => Math.max(one(label) - already[g], 0)), otherwise];
  };
  const ofGroups = ({ at_most, at_least }) => ({ most: perGroup(at_most, Infinity), least: perGroup(at_least, 0) });
  const forChooser = () => ({
    m: limits.m,
    exclude: [...limits.exclude],
    include: [...limits.include],
    ...(limits.budget === null ? {} : { budget: limits.budget }),
    ...(limits.at_most === null && limits.at_least === null ? {} : { group, ...ofGroups(limits) }),
  });

  /** A choice with its reasons: novel classes served, gains, neighbours of every novel class. */
  const explained = (chooser, indices) => {
    const { depth } = chooser;
    const state = chooser.stateOf(problem.selected);
    const gains = new Map();
    for (const u of indices) {
      gains.set(u, chooser.gain(u, valuesAt(state, depth - 1)));
      chooser.insert(state, u);
    }
    const serves = new Map(indices.map((u) => [u, []]));
    const nearest = new Float64Array(rows);
    for (let n = 0; n < rows; n++) {
      let count = 0;
      for (let j = n * depth; j < (n + 1) * depth && state.index[j] >= 0; j++, count++) {
        nearest[n] += state.value[j];
        serves.get(state.index[j])?.push({ n, similarity: state.value[j] });
      }
      nearest[n] /= Math.max(1, count);
    }
    for (const list of serves.values()) list.sort((a, b) => b.similarity - a.similarity);
    const kth = valuesAt(state, depth - 1);
    return {
      indices,
      serves,
      nearest,
      gainOf: (u) => gains.get(u) ?? chooser.gain(u, kth),
      value: chooser.value([...problem.selected, ...indices]),
    };
  };

  const original = able
    ? explained(new Chooser(problem, forChooser()), data.chosen)
    : {
        // Too large for the page, or not known: as Python explained it.
        indices: data.chosen,
        serves: new Map(data.chosen.map((u, i) => [u, data.serves[i].map((n) => ({ n }))])),
        gainOf: (u) => data.gains[u],
        value: data.value,
      };
  let now = original;
  let fault = ""; // why no choice keeps to the limits
  let order = { key: "rank", up: true };

  const within = (one, all) => [...one].every((u) => all.has(u));
  /** Whether no choice under the limits of now can exceed the bound that was proven. */
  const boundHolds = () => {
    const monotone = !problem.lam && !problem.mu;
    const [ours, then] = [ofGroups(limits), ofGroups(first)];
    return (
      data.bound !== null &&
      within(first.exclude, limits.exclude) &&
      within(first.include, limits.include) &&
      ours.most.every((most, g) => most <= then.most[g]) &&
      ours.least.every((least, g) => least >= then.least[g]) &&
      (first.budget === null
        ? limits.budget === null || monotone
        : limits.budget !== null && limits.budget <= first.budget) &&
      (limits.m === first.m || (limits.m < first.m && monotone))
    );
  };
  const asText = ({ exclude, include, ...rest }) => JSON.stringify([rest, ...[exclude, include].map((one) => [...one].sort())]);
  const changed = () => asText(limits) !== asText(first);

  // ---------------------------------------------------------------- the table
  const $ = (id) => document.getElementById(id);
  const body = $("choice").tBodies[0];
  const search = /** @type {HTMLInputElement} */ ($("search"));
  const view = /** @type {HTMLSelectElement} */ ($("view"));

  /** A button that stays pressed. */
  const toggle = (words, what, u, set, other) => {
    const button = make("button", words, `toggle ${what}`);
    button.type = "button";
    button.dataset.u = String(u);
    button.setAttribute("aria-pressed", String(set.has(u)));
    button.setAttribute("aria-label", `${words} ${data.names[u]}`);
    button.addEventListener("click", () => {
      if (set.has(u)) set.delete(u);
      else {
        set.add(u);
        other.delete(u);
      }
      again(`button.${what}[data-u="${u}"]`);
    });
    return button;
  };

  const figure = (value) => (value < 0 ? `−${(-value).toFixed(5)}` : value.toFixed(5));
  const price = (value) => String(Number(value.toPrecision(6)));
  const costOf = (indices) => indices.reduce((sum, u) => sum + problem.cost[u], 0);
  const some = (names, count) =>
    names.slice(0, count).join(", ") + (names.length > count ? ` and ${names.length - count} more` : "");

  const rowOf = (u) => {
    const rank = now.indices.indexOf(u);
    const served = (now.serves.get(u) || []).map(({ n }) => novelShown[n]);
    const row = make("tr");
    row.dataset.u = String(u);
    if (rank < 0) row.className = limits.exclude.has(u) ? "vetoed" : "outside";
    const name = make("td", "", "name");
    const words = make("span");
    words.append(make("bdi", shown[u]));
    const label = data.groups?.[u] ?? "";
    if (!shown[u].startsWith(label)) words.append(make("small", label));
    if (data.pictured) name.append(thumbnail(data.pictures[u]));
    name.append(words);
    const gain = now.gainOf(u);
    const cells = [make("td", rank < 0 ? "–" : String(rank + 1), "n rank"), name];
    cells.push(make("td", rank < 0 ? `(${figure(gain)})` : figure(gain), "n"));
    const serves = make("td", "", "serves");
    if (rank >= 0) serves.append(make("b", String(served.length)), make("bdi", some(served, MOST_NAMES)));
    serves.title = served.join(", ");
    cells.push(serves);
    if (problem.cost) cells.push(make("td", price(problem.cost[u]), "n"));
    const actions = make("td", "", "actions");
    if (!there.has(u)) {
      actions.append(
        toggle("Veto", "veto", u, limits.exclude, limits.include),
        toggle("Force", "force", u, limits.include, limits.exclude),
      );
    }
    row.append(...cells, actions);
    return row;
  };

  /** Candidates to list: what the view says, or all that match the search, chosen ones first. */
  const listed = () => {
    const wanted = search.value.trim().toLowerCase();
    const chosen = new Set(now.indices);
    const matches = (u) => `${data.names[u]} ${data.groups?.[u] ?? ""}`.toLowerCase().includes(wanted);
    const limited = (u) => limits.exclude.has(u) || limits.include.has(u);
    let found = now.indices;
    if (wanted || view.value !== "chosen") {
      const others = data.names.map((_, u) => u).filter((u) => !chosen.has(u) && !there.has(u));
      found = [...now.indices, ...others];
    }
    if (wanted) found = found.filter(matches);
    else if (view.value === "limited") found = found.filter(limited);
    const keys = {
      rank: (u) => (chosen.has(u) ? now.indices.indexOf(u) : candidates + u),
      name: (u) => data.names[u],
      gain: (u) => (chosen.has(u) ? now.gainOf(u) : -Infinity),
      serves: (u) => (now.serves.get(u) || []).length,
      cost: (u) => problem.cost[u],
    };
    const key = new Map(found.map((u) => [u, keys[order.key](u)]));
    const compare = (a, b) => {
      const [one, two] = [key.get(a), key.get(b)];
      const sign = typeof one === "string" ? one.localeCompare(two) : one === two ? 0 : one - two;
      return order.up ? sign : -sign;
    };
    return [...found].sort(compare);
  };

  const renderTable = () => {
    const found = listed();
    body.replaceChildren(...found.slice(0, MOST_ROWS).map(rowOf));
    const more = found.length - MOST_ROWS;
    $("listed").textContent =
      more > 0 ? `${MOST_ROWS} of ${found.length} classes are listed; search for others.` : `${found.length} listed`;
    for (const head of document.querySelectorAll("#choice th[data-key]")) {
      const direction = order.up ? "ascending" : "descending";
      head.ariaSort = head.dataset.key === order.key ? direction : null;
    }
  };

  // ---------------------------------------------------------------- value, bound, what changed
  const share = (value) => {
    if (value > 0.999999) return value >= 1 ? "100 %" : "> 99.9999 %";
    return `${(100 * value).toFixed(value > 0.999 ? 4 : 2)} %`;
  };

  const renderValue = () => {
    const same = now === original;
    const value = same ? data.value : now.value;
    const holds = boundHolds();
    const points = [
      ["now", value, same ? "this choice" : "now"],
      ["then", same ? null : data.value, "before your changes"],
      holds ? ["bound", data.bound, "proven upper bound"] : ["bound old", data.bound, "bound of the original limits"],
      ...data.controls.map(({ kind, value: at, words }) => [kind, at, words + (changed() && kind !== "pool" ? ", under the original limits" : "")]),
    ].filter(([, at]) => at !== null);
    const marked = points.filter(([kind]) => kind !== "pool"); // more classes: far from the others
    const all = marked.map(([, at]) => at);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    $("track").replaceChildren(
      ...marked.map(([kind, at]) => {
        const mark = make("span", "", `at ${kind}`);
        mark.style.left = `${high > low ? (100 * (at - low)) / (high - low) : 50}%`;
        return mark;
      }),
    );
    $("track-key").replaceChildren(
      ...points.map(([kind, at, words]) => {
        const item = make("li", "");
        item.append(make("span", "", `at ${kind}`), make("b", at.toFixed(6)), make("span", words));
        return item;
      }),
    );
    const says = [];
    if (data.bound === null) says.push("This choice is not certified.");
    else if (holds) {
      const span = data.bound - problem.floor;
      const gap = same ? data.gap : Math.max(0, (data.bound - value) / (span > 0 ? span : 1));
      says.push(gap === 0 && same ? "Proven optimal: no choice under these limits is better." : `At least ${share(1 - gap)} of the best possible value.`);
    } else {
      says.push("The bound was proven for the original limits and does not hold for these. Save them and run the command below: it proves how good the choice is.");
    }
    const random = data.controls[0]?.value;
    if (!changed() && data.bound > random) {
      const way = data.gap === 0 ? 1 : (value - random) / (data.bound - random);
      says.push(`${share(way)} of the way from random sets to the bound.`);
    }
    if (problem.cost) says.push(`It costs ${price(costOf(now.indices))}${limits.budget === null ? "" : ` of ${price(limits.budget)}`}.`);
    $("verdict").textContent = fault ? `${fault} The choice below is the one before.` : says.join(" ");
    $("verdict").classList.toggle("fault", Boolean(fault));
  };

  const renderChanges = () => {
    const inside = new Set(original.indices);
    const after = new Set(now.indices);
    const out = original.indices.filter((u) => !after.has(u));
    const into = now.indices.filter((u) => !inside.has(u));
    const worse = [];
    let better = 0;
    for (let n = 0; n < rows; n++) {
      const change = now.nearest[n] - original.nearest[n];
      if (change < -1e-9) worse.push({ n, change });
      if (change > 1e-9) better++;
    }
    worse.sort((a, b) => a.change - b.change);
    const list = (title, items) => {
      const element = make("div");
      element.append(make("h3", title));
      const names = make("ul");
      names.append(...items.slice(0, 8).map((words) => { const item = make("li", ""); item.append(make("bdi", words[0]), make("span", words[1])); return item; }));
      if (items.length > 8) names.append(make("li", `and ${items.length - 8} more`));
      element.append(names);
      return element;
    };
    const parts = [];
    if (into.length) parts.push(list(`${into.length} in`, into.map((u) => [shown[u], ""])));
    if (out.length) parts.push(list(`${out.length} out`, out.map((u) => [shown[u], ""])));
    if (worse.length) {
      const lines = worse.map(({ n }) => [novelShown[n], ` ${original.nearest[n].toFixed(4)} → ${now.nearest[n].toFixed(4)}`]);
      parts.push(list(`${worse.length} of ${rows} novel classes are served worse${better ? `, ${better} better` : ""}`, lines));
    } else if (better) parts.push(list(`${better} of ${rows} novel classes are served better, none worse`, []));
    $("changes").hidden = !changed();
    const words = now === original ? "The original choice keeps to these limits and nothing better was found: it stays." : "";
    $("changes").replaceChildren(...(words ? [make("p", words)] : []), ...parts);
  };

  const render = (focus) => {
    $("m").min = $("m-number").min = String(limits.include.size);
    $("m").max = $("m-number").max = String(free - limits.exclude.size);
    $("m").value = $("m-number").value = String(limits.m); // last: it is cut to what is allowed
    for (const id of ["budget", "budget-number"]) $(id).value = limits.budget === null ? (id === "budget" ? $(id).max : "") : String(limits.budget);
    for (const name of ["at_most", "at_least"]) {
      const single = typeof limits[name] !== "object" || limits[name] === null;
      $(name).disabled = !single;
      $(name).placeholder = single ? "any" : "by group";
      $(name).value = single && limits[name] !== null ? String(limits[name]) : "";
    }
    $("reset").disabled = !changed();
    renderValue();
    if (able) renderChanges();
    renderTable();
    const button = focus && document.querySelector(focus);
    if (button) button.focus();
  };

  /** Choose again under the limits of now. */
  const again = (focus) => {
    limits.m = Math.max(limits.include.size, Math.min(limits.m, free - limits.exclude.size));
    const chooser = new Chooser(problem, forChooser());
    fault = chooser.contradiction();
    if (!fault) now = original;
    if (!fault && changed()) {
      const found = explained(chooser, chooser.choose());
      if (!chooser.allows(original.indices) || found.value > original.value) now = found;
    }
    render(focus);
  };

  // ---------------------------------------------------------------- controls
  let waiting = 0;
  const soon = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => again());
  };
  for (const id of ["m", "m-number"]) {
    $(id).addEventListener("input", (event) => {
      const asked = Number(event.target.value);
      if (!Number.isInteger(asked) || event.target.value === "") return;
      limits.m = asked;
      soon();
    });
  }
  /** A field that may be empty: no limit. */
  const asked = (field) => (field.value === "" || !(Number(field.value) >= 0) ? null : Number(field.value));
  const total = problem.cost ? problem.cost.reduce((a, b) => a + b, 0) : candidates;
  const whole = !problem.cost || problem.cost.every(Number.isInteger);
  for (const id of ["budget", "budget-number"]) {
    $(id).max = id === "budget" ? String(first.budget === null ? total : Math.min(total, 3 * first.budget)) : "";
    $(id).step = whole ? "1" : "any";
    $(id).addEventListener("input", (event) => {
      limits.budget = asked(event.target);
      soon();
    });
  }
  for (const name of ["at_most", "at_least"]) {
    $(name).addEventListener("input", (event) => {
      limits[name] = asked(event.target);
      again();
    });
  }
  $("with-budget").hidden = !problem.cost && first.budget === null;
  $("with-groups").hidden = !data.groups;
  $("reset").addEventListener("click", () => {
    Object.assign(limits, first, { exclude: new Set(first.exclude), include: new Set(first.include) });
    again();
  });
  search.addEventListener("input", renderTable);
  view.addEventListener("change", renderTable);
  for (const head of document.querySelectorAll("#choice th[data-key]")) {
    sortsBy(head, () => {
      const { key } = head.dataset;
      order = { key, up: order.key === key ? !order.up : key === "rank" || key === "name" };
      renderTable();
    });
  }

  /** What is chosen, for other programs. */
  const csv = () => {
    const lines = now.indices.map((u, rank) => {
      const serves = now.serves.get(u).map(({ n }) => data.novel[n]).join("; ");
      return [rank + 1, data.names[u], now.gainOf(u), serves, ...(problem.cost ? [problem.cost[u]] : [])];
    });
    const heads = ["rank", "class", "gain", "serves", ...(problem.cost ? ["cost"] : [])];
    const quoted = (cell) => (/[",\n\r]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell));
    return [heads, ...lines].map((cells) => cells.map(quoted).join(",")).join("\n") + "\n";
  };
  const copy = async (words, button) => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(words);
    } catch {
      const area = make("textarea"); // where the clipboard is not open to pages
      area.value = words;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1200);
  };
  $("copy-text").addEventListener("click", (event) => copy(now.indices.map((u) => data.names[u]).join("\n") + "\n", event.currentTarget));
  $("copy-csv").addEventListener("click", (event) => copy(csv(), event.currentTarget));

  /** What `fsl-basesel select --limits` takes; see `docs/budgets.md`. */
  const limitsFile = () => {
    const byName = (values) => Object.fromEntries(data.names.map((name, u) => [name, values[u]]).filter(([, value]) => value !== null));
    const named = (values) => [...values].sort((a, b) => a - b).map((u) => data.names[u]);
    return {
      format: "fsl-basesel limits 1",
      m: limits.m,
      ...(limits.budget === null ? {} : { budget: limits.budget }),
      ...(problem.cost ? { cost: byName(problem.cost) } : {}),
      exclude: named(limits.exclude),
      include: named(limits.include),
      ...(limits.at_most === null && limits.at_least === null ? {} : { groups: byName(data.groups) }),
      ...(limits.at_most === null ? {} : { at_most: limits.at_most }),
      ...(limits.at_least === null ? {} : { at_least: limits.at_least }),
      classes: now.indices.map((u) => data.names[u]),
    };
  };
  $("save").addEventListener("click", () => {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(limitsFile(), null, 1) + "\n"], { type: "application/json" }));
    link.download = "limits.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });

  $("find").hidden = false;
  if (able) {
    $("decide").hidden = false;
    $("choice").classList.add("live");
  } else view.closest("label").hidden = true;
  render();
})();
