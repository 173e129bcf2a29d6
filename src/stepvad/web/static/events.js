// The list of events, with its filters; new ones appear by themselves and are said aloud.
import { ask } from "./ask.js";
import { count, duration, element, sentence, stateOf, times, when } from "./words.js";

const PAGE = 25;
const TYPING_MS = 300;
const WIDEST = 5; // times the limit that fill the bar

export class Events {
  constructor() {
    this.list = document.getElementById("list");
    this.filters = document.getElementById("filters");
    this.more = document.getElementById("more");
    this.shown = PAGE;
    this.seen = null;
    this.asked = 0;
    this.toReview = 0;
    this.zones = new Set();
    this.counted = () => {}; // hears when what is left to review was counted
    let typing = null;
    this.filters.addEventListener("change", () => this.restart());
    this.filters.addEventListener("input", (input) => {
      if (input.target.type !== "search") return;
      clearTimeout(typing);
      typing = setTimeout(() => this.restart(), TYPING_MS);
    });
    this.filters.addEventListener("submit", (submit) => {
      submit.preventDefault();
      this.restart();
    });
    this.more.addEventListener("click", () => {
      this.shown += PAGE;
      this.load();
    });
    this.list.addEventListener("keydown", (key) => this.walk(key));
    document.getElementById("to-review").addEventListener("click", () => {
      this.filters.elements.review.value = "to_review";
      this.restart();
    });
  }

  restart() {
    this.shown = PAGE;
    this.seen = null;
    this.load();
  }

  // J and K, or the arrows, go from row to row.
  walk(key) {
    if (key.ctrlKey || key.metaKey || key.altKey || !key.target.matches(".row")) return;
    const by = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[key.key];
    if (!by) return;
    key.preventDefault();
    const rows = [...this.list.querySelectorAll(".row")];
    rows[rows.indexOf(key.target) + by]?.focus();
  }

  setCameras(names) {
    this.offer(this.filters.elements.camera, names);
  }

  // The events of a camera, or of `SITE/`.
  choose(name) {
    const select = this.filters.elements.camera;
    if (![...select.options].some((option) => option.value === name)) select.add(new Option(name, name));
    select.value = name;
    this.filters.querySelector("details").open = true;
    this.restart();
  }

  setZones(names) {
    for (const name of names) this.zones.add(name);
    this.offer(this.filters.elements.zone, [...this.zones].sort());
  }

  offer(select, names) {
    const known = [...select.options].slice(1).map((option) => option.value);
    if (String(known) === String(names)) return;
    const chosen = select.value;
    select.replaceChildren(select.options[0], ...names.map((name) => new Option(name, name)));
    select.value = names.includes(chosen) ? chosen : "";
  }

  ids() {
    return [...this.list.children].map((row) => row.dataset.id);
  }

  // The row of an event if it is shown, else the list.
  focus(id) {
    const row = this.list.querySelector(`li[data-id="${CSS.escape(id ?? "")}"] a`) ?? this.list.querySelector("a");
    (row ?? document.getElementById("events")).focus({ preventScroll: true });
  }

  query() {
    const { camera, open, span, review, zone, least, words } = this.filters.elements;
    const query = new URLSearchParams({ limit: Math.min(this.shown, 500) });
    const given = { camera, open, review, zone, min_times: least };
    for (const [name, { value }] of Object.entries(given)) if (value) query.set(name, value);
    if (words.value.trim()) query.set("words", words.value.trim());
    if (span.value) query.set("since", Math.floor(Date.now() / 1000) - Number(span.value));
    return query;
  }

  async load() {
    const number = (this.asked += 1);
    const none = document.getElementById("none");
    const refused = (why) => {
      this.render([]);
      none.hidden = false;
      none.textContent = sentence(why);
    };
    const answer = await ask(`/api/events?${this.query()}`, { refused });
    if (!answer || number !== this.asked) return;
    this.announce(answer.events);
    this.render(answer.events);
    this.setZones(answer.events.flatMap((one) => one.zones));
    this.more.hidden = answer.next === null || this.shown >= 500;
    none.hidden = answer.events.length > 0;
    none.textContent = [...this.query().keys()].length > 1 ? "No matching events." : "No events yet.";
    const open = answer.events.filter((one) => one.end_time === null).length;
    document.getElementById("going").textContent = open ? `${count(open, "event")} ongoing` : "";
    this.tellToReview(answer.to_review);
  }

  // The count stands in the header and in the title of the window.
  tellToReview(n) {
    this.toReview = n;
    const said = n ? `${n >= 1000 ? "1000+" : n} to review` : "";
    const button = document.getElementById("to-review");
    button.hidden = !n;
    button.textContent = said;
    document.getElementById("badge").textContent = n ? ` (${n >= 1000 ? "1000+" : n})` : "";
    const site = document.title.split(" · ").filter((part) => !part.endsWith("to review")).join(" · ");
    document.title = n ? `${said} · ${site}` : site;
    this.counted();
  }

  announce(events) {
    const fresh = this.seen ? events.filter((one) => !this.seen.has(one.id)) : [];
    this.seen = new Set([...(this.seen ?? []), ...events.map((one) => one.id)].slice(-2000));
    if (!fresh.length) return;
    const [newest] = fresh;
    const words = fresh.length > 1
      ? `${count(fresh.length, "new event")}, the latest on camera ${newest.camera}`
      : `New event on camera ${newest.camera}, ${times(newest.top_score / newest.threshold)} the limit`;
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
    link.append(...["when", "state", "where", "what", "peak"].map((kind) => element("span", kind)));
    row.append(link);
    return row;
  }

  // When, where, what, how far above the limit, and what was said of it.
  fill(row, one) {
    const part = (kind) => row.querySelector(`.${kind}`);
    const share = one.top_score / one.threshold;
    const { kind, says } = stateOf(one);
    row.dataset.open = one.end_time === null;
    row.dataset.mark = one.mark ?? "";
    row.dataset.state = kind;
    row.dataset.unseen = one.reviewed === null;
    const length = one.end_time === null ? "" : ` · ${duration(one.end_time - one.start_time)}`;
    const zones = one.zones.length ? ` (${one.zones.join(", ")})` : "";
    part("when").textContent = when(one.start_time);
    part("state").textContent = says;
    part("where").textContent = `${one.camera}${zones}${length}`;
    const strangest = one.strangest ? `. ${sentence(one.strangest)}` : "";
    part("what").textContent = `${sentence(one.why ?? "unusual motion")}${strangest}`;
    const bar = element("span", "unusual");
    bar.style.setProperty("--share", Math.min(share / WIDEST, 1));
    part("peak").replaceChildren(bar, `${times(share)} the limit`);
  }
}
