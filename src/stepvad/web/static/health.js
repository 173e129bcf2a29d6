// Counters of cameras, sinks and what is stored.
import { ask } from "./ask.js";
import { bytes, count, element, milliseconds, when } from "./words.js";

const COLUMNS = [
  ["frames in", (one) => one.counts.frames_in],
  ["scored", (one) => one.counts.scored],
  ["left out", (one) => one.counts.shed],
  ["skipped", (one) => one.counts.skipped],
  ["windows", (one) => one.counts.windows],
  ["without motion", (one) => one.counts.flat_windows],
  ["not judged", (one) => one.counts.muted_windows],
  ["events", (one) => one.counts.events],
  ["reconnects", (one) => one.counts.reconnects],
  ["restarts", (one) => one.counts.restarts],
];

const row = (cells, tag = "td") => {
  const made = element("tr");
  cells.forEach((text, n) => {
    const cell = element(n ? tag : "th", "", typeof text === "number" ? text.toLocaleString("en") : text);
    if (!n) cell.scope = tag === "th" ? "col" : "row";
    made.append(cell);
  });
  return made;
};

export const showHealth = (cameras, sinks) => {
  const table = document.getElementById("counts");
  const head = element("thead");
  head.append(row(["camera", ...COLUMNS.map(([name]) => name), "to scores", "to event"], "th"));
  const body = element("tbody");
  for (const one of cameras) {
    body.append(row([
      one.name,
      ...COLUMNS.map(([, value]) => value(one) ?? 0),
      `${milliseconds(one.latency.p50)} / ${milliseconds(one.latency.p99)}`,
      `${milliseconds(one.alerts.p50)} / ${milliseconds(one.alerts.p99)}`,
    ]));
  }
  table.replaceChildren(head, body);
  const drifts = element("ul", "plain-list");
  for (const one of cameras.filter((some) => some.drift)) {
    const item = element("li", one.drifted ? "late" : "", `${one.name}: ${one.drift}`);
    if (one.drift_numbers) {
      const exact = element("details");
      exact.open = opened.has(one.name);
      exact.addEventListener("toggle", () => opened[exact.open ? "add" : "delete"](one.name));
      exact.append(element("summary", "", "For experts"), element("p", "small", one.drift_numbers));
      item.append(exact);
    }
    drifts.append(item);
  }
  document.getElementById("drifts").replaceChildren(
    drifts.children.length ? drifts : element("p", "note", "Not checked yet."),
  );
  const box = document.getElementById("sinks");
  const list = element("ul", "plain-list");
  for (const sink of sinks) {
    const waits = sink.lag ? `${count(sink.lag, "message")} waiting` : "up to date";
    const wrong = sink.last_error ? `, last failure: ${sink.last_error}` : "";
    const item = element("li", sink.lag ? "late" : "", `${sink.name}: ${waits}${wrong}`);
    list.append(item);
  }
  box.replaceChildren(sinks.length ? list : element("p", "note", "Only into the event store."));
  showUndelivered(sinks);
};

const opened = new Set(); // cameras whose numbers are unfolded
let refused = null;

const showUndelivered = async (sinks) => {
  const now = sinks.reduce((sum, one) => sum + one.refused, 0);
  if (now === refused) return;
  refused = now;
  const told = await ask("/api/undelivered");
  if (!told) {
    refused = null;
    return;
  }
  const box = document.getElementById("undelivered");
  box.hidden = !told.refused;
  if (!told.refused) return;
  const list = element("ul", "plain-list");
  for (const one of told.messages) {
    list.append(element("li", "", `${one.sink}: ${one.kind} of event ${one.event_id}, ${when(one.created)}: ${one.error ?? ""}`));
  }
  const again = element("button", "plain for-admins", "Send again");
  again.type = "button";
  again.addEventListener("click", async () => {
    again.disabled = true;
    await ask("/api/undelivered/resend", { method: "POST", body: {} });
    refused = null;
    await showUndelivered(sinks);
  });
  box.replaceChildren(element("p", "late", `${count(told.refused, "message")} refused permanently`), list, again);
};

export const showStored = async () => {
  const stored = await ask("/api/stored");
  if (!stored) return;
  const list = element("ul", "plain-list");
  for (const one of stored.kept.filter((kept) => kept.count)) {
    const span = one.first === null ? "" : `, from ${when(one.first)} to ${when(one.last)}`;
    list.append(element("li", "", `${one.what}: ${one.count.toLocaleString("en")}, ${bytes(one.bytes)}${span} (${one.holds})`));
  }
  const sizes = Object.values(stored.files);
  const size = sizes.reduce((sum, some) => sum + some, 0);
  document.getElementById("stored").replaceChildren(
    list.children.length ? list : element("p", "note", "No events yet."),
    ...(sizes.length ? [element("p", "small", `${count(sizes.length, "file")}, ${bytes(size)} on disk`)] : []),
  );
};
