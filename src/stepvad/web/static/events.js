// The list of events, with its filters; new ones appear by themselves and are said aloud.
import { ask } from "./ask.js";
import { count, duration, element, number, sentence, when } from "./words.js";

const PAGE = 25;

export class Events {
  constructor() {
    this.list = document.getElementById("list");
    this.filters = document.getElementById("filters");
    this.more = document.getElementById("more");
    this.shown = PAGE;
    this.seen = null;
    this.asked = 0;
    this.filters.addEventListener("change", () => {
      this.shown = PAGE;
      this.seen = null;
      this.load();
    });
    this.filters.addEventListener("submit", (submit) => submit.preventDefault());
    this.more.addEventListener("click", () => {
      this.shown += PAGE;
      this.load();
    });
  }

  setCameras(names) {
    const select = this.filters.elements.camera;
    const known = [...select.options].slice(1).map((option) => option.value);
    if (String(known) === String(names)) return;
    const chosen = select.value;
    select.replaceChildren(select.options[0], ...names.map((name) => new Option(name, name)));
    select.value = names.includes(chosen) ? chosen : "";
  }

  query() {
    const { camera, open, span } = this.filters.elements;
    const query = new URLSearchParams({ limit: Math.min(this.shown, 500) });
    if (camera.value) query.set("camera", camera.value);
    if (open.value) query.set("open", open.value);
    if (span.value) query.set("since", Math.floor(Date.now() / 1000) - Number(span.value));
    return query;
  }

  async load() {
    const number = (this.asked += 1);
    const answer = await ask(`/api/events?${this.query()}`);
    if (!answer || number !== this.asked) return;
    this.announce(answer.events);
    this.render(answer.events);
    this.more.hidden = answer.next === null || this.shown >= 500;
    document.getElementById("none").hidden = answer.events.length > 0;
    const open = answer.events.filter((one) => one.end_time === null).length;
    document.getElementById("going").textContent = open ? `${count(open, "event")} going on` : "";
  }

  announce(events) {
    const fresh = this.seen ? events.filter((one) => !this.seen.has(one.id)) : [];
    this.seen = new Set([...(this.seen ?? []), ...events.map((one) => one.id)].slice(-2000));
    if (!fresh.length) return;
    const [newest] = fresh;
    const words = fresh.length > 1
      ? `${count(fresh.length, "new event")}, the latest on camera ${newest.camera}`
      : `New event on camera ${newest.camera}, score ${number(newest.top_score)}`;
    document.getElementById("news").textContent = words;
    this.fresh = new Set(fresh.map((one) => one.id));
  }

  // Rows that stay are the same elements: the focus stays where it is.
  render(events) {
    const rows = new Map([...this.list.children].map((row) => [row.dataset.id, row]));
    const kept = new Set(events.map((one) => one.id));
    for (const [id, row] of rows) if (!kept.has(id)) row.remove();
    events.forEach((one, n) => {
      const row = rows.get(one.id) ?? this.newRow(one);
      this.fill(row, one);
      if (this.list.children[n] !== row) this.list.insertBefore(row, this.list.children[n] ?? null);
    });
    this.fresh = null;
  }

  newRow(one) {
    const row = element("li");
    row.dataset.id = one.id;
    if (this.fresh?.has(one.id)) row.classList.add("fresh");
    const link = element("a", "row");
    link.href = `#event/${encodeURIComponent(one.id)}`;
    link.append(...["when", "where", "peak", "what"].map((kind) => element("span", kind)));
    row.append(link);
    return row;
  }

  fill(row, one) {
    const part = (kind) => row.querySelector(`.${kind}`);
    row.dataset.open = one.end_time === null;
    row.dataset.normal = one.normal;
    const length = one.end_time === null ? "going on" : duration(one.end_time - one.start_time);
    part("when").textContent = when(one.start_time);
    const zones = one.zones.length ? ` (${one.zones.join(", ")})` : "";
    part("where").textContent = `${one.camera}${zones} · ${length}${one.normal ? " · was normal" : ""}`;
    part("peak").textContent = `${number(one.top_score)}`;
    part("peak").title = `${(one.top_score / one.threshold).toFixed(1)} times the threshold`;
    part("what").textContent = sentence(one.why ?? "");
  }
}
