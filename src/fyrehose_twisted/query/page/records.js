"use strict";

const SHOWN = 200; // records in a list
const OLDER = 50; // older records loaded at once
const LONGEST = 4096; // characters of a record that are shown

// Records of one stream

// Return the preceding id, or null for the lowest possible. Ids may exceed JavaScript's safe integers.
function preceding(id) {
  const [, epoch = "0", position] = /^(?:(\d+):)?(\d+)$/.exec(id);
  if (position !== "0") return `${epoch}:${BigInt(position) - 1n}`;
  return epoch === "0" ? null : `${BigInt(epoch) - 1n}:18446744073709551614`;
}

// Fragment of the page's address for a stream and a filter.
const address = (name, where) => new URLSearchParams(where ? { stream: name, where } : { stream: name }).toString();
const titles = new Map(); // stream URIs by name

class Records {
  constructor() {
    this.dialog = byId("records");
    this.stopped = null;
    this.paused = false;
    this.frame = 0;
    this.waiting = []; // events not yet in the list
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

  // Show the stream that the address names.
  follow() {
    const named = new URLSearchParams(location.hash.slice(1)), name = named.get("stream");
    if (!byId("login").hidden) return; // Called again after a token is entered.
    if (name === null) {
      this.dialog.close();
      return;
    }
    const where = named.get("where") ?? "";
    if (this.dialog.open && this.name === name && byId("where").value.trim() === where) return;
    this.name = name;
    this.showTitle();
    byId("where").value = where;
    if (!this.dialog.open) this.dialog.showModal();
    this.begin();
  }

  // The stream's URI is known after the first overview.
  showTitle() {
    const title = visible(titles.get(this.name) ?? this.name ?? "");
    if (byId("records-title").textContent !== title) byId("records-title").textContent = title;
  }

  end() {
    if (this.dialog.open) return; // The close event is asynchronous: the dialog may be open again.
    this.stopped?.abort();
    if (!byId("login").hidden) return; // Keep the address, which reopens the dialog after login.
    history.replaceState(null, "", location.pathname + location.search);
    document.querySelector(`a[href="${CSS.escape("#" + address(this.name, ""))}"]`)?.focus();
  }

  pause(yes) {
    this.paused = yes;
    byId("pause").textContent = yes ? "Resume" : "Pause";
    this.showState(yes ? "Paused" : this.state);
    if (yes) return;
    this.turn = {}; // Discard the results of earlier requests.
    // Remove older records: the live list is trimmed at its end, which would leave a gap above them.
    byId("list").querySelectorAll("[data-older]").forEach((line) => line.remove());
    this.back = undefined; // path of the next older page; null at the start of the stream
    byId("older").disabled = false;
    byId("older-state").textContent = "";
    this.schedule();
  }

  showState(text) {
    if (byId("follow-state").textContent !== text) byId("follow-state").textContent = text;
  }

  // Set the state of the connection, which is not shown while paused.
  setState(state) {
    this.state = state;
    if (!this.paused) this.showState(state);
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
          this.setState(where ? "Following matches in the last 1,000 records and in new ones" : "Following");
          failures = 0;
          if (event.id !== undefined) id = event.id;
          if (event.data !== null && event.event !== "position") this.take(event);
        }
      } catch (error) {
        if (stopped.signal.aborted) return;
        if (error.status === 409 && id !== null) {
          id = null; // The journal was replaced and has no such id.
        } else if (error.status >= 400 && error.status < 500) {
          this.refuse(error.message);
          this.setState("");
          return;
        }
      }
      if (stopped.signal.aborted) return; // A later begin() reports its own connection.
      this.setState("No reply from the service; retrying");
      await pause(RETRY[Math.min(failures, RETRY.length - 1)]);
    }
  }

  // Append older records below the list. Following pauses, or new records would push them out again.
  async older() {
    if (this.loading) return;
    this.pause(true);
    const list = byId("list"), stopped = this.stopped, turn = this.turn, oldest = list.lastChild?.dataset.id;
    this.loading = true;
    byId("older-state").textContent = "Loading";
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
      byId("older-state").textContent = pluralize(lines.length, "older record", "older records")
        + (back === null ? "; start of the journal" : "");
    } catch (error) {
      if (!stopped.signal.aborted) byId("older-state").textContent = error.message;
    } finally {
      this.loading = false;
    }
  }

  // Update the list at most once per frame, and only with records that remain in it.
  take(event) {
    this.waiting.push(event);
    this.passed += 1;
    if (this.waiting.length > SHOWN) this.waiting.shift();
    this.schedule();
  }

  schedule() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.show();
    });
  }

  show() {
    const text = this.paused && this.passed ? `(${pluralize(this.passed, "newer record", "newer records")})` : "";
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
      const gap = `${whole.format(content.first)} to ${whole.format(content.last)} are not available`;
      made.append(element("span", { className: "gap warn" }, gap));
      return made;
    }
    const name = (content.epoch ? content.epoch + ":" : "") + content.sequence;
    const at = new Date(content.received_at / 1000).toISOString().slice(0, 23).replace("T", " ");
    // The original JSON text: parsing would lose digits of large numbers.
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
