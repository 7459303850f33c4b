"use strict";

// Tables that update only changed cells

// Column widths do not depend on cells, so columns stay in place when a number grows.
const WEIGHTS = { address: 3.9, name: 2.8, text: 2, number: 1.9, wide: 2.3, plot: 2.4 };
const weight = (column) => column.weight
  ?? (column.plot ? "plot" : column.wide ? "wide" : column.number ? "number" : "text");

class Table {
  constructor(place, caption, columns) {
    this.columns = columns;
    this.rows = new Map();
    this.body = element("tbody");
    const head = element("tr"), widths = element("colgroup");
    const total = columns.reduce((sum, column) => sum + WEIGHTS[weight(column)], 0);
    for (const column of columns) {
      head.append(element("th", { scope: "col", className: column.number ? "number" : "" }, column.title));
      const width = element("col");
      width.style.width = `${(100 * WEIGHTS[weight(column)]) / total}%`;
      widths.append(width);
    }
    this.caption = element("caption", {}, caption);
    this.box = element("table", {}, this.caption, widths, element("thead", {}, head), this.body);
    place.append(this.box);
  }

  show(items) {
    const seen = new Set();
    items.forEach((item, index) => {
      seen.add(item.key);
      let row = this.rows.get(item.key);
      if (!row) {
        row = this.make(item);
        this.rows.set(item.key, row);
      }
      this.columns.forEach((column, at) => this.fill(row.cells[at], column, item));
      const stale = item.state === "down";
      if (stale !== row.stale) row.line.classList.toggle("stale", (row.stale = stale));
      if (this.body.children[index] !== row.line) this.body.insertBefore(row.line, this.body.children[index] ?? null);
    });
    for (const [key, row] of this.rows) {
      if (!seen.has(key)) {
        row.line.remove();
        this.rows.delete(key);
      }
    }
  }

  make(item) {
    const line = element("tr");
    const cells = this.columns.map((column, index) => {
      const kind = column.wide ? "number wide" : column.number ? "number" : index ? "" : "name";
      const cell = element(index ? "td" : "th", { className: kind });
      if (index) cell.dataset.label = column.title;
      else cell.scope = "row";
      let inner = cell, peak = null;
      if (column.open) {
        inner = element("a", { href: column.open(item.key) });
        cell.append(inner);
      } else if (column.plot) {
        const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        inner = document.createElementNS("http://www.w3.org/2000/svg", "path");
        svg.setAttribute("class", "spark");
        svg.setAttribute("viewBox", "0 0 360 20");
        svg.setAttribute("preserveAspectRatio", "none");
        svg.setAttribute("aria-hidden", "true");
        inner.setAttribute("vector-effect", "non-scaling-stroke");
        svg.append(inner);
        peak = element("span", { className: "peak" });
        cell.append(element("span", { className: "plot" }, svg, peak));
      }
      line.append(cell);
      return { inner, cell, peak, shown: null, kind: null };
    });
    return { line, cells, stale: false };
  }

  fill(place, column, item) {
    const value = column.value(item);
    if (column.plot) {
      if (value.path !== place.shown) place.inner.setAttribute("d", value.path);
      place.shown = value.path;
      const peak = value.path ? compact.format(value.peak) : "–";
      if (peak !== place.kind) place.peak.textContent = place.kind = peak;
      return;
    }
    const [text, kind] = Array.isArray(value) ? value : [value, ""];
    if (text !== place.shown) place.inner.textContent = place.shown = text;
    if (kind !== place.kind) {
      if (place.kind) place.cell.classList.remove(place.kind);
      if (kind) place.cell.classList.add(kind);
      place.kind = kind;
    }
  }
}

