"use strict";

// Rates of streams and services in the last hour. The service stores them, even while no page is open.

const HISTORY_INTERVAL = 10; // seconds between two requests
const NOTHING = { path: "", peak: 0 };
const plots = new Map();

function plotRates(rates) {
  const peak = Math.max(0, ...rates.map((rate) => rate ?? 0));
  let open = false;
  const path = rates.map((rate, step) => {
    if (rate === null) {
      open = false;
      return "";
    }
    const y = (19 - 18 * (peak ? rate / peak : 0)).toFixed(1);
    const line = (open ? `V${y}` : `M${step} ${y}`) + `H${step + 1}`;
    open = true;
    return line;
  }).join("");
  return { path, peak };
}

let requestedAt = -Infinity;

async function refreshHistory() {
  if (performance.now() < requestedAt + HISTORY_INTERVAL * 1000) return;
  requestedAt = performance.now();
  try {
    const { series } = await (await ask("/history", {})).json();
    plots.clear();
    for (const [name, rates] of Object.entries(series)) plots.set(name, plotRates(rates));
  } catch (error) {
    requestedAt -= (HISTORY_INTERVAL - 5) * 1000; // Keep the current plots and retry in 5 s.
  }
}
