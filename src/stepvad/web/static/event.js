// One event: who moved where, what was unusual, how it looks beside normal motion, and a judgement.
import { ask } from "./ask.js";
import { ScenePlayer } from "./scene.js";
import { clock, count, duration, element, number, sentence, stateOf, times, when } from "./words.js";

const AGAIN_MS = 1500;
const TRIES = 3;
const KEYS = { j: (view) => view.step(1), k: (view) => view.step(-1), n: (view) => view.judge("normal"), r: (view) => view.judge("right"), u: (view) => view.mark(null) };

const NORMAL = "This was normal";

// Who may only look leaves no review.
const mayJudge = () => document.body.dataset.role !== "look";

export class EventView {
  // `events` is the list; `cameras` tells the zones of each camera.
  constructor(events, cameras) {
    this.events = events;
    this.cameras = cameras;
    this.dialog = document.getElementById("event");
    this.part = (kind) => this.dialog.querySelector(kind);
    this.id = null;
    this.order = [];
    this.clear();
    const press = (kind, act) => this.part(kind).addEventListener("click", act);
    press(".close", () => this.dialog.close());
    press(".mark-normal", () => this.judge("normal"));
    press(".mark-right", () => this.judge("right"));
    press(".undo", () => this.mark(null));
    press(".older", () => this.step(1));
    press(".newer", () => this.step(-1));
    press(".next", () => this.next());
    press(".delete", () => this.delete());
    this.events.counted = () => this.offerNext();
    this.dialog.addEventListener("close", () => { if (!this.dialog.open) this.left(); }); // else late, about the last one
    this.dialog.addEventListener("click", (click) => {
      if (click.target === this.dialog) this.dialog.close(); // beside it
    });
    this.dialog.addEventListener("keydown", (key) => {
      if (key.ctrlKey || key.metaKey || key.altKey || !KEYS[key.key]) return;
      key.preventDefault();
      KEYS[key.key](this);
    });
  }

  async open(id) {
    if (!this.dialog.open) this.order = this.events.ids();
    this.clear();
    this.id = this.last = id;
    const event = await ask(`/api/events/${encodeURIComponent(id)}`);
    if (this.id !== id) return;
    if (!event) {
      this.part("#event-title").textContent = "This event is not stored any more";
      this.part("footer").hidden = true;
    } else {
      this.show(event);
    }
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    this.part("#event-title").focus();
    if (!event) return;
    this.explain(id);
    if (mayJudge()) this.foresee(id);
    if (event.reviewed === null && mayJudge()) this.see(id);
  }

  // What Normal would do, before it is pressed; what would hide a right alert says so.
  async foresee(id) {
    const effect = await this.effectOf(id, "normal");
    if (this.id !== id || !effect || this.event.mark !== null) return;
    this.effect = effect;
    this.part(".effect").textContent = `Normal: ${effect.words}`;
    if (effect.hides.length) this.part(".mark-normal").textContent = "Keep raising both";
  }

  effectOf(id, mark) {
    return ask(`/api/events/${encodeURIComponent(id)}/mark-effect${mark ? `?mark=${mark}` : ""}`);
  }

  async see(id) {
    const event = await ask(`/api/events/${encodeURIComponent(id)}/review`, { method: "PUT" });
    if (!event) return;
    if (this.id === id) this.show(event);
    this.events.load();
  }

  close() {
    if (this.dialog.open) this.dialog.close();
  }

  left() {
    this.clear();
    this.events.focus(this.last);
    if (location.hash.startsWith("#event/")) {
      history.replaceState(null, "", "#events");
    }
  }

  clear() {
    this.id = this.event = null;
    this.told = this.scene = this.explained = null;
    this.stop?.();
    this.stop = null;
    this.player?.leave();
    this.player = null;
    this.part("footer").hidden = false;
    for (const kind of [".shares", ".key", ".experts", ".recording", ".next", ".scene"]) this.part(kind).hidden = true;
    this.part(".motion").classList.remove("driven", "away");
    for (const kind of [".scene", ".motion", ".words", ".parts", "dl"]) this.part(kind).replaceChildren();
    this.effect = null;
    this.part(".mark-normal").textContent = NORMAL;
    for (const kind of [".facts", ".said", ".judged", ".effect"]) this.part(kind).textContent = "";
    this.part(".delete").textContent = "Delete";
  }

