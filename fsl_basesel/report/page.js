// Hover, search, sorting and filters. Everything the page says is there without them.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const make = (name, text, kind) => {
    const element = document.createElement(name);
    if (text) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };

  // One tip for all figures: what a mark's title says, with the picture of its class.
  const tip = make("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  const fill = (text, place) => {
    const [first, ...rest] = text.split("\n");
    const words = make("div");
    words.append(make("b", first), make("span", rest.join("\n"), "more"));
    tip.replaceChildren(words);
    if (place) {
      const [column, row] = place.split(" ");
      const picture = make("span", "", "pic");
      picture.style.setProperty("--c", column);
      picture.style.setProperty("--r", row);
      tip.prepend(picture);
    }
  };
  const move = (event) => {
    const box = tip.getBoundingClientRect();
    const right = event.clientX + 16 + box.width > innerWidth;
    const below = event.clientY + 16 + box.height > innerHeight;
    tip.style.left = `${Math.max(4, right ? event.clientX - 16 - box.width : event.clientX + 16)}px`;
    tip.style.top = `${Math.max(4, below ? event.clientY - 16 - box.height : event.clientY + 16)}px`;
  };

  const map = document.getElementById("map");
  const points = [];
  const serves = new Map();
  if (map) {
    for (const point of map.querySelectorAll(".p")) points[point.dataset.i] = point;
    for (const point of points) {
      for (const other of (point.dataset.n || "").split(" ").filter(Boolean)) {
        if (!serves.has(other)) serves.set(other, []);
        serves.get(other).push(point.dataset.i);
      }
    }
  }
  const middle = (point) => {
    const box = point.getBBox();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const connect = (point) => {
    const lines = map.querySelector(".links");
    lines.replaceChildren();
    if (!point) return;
    const others = (point.dataset.n || "").split(" ").filter(Boolean);
    for (const other of others.concat(serves.get(point.dataset.i) || [])) {
      const line = document.createElementNS(SVG, "line");
      const [x1, y1] = middle(point);
      const [x2, y2] = middle(points[other]);
      for (const [key, value] of Object.entries({ x1, y1, x2, y2 })) line.setAttribute(key, value);
      lines.append(line);
    }
  };

  for (const mark of document.querySelectorAll("svg .p, svg .col, svg circle")) {
    const title = mark.querySelector(":scope > title");
    if (!title) continue;
    const text = title.textContent;
    title.remove(); // or the browser would show it as well
    mark.setAttribute("aria-label", text);
    mark.addEventListener("pointerenter", (event) => {
      fill(text, mark.dataset.p);
      tip.hidden = false;
      move(event);
      if (map && map.contains(mark)) connect(mark);
    });
    mark.addEventListener("pointermove", move);
    mark.addEventListener("pointerleave", () => {
      tip.hidden = true;
      if (map && map.contains(mark)) connect(null);
    });
  }

  if (map) {
    const tools = make("div", "", "tools");
    const label = make("label", "Find a class ");
    const input = make("input");
    const count = make("span");
    input.type = "search";
    count.setAttribute("role", "status");
    label.append(input);
    tools.append(label, count);
    document.getElementById("map-tools").append(tools);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      let found = 0;
      for (const point of points) {
        const lit = Boolean(wanted) && point.getAttribute("aria-label").toLowerCase().includes(wanted);
        point.classList.toggle("lit", lit);
        found += lit;
      }
      map.classList.toggle("faded", Boolean(wanted));
      count.textContent = wanted ? `${found} found` : "";
    });
  }

  // Tables sort by the numbers in `data-v`, or by their text.
  for (const table of document.querySelectorAll("table.sortable")) {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = make("button", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "descending";
        for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = (row) => {
          const cell = row.cells[column];
          return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
        };
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const [one, two] = [key(a), key(b)];
          const order = typeof one === "number" && typeof two === "number" ? one - two : String(one).localeCompare(String(two));
          return up ? order : -order;
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  // The tables of methods: choose domain, setting, m, head, shots.
  const place = document.getElementById("method-tools");
  const tables = [...document.querySelectorAll("table.methods")];
  if (place && tables.length > 1) {
    const tools = make("div", "", "tools");
    const chosen = {};
    const apply = () => {
      for (const table of tables) {
        const key = JSON.parse(table.dataset.key);
        table.hidden = Object.entries(chosen).some(([name, value]) => value && String(key[name]) !== value);
      }
    };
    const keys = tables.map((table) => JSON.parse(table.dataset.key));
    for (const name of Object.keys(keys[0])) {
      const values = [...new Set(keys.map((key) => String(key[name])))];
      if (values.length < 2) continue;
      const select = make("select");
      const all = make("option", "all");
      all.value = "";
      select.append(all, ...values.map((value) => make("option", value)));
      select.addEventListener("change", () => {
        chosen[name] = select.value;
        apply();
      });
      const label = make("label", `${name} `);
      label.append(select);
      tools.append(label);
    }
    place.append(tools);
  }
})();
