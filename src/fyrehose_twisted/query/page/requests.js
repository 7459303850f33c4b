"use strict";

const RETRY = [1, 2, 4, 8, 15]; // seconds before each retry
const TIMEOUT = { overview: 10, records: 60 }; // seconds without data after which a stream is closed

// Requests, with a token if required

let token = sessionStorage.getItem("token");

async function ask(path, headers, signal) {
  const sent = { ...headers }, used = token;
  if (used) sent.Authorization = "Bearer " + used;
  const answer = await fetch(path, { headers: sent, signal, cache: "no-store" });
  // A late refusal does not apply to a token entered in the meantime.
  if (answer.status === 401 && used === token) logIn(used ? "The token is invalid." : "");
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(problem.message ?? `status ${answer.status}`), { status: answer.status });
  }
  return answer;
}

// Server-sent events, read without EventSource, which can neither send a token nor report why it was refused.
async function* events(kind, path, headers, signal) {
  const aborter = new AbortController();
  const stop = () => aborter.abort();
  signal?.addEventListener("abort", stop, { signal: aborter.signal });
  let watchdog = setTimeout(stop, TIMEOUT[kind] * 1000);
  try {
    const answer = await ask(path, { Accept: "text/event-stream", ...headers }, aborter.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(stop, TIMEOUT[kind] * 1000);
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

function showConnection(kind, mark, text) {
  const state = byId("state");
  if (byId("state-text").textContent === text) return;
  state.className = "state " + kind;
  state.querySelector(".mark").textContent = mark;
  byId("state-text").textContent = text;
}

let onToken = null; // resolves when the operator has entered a token

function logIn(problem) {
  byId("login").hidden = false;
  byId("login-error").textContent = problem;
  token = null;
  sessionStorage.removeItem("token");
  records.dialog.close(); // The dialog covers the form.
  byId("token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem("token", token);
  byId("token").value = "";
  byId("login").hidden = true;
  onToken?.();
  records.follow();
});
