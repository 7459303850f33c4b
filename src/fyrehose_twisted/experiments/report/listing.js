// List of changes. The document contains only the rows in view, as a recording has many thousands.

const ROW = 28;
const ROWS_AROUND = 6;

class Listing {
  constructor(chosen) {
    this.chosen = chosen;
    this.hidden = new Set(["elsewhere"]);
    this.rows = [];
    this.current = -1;
    byId("scroller").addEventListener("scroll", () => this.fill(), {passive: true});
    byId("rows").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.chosen(this.rows[button.dataset.row]);
    });
  }

  show(replay) {
    this.replay = replay;
    const counts = new Map(GROUPS.map((group) => [group, 0]));
    for (const {group} of replay.changes) counts.set(group, counts.get(group) + 1);
    byId("kinds").replaceChildren(...GROUPS.filter((group) => counts.get(group)).map((group) => {
      const chip = element("button", {type: "button"}, `${group} `,
                           element("span", {className: "number"}, counts.get(group).toLocaleString("en")));
      chip.setAttribute("aria-pressed", !this.hidden.has(group));
      chip.addEventListener("click", () => {
        if (!this.hidden.delete(group)) this.hidden.add(group);
        chip.setAttribute("aria-pressed", !this.hidden.has(group));
        this.filter();
        this.follow(this.replay.t);
      });
      return chip;
    }));
    this.filter();
  }

  filter() {
    this.rows = this.replay.changes.filter(({group}) => !this.hidden.has(group));
    byId("rows").style.height = `${this.rows.length * ROW}px`;
    this.drawn = "";
    this.current = -2;
  }

  // Return the time of the next listed change in a direction, or null.
  next(t, direction) {
    const above = firstAbove(this.rows.length, (i) => this.rows[i].t, t);
    if (direction > 0) return this.rows[above]?.t ?? null;
    let before = above - 1;
    while (before >= 0 && this.rows[before].t >= t) before--;
    return this.rows[before]?.t ?? (t > 0 ? 0 : null);
  }

  // Mark the last row up to t, and scroll it into view.
  follow(t) {
    const current = firstAbove(this.rows.length, (i) => this.rows[i].t, t) - 1;
    if (current === this.current) return;
    this.current = current;
    const scroller = byId("scroller");
    const top = Math.max(0, current) * ROW;
    if (top < scroller.scrollTop + ROW || top > scroller.scrollTop + scroller.clientHeight - 3 * ROW) {
      scroller.scrollTop = top - scroller.clientHeight / 2;
    }
    this.fill();
  }

  fill() {
    const scroller = byId("scroller");
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - ROWS_AROUND);
    const last = Math.min(this.rows.length,
                          Math.ceil((scroller.scrollTop + scroller.clientHeight) / ROW) + ROWS_AROUND);
    const drawn = `${first} ${last} ${this.current}`;
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const held = document.activeElement?.dataset?.row;
    const items = [];
    for (let i = first; i < last; i++) items.push(this.item(i));
    byId("rows").replaceChildren(...items);
    if (held !== undefined) byId("rows").querySelector(`[data-row="${held}"]`)?.focus({preventScroll: true});
  }

  item(i) {
    const {t, what, text, long} = this.rows[i];
    const {sign, effect} = KINDS.get(what);
    const mark = element("i", {}, sign);
    mark.setAttribute("aria-hidden", "true");
    const button = element("button", {type: "button", title: long}, element("time", {}, `${t.toFixed(3)} s`), mark,
                           element("span", {}, text));
    button.dataset.row = i;
    button.className = [effect < 0 ? "bad" : effect > 0 ? "good" : "", i > this.current ? "later" : ""].join(" ").trim();
    if (i === this.current) button.setAttribute("aria-current", "step");
    const item = element("li", {}, button);
    item.style.top = `${i * ROW}px`;
    item.setAttribute("aria-setsize", this.rows.length);
    item.setAttribute("aria-posinset", i + 1);
    return item;
  }
}
