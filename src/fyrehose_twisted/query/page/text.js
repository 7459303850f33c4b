"use strict";

// Data from the network becomes text nodes, never markup.

const byId = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Control characters are made visible, so that they cannot hide adjacent text.
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function visible(text) {
  return text.replace(INVISIBLE, (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));
}

// Numbers and times

// Sequence numbers may be up to 2**62, which a double cannot represent exactly.
function exact(key, value, context) {
  const inexact = Number.isInteger(value) && !Number.isSafeInteger(value);
  return inexact && /^-?[0-9]+$/.test(context?.source ?? "") ? BigInt(context.source) : value;
}

const parse = (text) => JSON.parse(text, exact);
const before = (value) => (typeof value === "bigint" ? value - 1n : value - 1);

const whole = new Intl.NumberFormat("en");
const rough = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

function number(value) {
  if (value === undefined || value === null) return "–";
  return (Number.isSafeInteger(value) || typeof value === "bigint" ? whole : rough).format(value);
}

function rate(value) {
  if (value === undefined) return "–";
  return value < 100 ? rough.format(value) : whole.format(Math.round(value));
}

function size(value) {
  let unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    unit += 1;
  }
  return rough.format(value) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}

function age(seconds) {
  if (!(seconds >= 1)) return "now";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= length) return Math.floor(seconds / length) + " " + unit;
  }
  return Math.floor(seconds) + " s";
}

const some = (count, kind) => [number(count), count ? kind : ""];
const pluralize = (count, one, more) => `${number(count)} ${count === 1 ? one : more}`;
const named = (names) =>
  names.slice(0, 3).map(visible).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");
const utc = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
