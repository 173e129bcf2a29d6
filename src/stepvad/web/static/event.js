// One event: what was unusual, how it looked beside normal motion, and whether it was normal.
import { ask } from "./ask.js";
import { clock, count, duration, element, number, sentence, when } from "./words.js";

const AGAIN_MS = 1500;
const TRIES = 3;

export class EventView {
  constructor(changed) {
    this.changed = changed;
    this.dialog = document.getElementById("event");
    this.part = (kind) => this.dialog.querySelector(kind);
    this.id = null;
    this.stop = null;
    this.explained = null;
    this.part(".close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => this.left());
    this.dialog.addEventListener("click", (click) => {
      if (click.target === this.dialog) this.dialog.close(); // beside it
    });
    this.part(".mark-normal").addEventListener("click", () => this.mark(!this.event.normal));
    this.part(".delete").addEventListener("click", () => this.delete());
  }

  async open(id) {
    this.clear();
    this.id = id;
    const event = await ask(`/api/events/${encodeURIComponent(id)}`);
    if (this.id !== id) return;
    if (!event) {
      this.part("#event-title").textContent = "This event is not stored any more";
      this.part("footer").hidden = true;
    } else {
      this.show(event);
    }
    if (!this.dialog.open) this.dialog.showModal();
    this.part("#event-title").focus();
    if (event) this.explain(id);
  }

  close() {
    if (this.dialog.open) this.dialog.close();
  }

  left() {
    this.clear();
    if (location.hash.startsWith("#event/")) {
      history.replaceState(null, "", "#events");
    }
  }

  clear() {
    this.id = this.event = null;
    this.explained = null;
    this.stop?.();
    this.stop = null;
    this.part("footer").hidden = false;
    for (const kind of [".shares", ".key"]) this.part(kind).hidden = true;
    for (const kind of [".motion", ".words", ".parts", "dl"]) this.part(kind).replaceChildren();
    for (const kind of [".facts", ".said"]) this.part(kind).textContent = "";
    this.part(".delete").textContent = "Delete";
  }

  // What changed while it is looked at.
  async refresh() {
    const { id } = this;
    if (id === null) return;
    const event = await ask(`/api/events/${encodeURIComponent(id)}`);
    if (!event || this.id !== id) return;
    const grown = this.event?.top_score !== event.top_score;
    this.show(event);
    if (grown) this.explain(id);
  }

  show(event) {
    this.event = event;
    this.part("#event-title").textContent = `${event.camera} · ${when(event.start_time)}`;
    const over = event.end_time === null ? "going on" : `${duration(event.end_time - event.start_time)} until ${clock(event.end_time)}`;
    const ended = event.ended_by && event.ended_by !== "calm" ? `, ended by: ${event.ended_by}` : "";
    const times = (event.top_score / event.threshold).toFixed(1);
    const people = event.tracks.length > 1 ? `, ${count(event.tracks.length, "track")}` : "";
    this.part(".facts").textContent =
      `Score ${number(event.top_score)}, ${times}× the threshold · ${over}${ended}${people}` +
      (event.zones.length ? ` · in ${event.zones.join(", ")}` : "") +
      (event.doubt ? ` · ${event.doubt}` : "");
    this.part(".mark-normal").textContent = event.normal ? "Undo: it was not normal" : "This was normal";
    this.part(".mark-normal").setAttribute("aria-pressed", event.normal);
    this.part(".said").textContent = event.normal ? "Marked as normal." : "";
    this.part(".delete").hidden = event.end_time === null;
  }

  // An explanation comes a moment after what it explains: it is asked for again while it is old.
  async explain(id, tries = 0) {
    const box = this.part(".motion");
    if (!box.children.length) box.append(element("p", "note", "Looking into it…"));
    const told = await ask(`/api/events/${encodeURIComponent(id)}/explanation`);
    if (this.id !== id) return;
    const top = this.event.top_score;
    const isOld = !told || Math.abs(told.score - top) > 0.02 * top;
    if (isOld && tries < TRIES) setTimeout(() => this.id === id && this.explain(id, tries + 1), AGAIN_MS);
    if (told) this.play(told);
    else if (!this.explained) this.without(box);
  }

  without(box) {
    box.replaceChildren(element("p", "note", "There is no explanation: its poses are not here yet, or not kept any more."));
    if (this.event.why) this.part(".words").replaceChildren(element("li", "", sentence(this.event.why)));
  }

  play(told) {
    const shown = `${told.track} ${told.frame}`;
    if (this.explained === shown) return;
    this.explained = shown;
    this.stop?.();
    const box = this.part(".motion");
    box.replaceChildren();
    box.dataset.label = `skeleton of track ${told.track} around the peak`;
    this.stop = Player.play(box, { ...told.motion, first: 0 });
    this.tell(told);
  }

  tell(told) {
    const { first, fps } = told.motion;
    const said = told.words.map(({ says, first: from, last }) => {
      const row = element("li", "", `${sentence(says)} `);
      const [begin, end] = [from, last].map((frame) => `${Math.max((frame - first) / fps, 0).toFixed(1)} s`);
      row.append(element("span", "small", begin === end ? `at ${begin}` : `${begin} – ${end}`));
      return row;
    });
    if (!said.length) said.push(element("li", "", "No single part of the body stands out"));
    this.part(".words").replaceChildren(...said);
    for (const kind of [".shares", ".key"]) this.part(kind).hidden = false;
    this.part(".shares .small").textContent = told.views
      ? `Share of the peak score: ${told.views.map((one) => `${one.name} ${Math.round(100 * one.share)} %`).join(", ")}`
      : "Share of the peak score, by part of the body";
    this.part(".parts").replaceChildren(...told.parts.filter((one) => one.share >= 0.005).flatMap(bar));
    this.part("dl").replaceChildren(...grounds(told).flatMap(([term, words]) => [element("dt", "", term), element("dd", "", words)]));
  }

  async mark(normal) {
    const { id } = this;
    const event = await ask(`/api/events/${encodeURIComponent(id)}/mark`, { method: "PUT", body: { normal } });
    if (this.id !== id) return;
    if (event) {
      this.show(event);
      this.part(".said").textContent = normal ? "Marked as normal." : "No longer marked as normal.";
      this.changed();
    } else {
      this.part(".said").textContent = "That could not be stored; try again.";
    }
  }

  // Once to be asked, twice to be done.
  async delete() {
    const button = this.part(".delete");
    if (button.textContent === "Delete") {
      button.textContent = "Really delete";
      this.part(".said").textContent = "The event and its poses go for good.";
      return;
    }
    if (await ask(`/api/events/${encodeURIComponent(this.id)}`, { method: "DELETE" })) {
      this.dialog.close();
      this.changed();
    } else {
      this.part(".said").textContent = "That could not be deleted; try again.";
    }
  }
}

const bar = (one) => {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  rect.setAttribute("width", `${(100 * one.share).toFixed(1)}%`);
  rect.setAttribute("height", "100%");
  picture.setAttribute("aria-hidden", "true");
  picture.append(rect);
  return [element("span", "", one.name), picture, element("span", "", `${Math.round(100 * one.share)} %`)];
};

const grounds = (told) => {
  const scales = told.scales.length > 3
    ? `${told.scales.length} together`
    : told.scales.map(({ sigma }) => `σ = ${Number(sigma.toPrecision(2))}`).join(", ");
  const taken = told.confidence < 1
    ? `${told.confidence.toFixed(2)}: of ${number(told.energy)} it leaves ${number(told.score)}`
    : "1.00: it takes nothing off";
  if (told.views) {
    const range = told.ghost_is_normal ? "in the normal range in every view" : "still outside the normal range in a view";
    return [["Confidence of poses", taken], ["Nearest normal motion", range]];
  }
  const still = told.ghost_is_normal ? "" : ", which is still outside the normal range";
  return [
    ["Deciding noise scale", scales],
    ["Confidence of poses", taken],
    ["Nearest normal motion", `scores ${number(told.ghost_energy)} in place of ${number(told.energy)}${still}`],
  ];
};
