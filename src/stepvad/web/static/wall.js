// The wall: a card for each camera with its people on black, drawn when something is new.
import { Scores } from "./scores.js";
import { duration, element, number } from "./words.js";

const CALM = [143, 190, 224];
const NEAR = [240, 178, 50];
const ODD = [255, 106, 44];
const YOUNG = "#6b757e";
const NEAR_FROM = 0.6; // of the threshold
const OLD_MS = 3000; // people of an older frame are not shown as if they were there

const mix = (a, b, share) => a.map((v, k) => Math.round(v + share * (b[k] - v)));

// From calm to odd by the share of the threshold that a score has.
const colour = (share) => {
  if (share === null) return YOUNG;
  if (share >= 1) return `rgb(${ODD})`;
  if (share <= NEAR_FROM) return `rgb(${CALM})`;
  return `rgb(${mix(CALM, NEAR, Math.sqrt((share - NEAR_FROM) / (1 - NEAR_FROM)))})`;
};

class Card {
  constructor(name, template) {
    this.box = template.content.cloneNode(true).firstElementChild;
    const part = (kind) => this.box.querySelector(kind);
    this.box.dataset.camera = name;
    this.name = name;
    this.canvas = part(".people");
    this.veil = part(".veil");
    this.state = part(".state");
    this.numbers = part(".numbers");
    this.drift = part(".drift");
    this.doubt = part(".doubt");
    part("h3").textContent = name;
    this.scores = new Scores(part(".scores"), name);
    this.camera = null;
    this.frame = null;
    this.arrived = 0;
    this.drawn = 0;
    new ResizeObserver(() => this.fit()).observe(this.canvas);
  }

  fit() {
    const ratio = devicePixelRatio || 1;
    const { width, height } = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.draw();
  }

  show(frame) {
    if (!this.frame || String(this.frame.size) !== String(frame.size)) {
      this.canvas.style.aspectRatio = `${frame.size[0]} / ${frame.size[1]}`;
    }
    this.frame = frame;
    this.arrived = performance.now();
    const counted = frame.people.filter((one) => one.score !== null && !one.doubt);
    const scores = counted.map((one) => one.score);
    if (scores.length) this.scores.add(Math.floor(frame.t), Math.max(...scores));
    // the highest score that does not count, if it would have been an event
    const unsure = frame.people.filter((one) => one.doubt && one.of >= 1).sort((a, b) => b.of - a.of)[0];
    this.doubt.hidden = !unsure;
    this.doubt.textContent = unsure ? `Score ${number(unsure.score)}, ${unsure.doubt}` : "";
  }

  draw() {
    const pen = this.canvas.getContext("2d");
    const { width, height } = this.canvas;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = "#000000";
    pen.fillRect(0, 0, width, height);
    this.drawZones(pen, width, height);
    if (!this.frame || !this.camera || performance.now() - this.arrived > OLD_MS) return;
    const scale = Math.min(width / this.frame.size[0], height / this.frame.size[1]);
    const left = (width - scale * this.frame.size[0]) / 2;
    const people = [...this.frame.people].sort((a, b) => (a.of ?? -1) - (b.of ?? -1));
    for (const one of people) this.drawPerson(pen, one, scale, left);
    this.drawn += 1;
    this.box.dataset.drawn = this.drawn;
  }

  drawZones(pen, width, height) {
    if (!this.camera) return;
    const ratio = devicePixelRatio || 1;
    pen.lineWidth = ratio;
    pen.font = `${11 * ratio}px system-ui, sans-serif`;
    for (const [name, corners] of Object.entries(this.camera.zones)) {
      pen.beginPath();
      for (const [x, y] of corners) pen.lineTo(x * width, y * height);
      pen.closePath();
      pen.fillStyle = "rgb(86 180 233 / 0.07)";
      pen.fill();
      pen.strokeStyle = "rgb(86 180 233 / 0.35)";
      pen.stroke();
      const [x, y] = corners.reduce((a, b) => (a[0] + a[1] < b[0] + b[1] ? a : b));
      pen.fillStyle = "rgb(160 205 236 / 0.75)";
      pen.fillText(name, x * width + 5 * ratio, y * height + 14 * ratio);
    }
  }

