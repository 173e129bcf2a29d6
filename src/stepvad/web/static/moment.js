// A moment on the score line: its event, or else everybody in view then, without explanation.
import { ask } from "./ask.js";
import { ScenePlayer } from "./scene.js";
import { count, when } from "./words.js";

export class MomentView {
  constructor(cameras) {
    this.cameras = cameras;
    this.dialog = document.getElementById("moment");
    this.part = (kind) => this.dialog.querySelector(kind);
    this.asked = 0;
    this.part(".close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => { if (!this.dialog.open) this.left(); }); // else late, about the last one
    this.dialog.addEventListener("click", (click) => {
      if (click.target === this.dialog) this.dialog.close();
    });
  }

  async open(camera, at) {
    const number = (this.asked += 1);
    this.clear();
    this.camera = camera;
    const found = await ask(`/api/cameras/${encodeURIComponent(camera)}/moment?at=${at}`);
    if (number !== this.asked) return;
    if (found?.event) {
      location.replace(`#event/${encodeURIComponent(found.event)}`);
      return;
    }
    this.part("#moment-title").textContent = `${camera} · ${when(at)}`;
    if (!this.dialog.open) this.dialog.showModal();
    this.part("#moment-title").focus();
    if (found?.scene) this.play(found.scene);
    else this.part(".facts").textContent = found?.words ?? "The site does not answer; try again.";
  }

  play(scene) {
    this.part(".scene").hidden = false;
    this.player = new ScenePlayer(this.part(".scene"), scene, { camera: this.cameras.get(scene.camera) });
    const people = scene.people.length ? count(scene.people.length, "person", "people") : "nobody";
    this.part(".facts").textContent = `No event at this time. In these seconds: ${people}.`;
  }

  clear() {
    this.player?.leave();
    this.player = null;
    this.part(".scene").replaceChildren();
    this.part(".scene").hidden = true;
    this.part(".facts").textContent = "";
  }

  close() {
    this.asked += 1;
    if (this.dialog.open) this.dialog.close();
  }

  left() {
    this.clear();
    if (location.hash.startsWith("#moment/")) history.replaceState(null, "", "#cameras");
    document.querySelector(`.camera[data-camera="${CSS.escape(this.camera ?? "")}"] .scores`)?.focus({ preventScroll: true });
  }
}
