// The wall: a card for each camera with its people on black, drawn when something is new.
import { clear, drawSkeleton, drawZones, fit } from "./drawing.js";
import { Scores } from "./scores.js";
import { duration, element, sentence, times } from "./words.js";

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

// How many people cannot be judged, and why, in words.
const notJudged = (unsure) => {
  if (!unsure.length) return "";
  const reasons = new Set(unsure.map((one) => one.doubt));
  return `${unsure.length === 1 ? "1 person" : `${unsure.length} people`} ${[...reasons].join("; ")}`;
};

const LOADS = {
  busy: "The other frames are left out; fast movement may be missed.",
  overloaded: "People are judged by the frames that are left; fast movement may be missed. This machine is too slow for its cameras.",
  "not watching": "Most events are missed here. Ask the operator of this site to lower the rate of the cameras, choose smaller networks, or give the machine more cores.",
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
    this.limit = part(".limit");
    this.drift = part(".drift");
    this.doubt = part(".doubt");
    this.load = part(".load");
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
    const unsure = frame.people.filter((one) => one.doubt);
    this.doubt.hidden = !unsure.length;
    this.doubt.textContent = notJudged(unsure);
  }

  draw() {
    const pen = this.canvas.getContext("2d");
    clear(pen);
    if (!this.camera) return;
    const size = this.frame?.size ?? [16, 9];
    const view = fit(this.canvas, size);
    drawZones(pen, this.camera.zones, view, size);
    if (!this.frame || performance.now() - this.arrived > OLD_MS) return;
    const people = [...this.frame.people].sort((a, b) => (a.of ?? -1) - (b.of ?? -1));
    for (const one of people) this.drawPerson(pen, one, view);
    this.drawn += 1;
    this.box.dataset.drawn = this.drawn;
  }

  drawPerson(pen, one, view) {
    const ratio = devicePixelRatio || 1;
    const odd = one.of !== null && one.of >= 1 && !one.doubt;
    const seen = drawSkeleton(pen, one.xy, this.camera.bones, view, colour(one.doubt ? null : one.of), odd ? 3 : 2);
    if ((!odd && !one.doubt) || !seen.length) return;
    const x = seen.reduce((sum, place) => sum + place[0], 0) / seen.length;
    const y = Math.min(...seen.map((place) => place[1]));
    if (one.doubt) pen.fillStyle = "#aab4bd";
    pen.font = `${one.doubt ? 400 : 600} ${(one.doubt ? 11 : 13) * ratio}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.fillText(one.doubt ? "not judged" : `${times(one.of)} the limit`, x, Math.max(y - 8 * ratio, 14 * ratio));
    pen.textAlign = "start";
  }

  tell(camera, now) {
    this.camera = camera;
    const since = camera.since === null ? "" : ` for ${duration(Math.max(now - camera.since, 0))}`;
    const load = camera.load.state;
    this.box.dataset.state = camera.state;
    this.box.dataset.load = load;
    const online = load === "ok" ? "online" : load;
    const words = { online, offline: `offline${since}`, failed: "failed" }[camera.state];
    const said = load === "ok" ? "" : `${sentence(camera.load.words)}. ${camera.load.hangs ? "" : LOADS[load]}`.trimEnd();
    this.load.hidden = load === "ok";
    if (this.load.textContent !== said) this.load.textContent = said;
    if (this.state.textContent !== words) this.state.textContent = words;
    this.veil.hidden = camera.state === "online";
    this.veil.textContent = camera.reason || camera.state;
    const people = camera.people === 1 ? "1 person" : `${camera.people} people`;
    const parts = [
      camera.state === "online" ? people : null,
      camera.fps === null ? null : `${camera.fps.toFixed(1)} of ${camera.rate} frames/s`,
    ];
    this.numbers.textContent = parts.filter((one) => one).join(" · ");
    this.drift.hidden = !camera.drifted;
    this.drift.textContent = camera.drifted ? sentence(`${camera.drift}.`) : "";
    this.canvas.setAttribute("aria-label", `${camera.name}: ${words}, ${people} in view, no picture, skeletons only`);
    this.limit.textContent = camera.limit;
    this.limit.classList.toggle("none", camera.threshold === null);
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
    new ResizeObserver(() => this.drawScores()).observe(box);
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
    if (!cameras.length) this.box.replaceChildren(element("p", "note", "No cameras yet."));
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
