// The scores of one camera over time, with the threshold.
import { clock, number } from "./words.js";

const HOUR_S = 3600;
const HIGH = 1.5; // the least that is shown, in thresholds
const MOST = 4; // scores above so many thresholds are drawn at the upper edge

export class Scores {
  constructor(canvas, name) {
    this.canvas = canvas;
    this.name = name;
    this.points = new Map();
    this.threshold = 1;
    this.now = 0;
  }

  set(points) {
    for (const [second, score] of points) this.add(second, score);
  }

  add(second, score) {
    this.points.set(second, Math.max(score, this.points.get(second) ?? -Infinity));
  }

  tell(threshold, now) {
    this.threshold = threshold;
    this.now = now;
    for (const second of this.points.keys()) {
      if (second < now - HOUR_S || second > now + 5) this.points.delete(second);
    }
  }

  draw(span) {
    const { canvas, threshold, now } = this;
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
    pen.strokeStyle = ink("--ink");
    pen.setLineDash([5, 4]);
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(0, y(threshold));
    pen.lineTo(wide, y(threshold));
    pen.stroke();
    pen.setLineDash([]);
    pen.font = "11px system-ui, sans-serif";
    const label = number(threshold);
    pen.fillStyle = ink("--card");
    pen.fillRect(0, y(threshold) - 15, pen.measureText(label).width + 4, 13);
    pen.fillStyle = ink("--ink");
    pen.fillText(label, 1, y(threshold) - 4);
    const highest = shown.length ? `highest ${number(Math.max(...shown.map(([, score]) => score)))}` : "none yet";
    canvas.setAttribute("aria-label", `Scores of ${this.name} since ${clock(now - span)}: ${highest}, threshold ${label}`);
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
