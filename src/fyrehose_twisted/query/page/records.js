"use strict";

const SHOWN = 200; // records in a list
const OLDER = 50; // records that are put below it at once
const LONGEST = 4096; // characters of one that are shown

// Records of one stream

// The id before another, null for the first there can be. Numbers may be larger than those of JavaScript.
function preceding(id) {
  const [, epoch = "0", position] = /^(?:(\d+):)?(\d+)$/.exec(id);
  if (position !== "0") return `${epoch}:${BigInt(position) - 1n}`;
  return epoch === "0" ? null : `${BigInt(epoch) - 1n}:18446744073709551614`;
}

// What stands in the address for a stream and a filter.
const address = (name, where) => new URLSearchParams(where ? { stream: name, where } : { stream: name }).toString();
const titles = new Map(); // the stream of each name

class Records {
  constructor() {
    this.dialog = byId("records");
    this.stopped = null;
    this.paused = false;
    this.frame = 0;
    this.waiting = []; // events that are not in the list yet
    this.passed = 0;
    byId("close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => this.end());
    window.addEventListener("hashchange", () => this.follow());
    byId("pause").addEventListener("click", () => this.pause(!this.paused));
    byId("older").addEventListener("click", () => this.older());
    byId("filter").addEventListener("submit", (event) => {
      event.preventDefault();
      history.replaceState(null, "", "#" + address(this.name, byId("where").value.trim()));
      this.begin();
    });
  }

  // Show what the address names.
  follow() {
    const named = new URLSearchParams(location.hash.slice(1)), name = named.get("stream");
    if (!byId("login").hidden) return; // Once there is a token.
    if (name === null) {
      this.dialog.close();
      return;
    }
    const where = named.get("where") ?? "";
    if (this.dialog.open && this.name === name && byId("where").value.trim() === where) return;
    this.name = name;
    this.entitle();
    byId("where").value = where;
    if (!this.dialog.open) this.dialog.showModal();
    this.begin();
  }

  // The stream of a name is known once there is an overview.
  entitle() {
    const title = visible(titles.get(this.name) ?? this.name ?? "");
    if (byId("records-title").textContent !== title) byId("records-title").textContent = title;
  }

  end() {
    if (this.dialog.open) return; // Browsers tell of a closing later: it was opened again meanwhile.
    this.stopped?.abort();
    if (!byId("login").hidden) return; // The address opens it again once there is a token.
    history.replaceState(null, "", location.pathname + location.search);
    document.querySelector(`a[href="${CSS.escape("#" + address(this.name, ""))}"]`)?.focus();
  }

  pause(yes) {
    this.paused = yes;
    byId("pause").textContent = yes ? "Go on" : "Pause";
    this.say(yes ? "Paused" : this.state);
    if (yes) return;
    this.turn = {}; // What was asked before is of no use any more.
    // Below what goes on there are no older ones, or there would be a hole between them one day.
    byId("list").querySelectorAll("[data-older]").forEach((line) => line.remove());
    this.back = undefined; // the path of what is before the list; null at the beginning
    byId("older").disabled = false;
    byId("older-state").textContent = "";
    this.soon();
  }

  say(text) {
    if (byId("follow-state").textContent !== text) byId("follow-state").textContent = text;
  }

  // How the connection is; while paused it is not said.
  tell(state) {
    this.state = state;
    if (!this.paused) this.say(state);
  }

  refuse(message) {
    byId("where-error").textContent = message;
    byId("where").setAttribute("aria-invalid", String(message !== ""));
  }

  async begin() {
    this.stopped?.abort();
    const stopped = (this.stopped = new AbortController());
    byId("list").replaceChildren();
    byId("waiting").textContent = "";
    this.refuse("");
    this.waiting = [];
    this.passed = 0;
    this.state = "Connecting";
    this.pause(false);
    const path = `/streams/${encodeURIComponent(this.name)}/records`;
    const where = byId("where").value.trim();
    const filter = where ? `&where=${encodeURIComponent(where)}` : "";
    this.before = (id) => `${path}?last=${OLDER}${id === undefined ? "" : "&to=" + id}${filter}`;
    let id = null;
    for (let failures = 0; !stopped.signal.aborted; failures += 1) {
      try {
        const headers = id === null ? {} : { "Last-Event-ID": id };
        const query = id === null ? `?last=${where ? 1000 : 20}${filter}` : `?${filter.slice(1)}`;
        for await (const event of events("records", path + query, headers, stopped.signal)) {
          this.tell(where ? "Following what the filter takes of the last 1,000 records and of new ones" : "Following");
          failures = 0;
          if (event.id !== undefined) id = event.id;
          if (event.data !== null && event.event !== "position") this.take(event);
        }
      } catch (error) {
        if (stopped.signal.aborted) return;
        if (error.status === 409 && id !== null) {
          id = null; // The journal began anew, and does not know the id.
        } else if (error.status >= 400 && error.status < 500) {
          this.refuse(error.message);
          this.tell("");
          return;
        }
      }
      if (stopped.signal.aborted) return; // A later begin() tells of its own connection.
      this.tell("The service does not answer; trying again");
      await pause(RETRY[Math.min(failures, RETRY.length - 1)]);
    }
  }

  // What is before the list is put below it. Newer ones wait meanwhile, or they would push it out again.
  async older() {
    if (this.asking) return;
    this.pause(true);
    const list = byId("list"), stopped = this.stopped, turn = this.turn, oldest = list.lastChild?.dataset.id;
    this.asking = true;
    byId("older-state").textContent = "Asking";
    try {
      let lines = [], back = this.back;
      if (back === undefined && oldest !== undefined) back = preceding(oldest) && this.before(preceding(oldest));
      else back ??= this.before();
      if (back !== null) {
        const answer = await ask(back, { Accept: "application/x-ndjson" }, stopped.signal);
        lines = (await answer.text()).split("\n").slice(0, -1).reverse();
        if (turn !== this.turn) return;
        back = /<([^>]*)>; rel="prev"/.exec(answer.headers.get("Link"))?.[1] ?? null;
      }
      const made = lines.map((data) => this.line({ data, older: true }));
      list.append(...made);
      made[0]?.scrollIntoView({ block: "start" });
      this.back = back;
      byId("older").disabled = back === null;
      byId("older-state").textContent = many(lines.length, "older one", "older ones")
        + (back === null ? "; this is the beginning" : "");
    } catch (error) {
      if (!stopped.signal.aborted) byId("older-state").textContent = error.message;
    } finally {
      this.asking = false;
    }
  }

  // However fast they come, the list is changed once a frame, and only by those that stay in it.
  take(event) {
    this.waiting.push(event);
    this.passed += 1;
    if (this.waiting.length > SHOWN) this.waiting.shift();
    this.soon();
  }

  soon() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.show();
    });
  }

  show() {
    const text = this.paused && this.passed ? `(${many(this.passed, "newer one waits", "newer ones wait")})` : "";
    if (byId("waiting").textContent !== text) byId("waiting").textContent = text;
    if (this.paused) return;
    const list = byId("list");
    list.prepend(...this.waiting.splice(0).reverse().map((event) => this.line(event)));
    this.passed = 0;
    while (list.children.length > SHOWN) list.lastChild.remove();
  }

  line({ event, id, data, older }) {
    const content = parse(data);
    const made = element("li");
    if (id !== undefined) made.dataset.id = id;
    if (older) made.dataset.older = "";
    if (event === "skipped") {
      const said = `${whole.format(content.first)} to ${whole.format(content.last)} cannot be had`;
      made.append(element("span", { className: "said warn" }, said));
      return made;
    }
    const name = (content.epoch ? content.epoch + ":" : "") + content.sequence;
    const at = new Date(content.received_at / 1000).toISOString().slice(0, 23).replace("T", " ");
    // JSON as it was written, so that no digit of a number is lost.
    const payload = content.text ?? (content.data === undefined
      ? data.slice(data.indexOf('"json":') + 7, -1) : "base64 " + content.data);
    const more = payload.length - LONGEST;
    const cut = more > 0 ? `… and ${number(more)} more characters` : "";
    made.append(element("span", { className: "number" }, name),
      element("span", { className: "quiet number" }, at),
      element("span", { className: "payload" }, visible(payload.slice(0, LONGEST)) + cut));
    return made;
  }
}