  // What changed while it is looked at.
  async refresh() {
    const { id } = this;
    if (id === null) return;
    const event = await ask(`/api/events/${encodeURIComponent(id)}`);
    if (!event || this.id !== id) return;
    const grown = this.event?.top_score !== event.top_score || this.event?.end_time !== event.end_time;
    this.show(event);
    if (grown) this.explain(id);
  }

  show(event) {
    this.event = event;
    const zones = event.zones.length ? ` (${event.zones.join(", ")})` : "";
    this.part("#event-title").textContent = `${event.camera}${zones} · ${when(event.start_time)}`;
    const { kind, says } = stateOf(event);
    this.part(".judged").textContent = event.reviewed_by && kind !== "open" ? `${says}, by ${event.reviewed_by}` : says;
    this.part(".judged").dataset.kind = kind;
    const share = event.top_score / event.threshold;
    const over = event.end_time === null ? "ongoing" : `${duration(event.end_time - event.start_time)} until ${clock(event.end_time)}`;
    const ended = event.ended_by && event.ended_by !== "calm" ? `, ended by: ${event.ended_by}` : "";
    const people = event.tracks.length > 1 ? ` · ${count(event.tracks.length, "person", "people")}` : "";
    const filled = Math.round(10 * (1 - event.seen));
    const doubt = filled ? ` · uncertain: ${filled} of 10 frames at the peak were interpolated` : "";
    const strangest = event.strangest ? `${sentence(event.strangest)} · ` : "";
    this.part(".facts").textContent = `${strangest}${times(share)} the limit · ${over}${ended}${people}${doubt}`;
    for (const mark of ["normal", "right"]) this.part(`.mark-${mark}`).setAttribute("aria-pressed", event.mark === mark);
    this.part(".undo").hidden = event.mark === null;
    this.part(".delete").hidden = event.end_time === null;
    const at = this.order.indexOf(event.id);
    this.part(".newer").disabled = at <= 0;
    this.part(".older").disabled = at < 0 || at >= this.order.length - 1;
    const link = this.part(".recording");
    link.hidden = !event.recording;
    if (event.recording) link.href = event.recording;
  }

  // An explanation comes a moment after what it explains: it is asked for again while it is old.
  async explain(id, tries = 0) {
    const box = this.part(".motion");
    if (!box.children.length) box.append(element("p", "note", "Loading…"));
    const path = `/api/events/${encodeURIComponent(id)}`;
    let why = "";
    const away = (words) => { why = words; };
    const [told, found] = await Promise.all([ask(`${path}/explanation`, { away }), ask(`${path}/scene`)]);
    if (this.id !== id) return;
    const top = this.event.top_score;
    const isOld = !told || Math.abs(told.score - top) > 0.02 * top;
    if (isOld && tries < TRIES) setTimeout(() => this.id === id && this.explain(id, tries + 1), AGAIN_MS);
    if (found?.scene) this.playScene(found.scene, told);
    if (told) this.play(told);
    else if (!this.explained) this.without(box, why);
  }

  without(box, away) {
    const what = this.player ? "No close-up: " : "There is no explanation: ";
    const why = away || `${what}its poses have not arrived yet, or are no longer kept.`;
    box.replaceChildren(element("p", "note", why));
    if (this.event.why) this.part(".words").replaceChildren(element("li", "", sentence(this.event.why)));
  }

  // Everybody in view; the close-up follows its time.
  playScene(scene, told) {
    const key = `${scene.first} ${scene.n_frames} ${scene.at}`;
    if (this.scene === key) return;
    this.scene = key;
    this.explained = null;
    this.player?.leave();
    const box = this.part(".scene");
    box.hidden = false;
    this.player = new ScenePlayer(box, scene, {
      camera: this.cameras.get(scene.camera),
      told,
      moved: (frame) => this.follow(scene.first + frame),
    });
  }

  // The close-up knows the seconds around the peak only.
  follow(frame) {
    if (!this.told || !this.stop?.show) return;
    const at = frame - this.told.motion.first;
    this.stop.show(at);
    this.part(".motion").classList.toggle("away", at < 0 || at >= this.told.motion.observed.length);
  }

  play(told) {
    const shown = `${told.track} ${told.frame}`;
    if (this.explained === shown) return;
    this.explained = shown;
    this.told = told;
    this.stop?.();
    const box = this.part(".motion");
    box.replaceChildren();
    box.classList.remove("driven", "away");
    box.dataset.label = `close-up of one person around the peak, next to the nearest normal motion`;
    this.stop = Player.play(box, { ...told.motion, first: 0 }, { driven: this.player !== null });
    this.player?.explain(told);
    this.tell(told);
  }

