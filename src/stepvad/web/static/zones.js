// Zones over the skeletons of a camera: drawn by clicks, moved by dragging, or written as numbers.
import { element } from "./words.js";

const REACH_PX = 14;
const STEP = 1000; // a click is exact to a thousandth of the picture
const LEAST = 3;
const TALLEST = "60vh"; // so that all of an upright picture can be seen at once

const fraction = (value) => Math.round(Math.min(Math.max(value, 0), 1) * STEP) / STEP;

const labelled = (words, input) => {
  const label = element("label", "", words);
  label.append(input);
  return label;
};

const button = (words, act, kind = "plain") => {
  const made = element("button", kind, words);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
};

export class Zones {
  constructor(changed) {
    this.changed = changed;
    this.canvas = document.getElementById("picture");
    this.box = document.getElementById("zones");
    this.undoButton = document.getElementById("undo");
    this.camera = null;
    this.chosen = null;
    this.frame = null;
    this.held = null;
    this.past = [];
    document.getElementById("new-zone").addEventListener("click", () => this.add());
    this.undoButton.addEventListener("click", () => this.undo());
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const end of ["pointerup", "pointercancel"]) this.canvas.addEventListener(end, () => (this.held = null));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  show(camera) {
    this.camera = camera;
    this.chosen = null;
    this.held = null;
    this.past = [];
    this.frame = null;
    this.list();
  }

  // A frame: its size, people as lists of joints in pixels, and the bones between them.
  setFrame(frame) {
    this.frame = frame;
    const [width, height] = frame?.size ?? [16, 9];
    this.canvas.style.aspectRatio = `${width} / ${height}`;
    this.canvas.style.maxWidth = `calc(${TALLEST} * ${width / height})`;
    this.draw();
  }

  remember() {
    this.past.push(JSON.stringify(this.camera.zones));
    this.undoButton.disabled = false;
  }

  undo() {
    const before = this.past.pop();
    if (before === undefined) return;
    this.camera.zones = JSON.parse(before);
    this.chosen = Math.min(this.chosen ?? 0, this.camera.zones.length - 1);
    if (this.chosen < 0) this.chosen = null;
    this.list();
    this.changed();
  }

  add() {
    this.remember();
    const names = new Set(this.camera.zones.map((zone) => zone.name));
    let number = this.camera.zones.length + 1;
    while (names.has(`zone-${number}`)) number += 1;
    this.camera.zones.push({ name: `zone-${number}`, corners: [], hours: null });
    this.chosen = this.camera.zones.length - 1;
    this.list();
    this.changed();
  }

  place(event) {
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    return [fraction((event.clientX - left) / width), fraction((event.clientY - top) / height)];
  }

  // The corner under the pointer: zone and number, or null.
  cornerAt(event) {
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    const x = event.clientX - left;
    const y = event.clientY - top;
    let best = null;
    this.camera.zones.forEach((zone, n) => {
      if (this.chosen !== null && n !== this.chosen) return;
      zone.corners.forEach(([cx, cy], k) => {
        const far = Math.hypot(cx * width - x, cy * height - y);
        if (far <= REACH_PX && (!best || far < best.far)) best = { zone: n, corner: k, far };
      });
    });
    return best;
  }

  press(event) {
    if (!this.camera) return;
    const found = this.cornerAt(event);
    if (!found && this.chosen === null) return;
    event.preventDefault();
    this.remember();
    if (found) {
      this.held = found;
      this.chosen = found.zone;
      this.canvas.setPointerCapture(event.pointerId);
    } else {
      this.camera.zones[this.chosen].corners.push(this.place(event));
    }
    this.list();
    this.changed();
  }

  drag(event) {
    if (!this.held) return;
    this.camera.zones[this.held.zone].corners[this.held.corner] = this.place(event);
    this.list();
    this.changed();
  }

  list() {
    document.getElementById("camera").classList.toggle("drawing", this.chosen !== null);
    this.undoButton.disabled = !this.past.length;
    this.box.replaceChildren(...this.camera.zones.map((zone, n) => this.fields(zone, n)));
    this.draw();
  }

  fields(zone, n) {
    const set = element("fieldset", n === this.chosen ? "chosen" : "");
    const legend = element("legend", "", zone.name || "unnamed");
    set.dataset.zone = zone.name;
    set.addEventListener("focusin", () => this.choose(n));
    const name = element("input");
    name.value = zone.name;
    name.maxLength = 64;
    name.className = "zone-name";
    name.addEventListener("input", () => {
      zone.name = name.value.trim();
      legend.textContent = zone.name || "unnamed";
      this.draw();
      this.changed();
    });
    const corners = element("ul", "corners");
    corners.setAttribute("aria-label", `Corners of ${zone.name}, as fractions of the picture`);
    corners.append(...zone.corners.map((corner, k) => this.cornerFields(zone, corner, k)));
    const bar = element("div", "zone-bar");
    bar.append(
      button("Add a corner", () => this.change(() => zone.corners.push([0.5, 0.5]))),
      button("Delete this zone", () => {
        this.change(() => this.camera.zones.splice(n, 1), true);
      }),
    );
    if (zone.corners.length < LEAST) bar.append(element("p", "small", `It needs at least ${LEAST} corners.`));
    const top = element("div", "fields");
    top.append(labelled("Name", name), ...this.hours(zone));
    set.append(legend, top, corners, bar);
    return set;
  }

