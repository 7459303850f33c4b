"use strict";

// How fast streams and services grew in the last hour; the service remembers it, also while no page is open.

const ASK = 10; // seconds between two questions
const NOTHING = { drawn: "", peak: 0 };
const plots = new Map();

function drawn(rates) {
  const peak = Math.max(0, ...rates.map((one) => one ?? 0));
  let open = false;
  const path = rates.map((one, step) => {
    if (one === null) {
      open = false;
      return "";
    }
    const y = (19 - 18 * (peak ? one / peak : 0)).toFixed(1);
    const line = (open ? `V${y}` : `M${step} ${y}`) + `H${step + 1}`;
    open = true;
    return line;
  }).join("");
  return { drawn: path, peak };
}

let askedAt = -Infinity;

async function remember() {
  if (performance.now() < askedAt + ASK * 1000) return;
  askedAt = performance.now();
  try {
    const { series } = await (await ask("/history", {})).json();
    plots.clear();
    for (const [name, rates] of Object.entries(series)) plots.set(name, drawn(rates));
  } catch (error) {
    askedAt -= (ASK - 5) * 1000; // What is drawn stays for a while.
  }
}