  tell(told) {
    const { first, fps } = told.motion;
    const said = told.words.map(({ says, first: from, last }) => {
      const row = element("li", "", `${sentence(says)} `);
      const [begin, end] = [from, last].map((frame) => `${Math.max((frame - first) / fps, 0).toFixed(1)} s`);
      if (!this.player) row.append(element("span", "small", begin === end ? `at ${begin}` : `${begin} – ${end}`));
      return row;
    });
    if (!said.length) said.push(element("li", "", "No single part of the body stands out"));
    this.part(".words").replaceChildren(...said);
    for (const kind of [".shares", ".key", ".experts"]) this.part(kind).hidden = false;
    this.part(".parts").replaceChildren(...told.parts.filter((one) => one.share >= 0.005).flatMap(bar));
    this.part("dl").replaceChildren(
      ...grounds(told, this.event).flatMap(([term, words]) => [element("dt", "", term), element("dd", "", words)]),
    );
  }

  // The same judgement again takes it back.
  judge(mark) {
    return this.mark(this.event?.mark === mark ? null : mark);
  }

  async mark(mark) {
    const { id } = this;
    if (id === null || !mayJudge() || (mark === null && this.event?.mark === null)) return;
    const known = mark === "normal" ? this.effect : null;
    const effect = known ?? (await this.effectOf(id, mark));
    const event = await ask(`/api/events/${encodeURIComponent(id)}/mark`, { method: "PUT", body: { mark } });
    if (this.id !== id) return;
    if (!event) {
      this.part(".said").textContent = "That could not be saved; try again.";
      return;
    }
    if (document.activeElement === this.part(".undo")) this.part("#event-title").focus();
    this.show(event);
    const plain = { normal: "Marked as normal.", right: "Marked as right." }[mark] ?? "Mark removed.";
    this.part(".said").textContent = effect?.said || plain;
    this.part(".effect").textContent = "";
    await this.events.load();
    this.offerNext();
  }

  // After a judgement, the way on.
  offerNext() {
    const left = this.events.toReview;
    const button = this.part(".next");
    button.hidden = !this.event || this.event.mark === null || !left;
    const words = `Next to review (${left >= 1000 ? "1000+" : left})`;
    if (button.textContent !== words) button.textContent = words;
  }

  // To an event beside this one in the list.
  step(by) {
    const next = this.order[this.order.indexOf(this.id) + by];
    if (next !== undefined && this.id !== null) location.replace(`#event/${encodeURIComponent(next)}`);
  }

  async next() {
    const answer = await ask("/api/events?review=to_review&limit=2");
    const next = answer?.events.find((one) => one.id !== this.id);
    if (next) location.replace(`#event/${encodeURIComponent(next.id)}`);
    else this.part(".said").textContent = "Nothing is left to review.";
  }

  // Once to be asked, twice to be done.
  async delete() {
    const button = this.part(".delete");
    if (button.textContent === "Delete") {
      button.textContent = "Really delete";
      this.part(".said").textContent = "This permanently deletes the event and its poses.";
      return;
    }
    if (await ask(`/api/events/${encodeURIComponent(this.id)}`, { method: "DELETE" })) {
      this.dialog.close();
      this.events.load();
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

// The exact numbers, for those who ask.
const grounds = (told, event) => {
  const scales = told.scales.length > 3
    ? `${told.scales.length} together`
    : told.scales.map(({ sigma }) => `σ = ${Number(sigma.toPrecision(2))}`).join(", ");
  const taken = told.confidence < 1
    ? `${told.confidence.toFixed(2)}: it lowers ${number(told.energy)} to ${number(told.score)}`
    : "1.00: it leaves the score unchanged";
  const score = [["Score", `${number(event.top_score)}; the limit is ${number(event.threshold)}`]];
  if (event.doubt) score.push(["Poses at the peak", event.doubt]);
  if (told.views?.length) {
    const shares = told.views.map((one) => `${one.name} ${Math.round(100 * one.share)} %`).join(", ");
    const range = told.ghost_is_normal ? "in the normal range in every view" : "still outside the normal range in a view";
    return [...score, ["Share of the peak score", shares], ["Confidence of poses", taken], ["Nearest normal motion", range]];
  }
  const still = told.ghost_is_normal ? "" : ", which is still outside the normal range";
  return [
    ...score,
    ["Deciding noise scale", scales],
    ["Confidence of poses", taken],
    ["Nearest normal motion", `scores ${number(told.ghost_energy)} instead of ${number(told.energy)}${still}`],
  ];
};
