"use strict";

const RETRY = [1, 2, 4, 8, 15]; // seconds before it is tried again
const SILENCE = { overview: 10, records: 60 }; // seconds after which a stream that says nothing is dead

// Asking, with a token if one is needed

let token = sessionStorage.getItem("token");

async function ask(path, headers, signal) {
  const sent = { ...headers }, used = token;
  if (used) sent.Authorization = "Bearer " + used;
  const answer = await fetch(path, { headers: sent, signal, cache: "no-store" });
  // A refusal that comes late says nothing of a token that the operator has entered meanwhile.
  if (answer.status === 401 && used === token) logIn(used ? "The service does not know this token." : "");
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(said.message ?? `status ${answer.status}`), { status: answer.status });
  }
  return answer;
}

// A stream of events, read by hand: EventSource can send neither a token nor say why it was refused.
async function* events(kind, path, headers, signal) {
  const dead = new AbortController();
  const stop = () => dead.abort();
  signal?.addEventListener("abort", stop, { signal: dead.signal });
  let watchdog = setTimeout(stop, SILENCE[kind] * 1000);
  try {
    const answer = await ask(path, { Accept: "text/event-stream", ...headers }, dead.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(stop, SILENCE[kind] * 1000);
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const found = { event: "message", data: [], id: undefined };
        for (const line of block.split("\n")) {
          const [, name, content] = /^([^:]*):? ?(.*)$/.exec(line);
          if (name === "data") found.data.push(content);
          else if (name === "event" || name === "id") found[name] = content;
        }
        yield { ...found, data: found.data.length ? found.data.join("\n") : null };
      }
    }
  } finally {
    clearTimeout(watchdog);
    stop();
  }
}

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

function tell(kind, mark, text) {
  const state = byId("state");
  if (byId("state-text").textContent === text) return;
  state.className = "state " + kind;
  state.querySelector(".mark").textContent = mark;
  byId("state-text").textContent = text;
}

let entered = null;

function logIn(problem) {
  byId("login").hidden = false;
  byId("login-error").textContent = problem;
  token = null;
  sessionStorage.removeItem("token");
  records.dialog.close(); // The form is behind it.
  byId("token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem("token", token);
  byId("token").value = "";
  byId("login").hidden = true;
  entered?.();
  records.follow();
});
