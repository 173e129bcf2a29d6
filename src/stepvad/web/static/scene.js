// Plays some seconds of a camera: everybody in view, the one who decided strongly, the rest faintly.
import { clear, drawSkeleton, drawZones, fit } from "./drawing.js";
import { clock, element } from "./words.js";

const OTHERS = "#9fb4c4";
const INVOLVED = "#f0b232";
const DECIDING = "#ff6a2c";
const GHOST = "rgb(140 196 236 / 0.8)";
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class ScenePlayer {
  // `told` is the explanation of an event, if there is one; `moved` hears every frame shown.
  constructor(box, scene, { camera = null, told = null, moved = () => {} } = {}) {
    Object.assign(this, { box, scene, camera, told, moved });
    this.rows = scene.people.map((one) => new Map(one.frames.map((frame, n) => [frame, one.xy[n]])));
    this.frame = scene.at ?? 0;
    this.running = false;
    this.build();
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(this.canvas);
    this.resize();
    if (!calm.matches && scene.n_frames > 1) {
      this.frame = 0;
      this.start(true);
    }
  }

  build() {
    const { scene } = this;
    this.canvas = element("canvas", "replay");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", this.says());
    this.canvas.style.aspectRatio = `${scene.size[0]} / ${scene.size[1]}`;
    this.button = element("button", "play", "Play");
    this.button.type = "button";
    this.seek = element("input", "seek");
    Object.assign(this.seek, { type: "range", min: 0, max: scene.n_frames - 1, step: 1 });
    this.seek.setAttribute("aria-label", "moment");
    this.time = element("output", "clock");
    const half = element("label");
    this.slow = Object.assign(element("input"), { type: "checkbox" });
    half.append(this.slow, " half speed");
    const controls = element("div", "controls");
    controls.append(this.button, this.seek, this.time, half);
    this.button.addEventListener("click", () => (this.running ? this.pause() : this.start(false)));
    this.seek.addEventListener("input", () => {
      this.pause();
      this.show(Number(this.seek.value));
    });
    this.box.replaceChildren(this.canvas, controls);
  }

  says() {
    const n = this.scene.people.length;
    const people = n === 1 ? "1 person" : `${n} people`;
    return `${this.scene.camera}: ${people} in these seconds, skeletons only`;
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    const { width, height } = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.max(Math.round(width * ratio), 1);
    this.canvas.height = Math.max(Math.round(height * ratio), 1);
    this.show(this.frame);
  }

  show(frame) {
    this.frame = Math.min(Math.max(frame, 0), this.scene.n_frames - 1);
    this.draw();
    this.seek.value = this.frame;
    const words = this.when();
    this.seek.setAttribute("aria-valuetext", words);
    this.time.textContent = words;
    this.box.dataset.frame = this.frame;
    this.moved(this.frame);
  }

  when() {
    const { scene, frame } = this;
    if (scene.start !== null) return clock(scene.start + frame / scene.fps);
    const off = (frame - (scene.at ?? 0)) / scene.fps;
    if (scene.at !== null && Math.abs(off) < 0.05) return "at the peak";
    return scene.at === null ? `${off.toFixed(1)} s` : `${Math.abs(off).toFixed(1)} s ${off < 0 ? "before" : "after"}`;
  }

  draw() {
    const { scene, canvas } = this;
    const pen = canvas.getContext("2d");
    const view = fit(canvas, scene.size);
    clear(pen);
    drawZones(pen, this.camera?.zones ?? {}, view, scene.size);
    const alone = scene.deciding === null; // a moment has nobody who decided
    const rank = (one) => (one.track === scene.deciding ? 2 : scene.involved.includes(one.track) ? 1 : 0);
    const order = scene.people.map((one, n) => [rank(one), n]).sort((a, b) => a[0] - b[0]);
    for (const [rank, n] of order) {
      const xy = this.rows[n].get(this.frame);
      if (!xy) continue;
      if (rank === 2) this.drawGhost(pen, view);
      pen.globalAlpha = rank || alone ? 1 : 0.6;
      drawSkeleton(pen, xy, scene.bones, view, [alone ? "#8fbee0" : OTHERS, INVOLVED, DECIDING][rank], rank === 2 ? 3.5 : 2);
      pen.globalAlpha = 1;
    }
  }

  // The nearest normal motion, where it is known: in tenths of pixels.
  drawGhost(pen, view) {
    const joints = this.told?.motion.ghost[this.scene.first + this.frame - this.told.motion.first];
    if (!joints || this.told.track !== this.scene.deciding) return;
    drawSkeleton(pen, joints.map((place) => place / 10), this.told.motion.bones, view, GHOST, 6);
  }

  explain(told) {
    this.told = told;
    this.show(this.frame);
  }

  start(once) {
    this.running = true;
    this.once = once;
    this.owed = 0;
    this.before = performance.now();
    if (this.frame >= this.scene.n_frames - 1) this.frame = 0;
    this.button.textContent = "Pause";
    requestAnimationFrame((now) => this.step(now));
  }

  step(now) {
    if (!this.running) return;
    const passed = Math.min(Math.max(now - this.before, 0), 100);
    this.owed += (passed / 1000) * this.scene.fps * (this.slow.checked ? 0.5 : 1);
    this.before = now;
    const steps = Math.floor(this.owed);
    if (steps) {
      this.owed -= steps;
      const next = this.frame + steps;
      if (next < this.scene.n_frames) this.show(next);
      else if (this.once) {
        this.pause();
        this.show(this.scene.at ?? this.scene.n_frames - 1);
        return;
      } else this.show(0);
    }
    requestAnimationFrame((later) => this.step(later));
  }

  pause() {
    this.running = false;
    this.button.textContent = "Play";
  }

  leave() {
    this.pause();
    this.watch.disconnect();
  }
}
