// The list of cameras and the form of the one that is chosen.
import { newCamera } from "./settings-draft.js";
import { send, wordsOf } from "./settings-send.js";
import { count, element, sentence } from "./words.js";
import { spansOf, Zones } from "./zones.js";

const NUMBERS = new Set(["rate", "threshold"]);

const part = (id) => document.getElementById(id);

export class CameraView {
  constructor(changed) {
    this.changed = changed;
    this.form = part("camera-form");
    this.zones = new Zones(() => this.edited());
    this.draft = null;
    this.camera = null;
    this.live = new Map(); // health by camera, from the running site
    this.shown = "";
    this.asked = 0;
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", (event) => this.take(event.target));
    part("add-camera").addEventListener("click", () => this.add());
    part("remove-camera").addEventListener("click", () => this.remove());
    part("try").addEventListener("click", () => this.tryIt());
  }

  show(draft) {
    const name = this.camera?.keys.name;
    this.draft = draft;
    this.choose(draft.cameras.find((camera) => camera.keys.name === name) ?? draft.cameras[0] ?? null);
  }

  edited() {
    this.list();
    this.changed();
  }

  // Built again only if it says something else, so that a keyboard does not lose its place.
  list() {
    const rows = this.draft.cameras.map((camera) => {
      const live = this.live.get(camera.was);
      const state = live?.state ?? (camera.was === null ? "new, not saved" : "");
      const zones = camera.zones.length ? count(camera.zones.length, "zone") : "";
      return {
        name: camera.keys.name,
        url: camera.keys.url,
        chosen: camera === this.camera,
        bad: Boolean(live) && live.state !== "online",
        words: [state, zones].filter((word) => word).join(" · "),
      };
    });
    const shown = JSON.stringify(rows);
    if (shown === this.shown) return;
    this.shown = shown;
    part("camera-list").replaceChildren(...rows.map((row, n) => this.row(row, n)));
  }

  row({ name, url, chosen, bad, words }, n) {
    const item = element("li");
    const button = element("button");
    button.type = "button";
    button.dataset.camera = name ?? "";
    if (chosen) button.setAttribute("aria-current", "true");
    button.append(
      element("b", "", name || "New camera"),
      element("span", "small", url || "no address yet"),
      element("span", bad ? "small bad" : "small", words),
    );
    button.addEventListener("click", () => {
      this.choose(this.draft.cameras[n]);
      part("camera-title").focus();
    });
    item.append(button);
    return item;
  }

  choose(camera) {
    this.camera = camera;
    part("camera").hidden = camera === null;
    this.list();
    if (!camera) return;
    part("camera-title").textContent = camera.keys.name || "New camera";
    part("tried").textContent = "";
    for (const input of this.form.querySelectorAll("input[name]")) {
      const value = camera.keys[input.name];
      input.removeAttribute("aria-invalid");
      if (input.type === "checkbox") input.checked = value === true;
      else input.value = Array.isArray(value) ? value.join(", ") : value ?? "";
    }
    this.zones.show(camera);
    this.zones.setFrame(camera.tried);
    this.veil();
  }

  veil() {
    const live = this.live.get(this.camera.was);
    let words = live && live.state !== "online" ? live.reason || live.state : "";
    if (this.camera.was === null) words = "Try the address to see skeletons here.";
    if (this.camera.tried) words = "";
    part("veil").textContent = words;
    part("veil").hidden = !words;
  }

  add() {
    const camera = newCamera();
    this.draft.cameras.push(camera);
    this.choose(camera);
    this.changed();
    this.form.elements.url.focus();
  }

  remove() {
    this.draft.cameras = this.draft.cameras.filter((camera) => camera !== this.camera);
    this.choose(this.draft.cameras[0] ?? null);
    this.changed();
  }

  take(input) {
    if (!input.name || !(input.name in this.camera.keys)) return;
    if (input.type === "checkbox") this.camera.keys[input.name] = input.checked;
    else if (input.name === "hours") this.camera.keys.hours = input.value.trim() ? spansOf(input.value) : null;
    else if (NUMBERS.has(input.name)) {
      input.toggleAttribute("aria-invalid", input.validity.badInput);
      if (input.validity.badInput) input.setAttribute("aria-invalid", "true");
      else this.camera.keys[input.name] = input.value === "" ? null : Number(input.value);
    } else this.camera.keys[input.name] = input.value.trim() || null;
    if (input.name === "name") part("camera-title").textContent = this.camera.keys.name || "New camera";
    this.edited();
  }

  // Fields with something that is no number.
  invalid() {
    return [...this.form.querySelectorAll("[aria-invalid=true]")].map(
      (input) => `${this.camera.keys.name}: ${input.parentElement.firstChild.textContent.trim()} needs a number.`,
    );
  }

  async tryIt() {
    const camera = this.camera;
    const told = part("tried");
    const asked = ++this.asked;
    const { url, credentials, rate } = camera.keys;
    part("try").disabled = true;
    told.className = "answer";
    told.textContent = "Opening the camera…";
    const answer = await send("POST", "/api/settings/try-camera", { keys: { url, credentials, rate } });
    part("try").disabled = false;
    if (asked !== this.asked || camera !== this.camera) return;
    const problem = answer.ok ? answer.body.problem : wordsOf(answer).join(" ");
    told.classList.toggle("bad", Boolean(problem));
    if (problem) {
      told.textContent = `No picture: ${problem}`;
      return;
    }
    const { size, people, bones, advice } = answer.body;
    camera.tried = { size, people, bones };
    told.textContent = `It works: ${size[0]} × ${size[1]} pixels, ${count(people.length, "person", "people")} in view.`;
    const list = element("ul");
    list.append(...advice.map((words) => element("li", "", sentence(`${words}.`))));
    if (advice.length) told.append(list);
    this.zones.setFrame(camera.tried);
    this.veil();
  }

  // What the running site says: health of all cameras, and people of some.
  hear(message) {
    if (!this.draft) return;
    if (message.cameras) {
      this.live = new Map(message.cameras.map((camera) => [camera.name, camera]));
      this.list();
      if (this.camera) this.veil();
    }
    const live = this.camera && this.live.get(this.camera.was);
    const frame = live && message.frames?.[this.camera.was];
    if (!frame || this.camera.tried) return;
    const people = frame.people.map(({ xy }) =>
      Array.from({ length: xy.length / 2 }, (_, n) => (xy[2 * n] === null ? null : [xy[2 * n], xy[2 * n + 1]])));
    this.zones.setFrame({ size: frame.size, people, bones: live.bones });
  }
}
