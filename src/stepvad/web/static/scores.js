// The scores of one camera over time, with the limit; a click or Enter opens a moment.
import { clock, times } from "./words.js";

const HOUR_S = 3600;
const HIGH = 1.5; // the least that is shown, in thresholds
const MOST = 4; // scores above so many thresholds are drawn at the upper edge
const NEAR_PX = 7; // a click this near to a peak means the peak
const KEYS = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -30, PageUp: 30 };

export class Scores {
  constructor(canvas, name) {
    this.canvas = canvas;
    this.name = name;
    this.points = new Map();
    this.threshold = 1;
    this.isJudged = false;
    this.now = 0;
    this.span = 600;
    this.at = null; // the moment that is pointed at
    canvas.addEventListener("pointermove", (move) => this.point(move.offsetX));
    canvas.addEventListener("pointerleave", () => this.choose(null));
    canvas.addEventListener("blur", () => this.choose(null));
    canvas.addEventListener("click", (click) => {
      this.point(click.offsetX);
      this.open();
    });
    canvas.addEventListener("keydown", (key) => this.press(key));
  }

  // The second under the pointer, or the highest one near it.
  point(x) {
    const { width } = this.canvas.getBoundingClientRect();
    const second = (px) => Math.round(this.now - this.span * (1 - px / width));
    let best = second(x);
    for (let one = second(x - NEAR_PX); one <= second(x + NEAR_PX); one += 1) {
      const score = this.points.get(one) ?? -Infinity;
      if (score >= this.threshold && score > (this.points.get(best) ?? -Infinity)) best = one;
    }
    this.choose(best);
  }

  // Arrows move the moment by a second, Page keys by half a minute; Enter opens it.
  press(key) {
    if (key.ctrlKey || key.metaKey || key.altKey) return;
    const last = Math.floor(this.now);
    if (key.key === "Enter" || key.key === " ") {
      this.at ??= last;
      this.open();
    } else if (key.key === "Home") this.choose(last - this.span);
    else if (key.key === "End") this.choose(last);
    else if (KEYS[key.key]) this.choose((this.at ?? last) + KEYS[key.key]);
    else return;
    key.preventDefault();
  }

  choose(second) {
    this.at = second === null ? null : Math.min(Math.max(second, Math.ceil(this.now - this.span)), Math.floor(this.now));
    this.draw(this.span);
  }

  open() {
    if (this.at !== null) location.hash = `moment/${encodeURIComponent(this.name)}/${this.at}`;
  }

  set(points) {
    for (const [second, score] of points) this.add(second, score);
  }

  add(second, score) {
    this.points.set(second, Math.max(score, this.points.get(second) ?? -Infinity));
  }

  tell(threshold, now) {
    this.isJudged = threshold !== null;
    this.threshold = threshold ?? 1;
    this.now = now;
    for (const second of this.points.keys()) {
      if (second < now - HOUR_S || second > now + 5) this.points.delete(second);
    }
  }

  draw(span) {
    const { canvas, threshold, now } = this;
    this.span = span;
    const ratio = devicePixelRatio || 1;
    const { width: wide, height: high } = canvas.getBoundingClientRect();
    if (!wide) return;
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(high * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const style = getComputedStyle(canvas);
    const ink = (name) => style.getPropertyValue(name).trim();
    const shown = [...this.points].filter(([second]) => second >= now - span).sort((a, b) => a[0] - b[0]);
    const top = Math.max(...shown.map(([, score]) => score), HIGH * threshold);
    const most = Math.min(1.1 * top, MOST * threshold);
    const low = -0.08 * most;
    const x = (second) => wide * (1 - (now - second) / span);
    const y = (score) => (high - 1) * (1 - (Math.min(Math.max(score, low), most) - low) / (most - low));

    pen.strokeStyle = ink("--rule");
    pen.beginPath();
    pen.moveTo(0, y(0));
    pen.lineTo(wide, y(0));
    pen.stroke();
    this.drawLine(pen, shown, x, y, span, ink);
    if (this.isJudged) this.drawLimit(pen, wide, y(threshold), ink);
    if (this.at !== null) this.drawMoment(pen, x(this.at), high, wide, ink);
    this.say(shown, now, span);
  }

  drawLimit(pen, wide, y, ink) {
    pen.strokeStyle = ink("--ink");
    pen.setLineDash([5, 4]);
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(0, y);
    pen.lineTo(wide, y);
    pen.stroke();
    pen.setLineDash([]);
    pen.font = "11px system-ui, sans-serif";
    const label = "limit";
    pen.fillStyle = ink("--card");
    pen.fillRect(0, y - 15, pen.measureText(label).width + 4, 13);
    pen.fillStyle = ink("--ink");
    pen.fillText(label, 1, y - 4);
  }

  drawMoment(pen, x, high, wide, ink) {
    pen.strokeStyle = pen.fillStyle = ink("--link");
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, high);
    pen.stroke();
    const words = this.moment();
    const room = pen.measureText(words).width + 8;
    const left = x + room > wide ? x - room : x;
    pen.fillStyle = ink("--card");
    pen.fillRect(left + 2, 1, room - 4, 14);
    pen.fillStyle = ink("--ink");
    pen.fillText(words, left + 4, 12);
  }

  // The moment that is pointed at, and how high its score is.
  moment() {
    const score = this.points.get(this.at);
    return `${clock(this.at)}${score === undefined ? "" : `, ${times(Math.max(score, 0) / this.threshold)} the limit`}`;
  }

  say(shown, now, span) {
    const { canvas, threshold } = this;
    const highest = shown.length
      ? `highest ${times(Math.max(...shown.map(([, score]) => score), 0) / threshold)} the limit`
      : "none yet";
    canvas.setAttribute("aria-label", `Scores of ${this.name} since ${clock(now - span)}: ${highest}. Enter opens a moment`);
    canvas.setAttribute("aria-valuemin", Math.ceil(now - span));
    canvas.setAttribute("aria-valuemax", Math.floor(now));
    canvas.setAttribute("aria-valuenow", this.at ?? Math.floor(now));
    canvas.setAttribute("aria-valuetext", this.at === null ? "now" : this.moment());
  }

  // Broken where a second is missing; the part above the threshold in another colour.
  drawLine(pen, shown, x, y, span, ink) {
    const { threshold } = this;
    for (const [colour, wide, odd] of [[ink("--person"), 1.2, false], [ink("--heat"), 2, true]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = wide;
      pen.lineJoin = "round";
      pen.beginPath();
      let last = -Infinity;
      for (const [second, score] of shown) {
        if (odd && score < threshold) {
          last = -Infinity;
          continue;
        }
        if (second - last > Math.max(2, span / 300)) pen.moveTo(x(second) - 1, y(score));
        pen.lineTo(x(second), y(score));
        last = second;
      }
      pen.stroke();
    }
  }
}
