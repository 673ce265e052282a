// Hover, search and sorting. Everything the page says is there without them.
// @ts-check
"use strict";

/**
 * A new element.
 * @param {string} name
 * @param {string} [text]
 * @param {string} [kind] its class
 */
const make = (name, text = "", kind = "") => {
  const element = document.createElement(name);
  element.textContent = text;
  element.className = kind;
  return element;
};

/**
 * The picture of a class beside its name.
 * @param {string | null} where column and row of its thumbnail
 */
const thumbnail = (where) => {
  const element = make("span", "", where ? "pic" : "pic none");
  const [column, row] = (where || "0 0").split(" ");
  element.style.setProperty("--c", column);
  element.style.setProperty("--r", row);
  element.setAttribute("aria-hidden", "true");
  return element;
};

/**
 * Make the heading of a column a button that sorts.
 * @param {HTMLElement} head
 * @param {() => void} sort
 */
const sortsBy = (head, sort) => {
  const button = make("button", head.textContent);
  button.type = "button";
  button.addEventListener("click", sort);
  head.replaceChildren(button);
};

/** One tip for all charts: the title of the nearest mark, with the picture of its class. */
const tip = document.getElementById("tip");

/**
 * Show a text beside the pointer; its first line is bold.
 * @param {string} text
 * @param {string | undefined} where column and row of a thumbnail
 * @param {PointerEvent} event
 */
const showTip = (text, where, event) => {
  const [first, ...rest] = text.split("\n");
  const words = make("div");
  words.append(make("b", first), make("span", rest.join("\n"), "more"));
  tip.replaceChildren(words);
  if (where) tip.prepend(thumbnail(where));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const right = event.clientX + 16 + box.width > innerWidth;
  const below = event.clientY + 16 + box.height > innerHeight;
  tip.style.left = `${Math.max(4, right ? event.clientX - 16 - box.width : event.clientX + 16)}px`;
  tip.style.top = `${Math.max(4, below ? event.clientY - 16 - box.height : event.clientY + 16)}px`;
};

/** The text of each mark; its title is taken away, or the browser would show it as well. */
const titles = new Map();
for (const mark of document.querySelectorAll("svg .mark")) {
  const title = mark.querySelector("title");
  titles.set(mark, title.textContent);
  mark.setAttribute("aria-label", title.textContent);
  title.remove();
}

const map = document.querySelector("#map svg");
const lines = document.createElementNS("http://www.w3.org/2000/svg", "path");
lines.setAttribute("class", "links");
if (map) map.prepend(lines);

/** Connect a class on the map with its nearest base classes, or with those it serves. */
const connect = (mark) => {
  const neighbours = (one) => (one.dataset.n || "").split(" ");
  const ends = [...map.querySelectorAll(".mark")].filter(
    (other) => neighbours(mark).includes(other.dataset.i) || neighbours(other).includes(mark.dataset.i));
  const at = (one) => `${one.getAttribute("x")} ${one.getAttribute("y")}`;
  lines.setAttribute("d", ends.map((end) => `M${at(mark)}L${at(end)}`).join(""));
};

const NEAR = 24; // pixels from the pointer to a mark
for (const chart of document.querySelectorAll("svg")) {
  const marks = [...chart.querySelectorAll(".mark")];
  if (!marks.length) continue;
  let near = null;
  const leave = () => {
    near?.classList.remove("near");
    near = null;
    tip.hidden = true;
    lines.removeAttribute("d");
  };
  chart.addEventListener("pointermove", (event) => {
    let best = NEAR;
    let nearest = null;
    for (const mark of marks) {
      const box = mark.getBoundingClientRect();
      const across = Math.max(box.left - event.clientX, event.clientX - box.right, 0);
      const down = Math.max(box.top - event.clientY, event.clientY - box.bottom, 0);
      const distance = Math.hypot(across, down);
      if (distance < best || (distance === best && nearest)) [best, nearest] = [distance, mark];
    }
    if (nearest !== near) {
      leave();
      if (nearest && chart === map) connect(nearest);
      near = nearest;
    }
    if (!nearest) return;
    nearest.classList.add("near");
    showTip(titles.get(nearest), nearest.dataset.p, event);
  });
  chart.addEventListener("pointerleave", leave);
}

const find = document.querySelector("#map-tools input");
if (map) document.getElementById("map-tools").hidden = false;
find?.addEventListener("input", () => {
  const wanted = find.value.trim().toLowerCase();
  for (const point of map.querySelectorAll(".mark")) {
    point.classList.toggle("lit", Boolean(wanted) && titles.get(point).toLowerCase().includes(wanted));
  }
  map.classList.toggle("faded", Boolean(wanted));
  document.querySelector("#map-tools span").textContent = wanted ? `${map.querySelectorAll(".lit").length} found` : "";
});

// Tables sort by the numbers in `data-v`, or by their text.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("thead th")];
  for (const [column, head] of heads.entries()) {
    sortsBy(head, () => {
      const up = head.ariaSort === "descending";
      for (const other of heads) other.ariaSort = null;
      head.ariaSort = up ? "ascending" : "descending";
      const key = (row) => {
        const cell = row.cells[column];
        return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
      };
      const compare = (a, b) => {
        const [one, two] = [key(a), key(b)];
        const order = typeof one === "number" ? one - two : one.localeCompare(two);
        return up ? order : -order;
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
    });
  }
}
