// Time: positions of moments on the slider, and the figures above it.

const INSET = 8;  // Half the width of the slider's thumb.
const REACH_HEIGHT = 40;
const ROOTS_HEIGHT = 22;
const TICKS_HEIGHT = 12;

class Timeline {
  show(replay, history) {
    this.replay = replay;
    this.history = history;
    this.finish = Math.max(replay.recording.finish, 1e-9);
    this.mostRoots = history.reduce((most, {roots}) => Math.max(most, roots), 1);
    this.scale = this.isBursty() ? "changes" : "time";
  }

  // Return whether most changes fall into a small part of the time, too narrow to see.
  isBursty() {
    const {moments} = this.replay;
    if (moments.length < 20) return false;
    const gaps = moments.slice(1).map((t, i) => t - moments[i]).sort((a, b) => a - b);
    const half = gaps.slice(0, Math.floor(gaps.length * 0.7)).reduce((sum, gap) => sum + gap, 0);
    return half < 0.1 * this.finish;
  }

  // Convert a moment to a share of the slider, 0 to 1, and back.
  shareOf(t) {
    if (this.scale === "time") return t / this.finish;
    const {moments} = this.replay;
    const last = moments.length - 1;
    if (last < 1) return t / this.finish;
    const i = firstAbove(moments.length, (at) => moments[at], t) - 1;
    if (i >= last) return 1;
    return (i + (t - moments[i]) / (moments[i + 1] - moments[i])) / last;
  }

  momentOf(share) {
    const clipped = Math.max(0, share);
    if (clipped >= 1) return this.replay.recording.finish;
    const {moments} = this.replay;
    const last = moments.length - 1;
    if (this.scale === "time" || last < 1) return clipped * this.finish;
    const i = Math.min(last - 1, Math.floor(clipped * last));
    return moments[i] + (clipped * last - i) * (moments[i + 1] - moments[i]);
  }

  draw(t, colours) {
    const canvas = byId("timeline");
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    const context = cleared(canvas, width, height);
    const x = (moment) => INSET + this.shareOf(moment) * (width - 2 * INSET);
    const right = width - INSET;
    const reachBottom = 2 + REACH_HEIGHT;
    const rootsTop = reachBottom + 6;
    const rootsBottom = rootsTop + ROOTS_HEIGHT;
    this.drawSteps(context, x, right, ({reach}) => reachBottom - (reach || 0) * REACH_HEIGHT, reachBottom,
                   colours.accent);
    for (const {from, to, value} of this.spans(({roots}) => roots)) {
      const wide = Math.max(1, x(to) - x(from));
      const tall = value / this.mostRoots * ROOTS_HEIGHT;
      context.globalAlpha = value === 1 ? 0.45 : 0.9;
      context.fillStyle = value === 1 ? colours.lane : value === 0 ? colours.unrooted : colours.several;
      if (value) context.fillRect(x(from), rootsBottom - tall, wide, tall);
      else if (this.begun(from)) context.fillRect(x(from), rootsBottom - 3, wide, 3);
    }
    context.globalAlpha = 1;
    context.fillStyle = colours.line;
    context.fillRect(INSET, reachBottom, right - INSET, 1);
    context.fillRect(INSET, rootsBottom, right - INSET, 1);
    this.drawTicks(context, x, rootsBottom + 2, colours);
    context.font = `10.5px ${colours.text}`;
    context.textBaseline = "top";
    context.fillStyle = colours.soft;
    const marks = width < 500 ? 3 : 6;
    for (let i = 0; i <= marks; i++) {
      context.textAlign = i === 0 ? "left" : i === marks ? "right" : "center";
      context.fillText(span(this.momentOf(i / marks)), INSET + i / marks * (width - 2 * INSET), height - 12);
    }
    context.textAlign = "left";
    const roots = this.mostRoots > 1 ? `roots, up to ${this.mostRoots}` : "roots";
    for (const [text, y] of [["reach", 3], [roots, rootsTop]]) {
      context.fillStyle = colours.card;
      context.globalAlpha = 0.75;
      context.fillRect(INSET + 1, y, context.measureText(text).width + 6, 12);
      context.globalAlpha = 1;
      context.fillStyle = colours.soft;
      context.fillText(text, INSET + 4, y + 1);
    }
    context.fillStyle = colours.ink;
    context.fillRect(Math.round(x(t)) - 0.75, 0, 1.5, height - 14);
  }

  // Whether there was a root earlier.
  begun(t) {
    this.firstRoot ??= this.history.find(({roots}) => roots)?.t ?? Infinity;
    return t > this.firstRoot;
  }

  drawSteps(context, x, right, y, bottom, colour) {
    context.beginPath();
    let last = bottom;
    context.moveTo(INSET, bottom);
    for (const point of this.history) {
      context.lineTo(x(point.t), last);
      context.lineTo(x(point.t), last = y(point));
    }
    context.lineTo(right, last);
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = 1.5;
    context.stroke();
    context.lineTo(right, bottom);
    context.globalAlpha = 0.16;
    context.fill();
    context.globalAlpha = 1;
  }

  // Intervals of equal values.
  spans(valueOf) {
    const found = [];
    for (const point of this.history) {
      const value = valueOf(point);
      const last = found.at(-1);
      if (last) last.to = point.t;
      if (last?.value !== value) found.push({from: point.t, to: this.finish, value});
    }
    if (found.length) found.at(-1).to = this.finish;
    return found;
  }

  // Nodes that go down or up, and packets.
  drawTicks(context, x, y, colours) {
    const drawn = new Set();
    for (const {t, what, group} of this.replay.changes) {
      if (what !== "down" && what !== "up" && what !== "published" || group === "elsewhere") continue;
      const at = Math.round(x(t));
      const tick = `${at} ${what}`;
      if (drawn.has(tick)) continue;
      drawn.add(tick);
      context.fillStyle = {down: colours.unrooted, up: colours.accent, published: colours.soft}[what];
      if (what === "published") context.fillRect(at - 1, y + TICKS_HEIGHT - 3, 2, 3);
      else context.fillRect(at - 0.5, y, 1, TICKS_HEIGHT - 5);
    }
  }
}