  drawPerson(pen, one, scale, left) {
    const ratio = devicePixelRatio || 1;
    const odd = one.of !== null && one.of >= 1 && !one.doubt;
    const at = (n) => (one.xy[2 * n] === null ? null : [left + scale * one.xy[2 * n], scale * one.xy[2 * n + 1]]);
    pen.strokeStyle = pen.fillStyle = colour(one.doubt ? null : one.of);
    pen.lineWidth = (odd ? 3 : 2) * ratio;
    pen.lineCap = pen.lineJoin = "round";
    pen.beginPath();
    for (const [first, ...others] of this.camera.bones) {
      const ends = [first, ...others].map(at);
      if (ends.some((end) => end === null)) continue;
      const [from, ...to] = ends;
      pen.moveTo(...from);
      pen.lineTo(...[0, 1].map((k) => to.reduce((sum, end) => sum + end[k], 0) / to.length));
    }
    pen.stroke();
    const seen = one.xy.map((_, n) => (n % 2 ? null : at(n / 2))).filter((place) => place !== null);
    if (!this.camera.bones.length) for (const [x, y] of seen) pen.fillRect(x - ratio, y - ratio, 2 * ratio, 2 * ratio);
    if (!odd || !seen.length) return;
    const x = seen.reduce((sum, place) => sum + place[0], 0) / seen.length;
    const y = Math.min(...seen.map((place) => place[1]));
    pen.font = `600 ${13 * ratio}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.fillText(number(one.score), x, Math.max(y - 8 * ratio, 14 * ratio));
    pen.textAlign = "start";
  }

  tell(camera, now) {
    this.camera = camera;
    const since = camera.since === null ? "" : ` for ${duration(Math.max(now - camera.since, 0))}`;
    this.box.dataset.state = camera.state;
    const words = { online: "online", offline: `offline${since}`, failed: "given up" }[camera.state];
    if (this.state.textContent !== words) this.state.textContent = words;
    this.veil.hidden = camera.state === "online";
    this.veil.textContent = camera.reason || camera.state;
    const people = camera.people === 1 ? "1 person" : `${camera.people} people`;
    const parts = [
      camera.state === "online" ? people : null,
      camera.fps === null ? null : `${camera.fps.toFixed(1)} of ${camera.rate} frames/s`,
      camera.counts.shed ? `${camera.counts.shed.toLocaleString("en")} shed` : null,
    ];
    this.numbers.textContent = parts.filter((one) => one).join(" · ");
    this.drift.hidden = !camera.drifted;
    this.drift.textContent = camera.drifted ? `Looks different: ${camera.drift}` : "";
    this.canvas.setAttribute("aria-label", `${camera.name}: ${words}, ${people} in view, no picture, skeletons only`);
    this.scores.tell(camera.threshold, now);
  }
}

export class Wall {
  constructor(box, span) {
    this.box = box;
    this.cards = new Map();
    this.template = document.getElementById("card");
    this.span = span;
    this.dirty = new Set();
    this.due = false;
    span.addEventListener("change", () => this.drawScores());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawScores());
  }

  showCameras(cameras, now) {
    for (const camera of cameras) {
      if (!this.cards.has(camera.name)) {
        const card = new Card(camera.name, this.template);
        this.cards.set(camera.name, card);
        this.box.append(card.box);
      }
      this.cards.get(camera.name).tell(camera, now);
    }
    for (const [name, card] of this.cards) {
      if (cameras.some((camera) => camera.name === name)) continue;
      card.box.remove();
      this.cards.delete(name);
    }
    this.box.dataset.cameras = this.cards.size;
    if (!cameras.length) this.box.replaceChildren(element("p", "note", "There is no camera yet."));
    this.drawScores();
    this.draw(...this.cards.keys());
  }

  showFrames(frames) {
    for (const [name, frame] of Object.entries(frames)) this.cards.get(name)?.show(frame);
    this.draw(...Object.keys(frames));
  }

  setTimeline(timeline) {
    this.cards.get(timeline.camera)?.scores.set(timeline.points);
  }

  drawScores() {
    for (const card of this.cards.values()) card.scores.draw(Number(this.span.value));
  }

  // At most once for each picture of the screen, however many frames come.
  draw(...names) {
    names.forEach((name) => this.dirty.add(name));
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      for (const name of this.dirty) this.cards.get(name)?.draw();
      this.dirty.clear();
    });
  }
}