  hours(zone) {
    const when = element("select", "zone-when");
    const now = zone.hours === null ? "always" : zone.hours.length ? "hours" : "never";
    for (const [value, words] of [["always", "whenever the camera does"], ["hours", "at these hours"], ["never", "never"]]) {
      const option = element("option", "", words);
      option.value = value;
      option.selected = value === now;
      when.append(option);
    }
    const spans = element("input", "zone-hours");
    spans.placeholder = "22:00-06:00";
    spans.value = (zone.hours ?? []).join(", ");
    const box = labelled("Hours", spans);
    box.hidden = now !== "hours";
    const take = () => {
      zone.hours = { always: null, never: [], hours: spansOf(spans.value) }[when.value];
      this.changed();
    };
    when.addEventListener("change", () => {
      box.hidden = when.value !== "hours";
      if (when.value === "hours" && !spans.value) spans.value = "22:00-06:00";
      take();
    });
    spans.addEventListener("input", take);
    return [labelled("People in it raise events", when), box];
  }

  cornerFields(zone, corner, k) {
    const item = element("li", "", `${k + 1}`);
    for (const axis of [0, 1]) {
      const input = element("input");
      Object.assign(input, { type: "number", min: 0, max: 1, step: 0.01, value: corner[axis] });
      input.setAttribute("aria-label", `Corner ${k + 1}, ${axis ? "from the top" : "from the left"}`);
      input.addEventListener("change", () => {
        if (input.value === "" || Number(input.value) < 0 || Number(input.value) > 1) {
          input.value = corner[axis];
          return;
        }
        this.change(() => (corner[axis] = Number(input.value)), false, false);
      });
      item.append(input);
    }
    const remove = button("×", () => this.change(() => zone.corners.splice(k, 1)));
    remove.setAttribute("aria-label", `Remove corner ${k + 1}`);
    item.append(remove);
    return item;
  }

  change(act, none = false, again = true) {
    this.remember();
    act();
    if (none) this.chosen = null;
    if (again) this.list();
    else this.draw();
    this.changed();
  }

  choose(n) {
    if (this.chosen === n) return;
    this.chosen = n;
    [...this.box.children].forEach((set, k) => set.classList.toggle("chosen", k === n));
    document.getElementById("camera").classList.add("drawing");
    this.draw();
  }

  draw() {
    const ratio = devicePixelRatio || 1;
    const { width, height } = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const pen = this.canvas.getContext("2d");
    pen.fillStyle = "#000000";
    pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
    if (!this.camera) return;
    if (this.frame) this.drawPeople(pen, ratio);
    this.canvas.dataset.people = this.frame?.people.length ?? "";
    this.camera.zones.forEach((zone, n) => this.drawZone(pen, zone, n === this.chosen, ratio));
  }

  drawPeople(pen, ratio) {
    const scale = this.canvas.width / this.frame.size[0];
    pen.strokeStyle = "rgb(143 190 224)";
    pen.lineWidth = 2 * ratio;
    pen.lineCap = "round";
    pen.beginPath();
    for (const joints of this.frame.people) {
      for (const [first, ...others] of this.frame.bones) {
        const from = joints[first];
        const to = others.map((n) => joints[n]);
        if (!from || to.some((end) => !end)) continue;
        pen.moveTo(from[0] * scale, from[1] * scale);
        pen.lineTo(...[0, 1].map((k) => (scale * to.reduce((sum, end) => sum + end[k], 0)) / to.length));
      }
    }
    pen.stroke();
  }

  drawZone(pen, zone, chosen, ratio) {
    const { width, height } = this.canvas;
    const colour = chosen ? "240 178 50" : "86 180 233";
    pen.lineWidth = (chosen ? 2 : 1) * ratio;
    pen.strokeStyle = `rgb(${colour} / ${chosen ? 1 : 0.6})`;
    pen.fillStyle = `rgb(${colour} / 0.12)`;
    pen.beginPath();
    for (const [x, y] of zone.corners) pen.lineTo(x * width, y * height);
    if (zone.corners.length >= LEAST) pen.closePath();
    pen.fill();
    pen.stroke();
    pen.fillStyle = `rgb(${colour})`;
    for (const [x, y] of zone.corners) {
      if (chosen) pen.fillRect(x * width - 4 * ratio, y * height - 4 * ratio, 8 * ratio, 8 * ratio);
    }
    if (!zone.corners.length) return;
    const [x, y] = zone.corners.reduce((a, b) => (a[0] + a[1] < b[0] + b[1] ? a : b));
    pen.font = `${12 * ratio}px system-ui, sans-serif`;
    pen.fillText(zone.name, x * width + 8 * ratio, y * height + 18 * ratio);
  }
}

export const spansOf = (text) => text.split(/[,;]/).map((span) => span.trim()).filter((span) => span);
