// The settings page: a draft of the site's file, saved as a whole; the file stays the truth.
import { ask } from "./ask.js";
import { CameraView } from "./settings-camera.js";
import { connect } from "./connection.js";
import { Draft } from "./settings-draft.js";
import { FileText } from "./settings-file.js";
import { Effect, send, wordsOf } from "./settings-send.js";
import { count, element } from "./words.js";

const RESTART_MS = 120000;
const POLL_MS = 500;
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;

const part = (id) => document.getElementById(id);
let file = null; // what the site said last
let draft = null;

const changed = () => {
  const edits = draft ? draft.edits() : [];
  part("changes").textContent = `${count(edits.length, "change")} not saved`;
  part("unsaved").hidden = !edits.length;
  if (!edits.length || !part("said").classList.contains("bad")) say();
  if (edits.length && !problems().length) effect.ask({ digest: file.digest, edits });
  text.lock(edits.length > 0);
};

const view = new CameraView(changed);
const text = new FileText((answer) => saved(answer), () => file?.digest);
const effect = new Effect(part("save"), part("effect"), "Save");

const say = (words = [], bad = false) => {
  const box = part("said");
  box.classList.toggle("bad", bad);
  box.replaceChildren(...words.map((line) => element("p", "", line)));
};

const showSinks = (names) => {
  const list = part("sink-list");
  list.replaceChildren(...names.map((name) => {
    const item = element("li", "", name);
    const test = element("button", "plain", "Test");
    const told = element("span", "answer");
    test.type = "button";
    test.setAttribute("aria-label", `Test ${name}`);
    told.setAttribute("role", "status");
    item.dataset.sink = name;
    test.addEventListener("click", async () => {
      test.disabled = true;
      told.className = "answer";
      told.textContent = "Sending a test…";
      const answer = await send("POST", "/api/settings/test-sink", { name });
      const failed = !answer.ok || answer.body.outcome === "failed";
      told.classList.toggle("bad", failed);
      told.textContent = answer.ok ? `${failed ? "Failed: " : "Sent: "}${answer.body.words}` : wordsOf(answer).join(" ");
      test.disabled = false;
    });
    item.append(test, told);
    return item;
  }));
  if (!names.length) list.replaceChildren(element("li", "note", "No sinks yet."));
};

const showSections = () => {
  for (const input of part("more-form").elements) {
    const [section, key] = input.name.split(".");
    input.value = draft.sections[section][key];
    input.oninput = () => {
      if (input.value !== "" && !Number.isNaN(Number(input.value))) draft.sections[section][key] = Number(input.value);
      changed();
    };
  }
};

const load = async () => {
  const answer = await send("GET", "/api/settings");
  if (!answer.ok) {
    part("no-file").hidden = false;
    part("parts").hidden = true;
    part("no-file").textContent = answer.status === 0 ? "The site does not answer. Try again." : wordsOf(answer).join(" ");
    return;
  }
  file = answer.body;
  part("no-file").hidden = true;
  part("parts").hidden = false;
  part("file-name").textContent = file.file;
  text.show(file.text, file.wrong);
  for (const id of ["cameras", "sinks", "more"]) part(id).hidden = !file.values;
  draft = file.values ? new Draft(file.values) : null;
  if (draft) {
    view.show(draft);
    showSinks(file.values.sinks);
    showSections();
  }
  changed();
};

// Wait until the site is up again with the new file; its uptime is then shorter than we wait.
const restarted = async ({ digest, words }) => {
  const began = performance.now();
  part("unsaved").hidden = false;
  part("save").disabled = part("discard").disabled = true;
  say([`Saved. ${words}`]);
  part("changes").textContent = "";
  let site = null;
  while (performance.now() - began < RESTART_MS) {
    await new Promise((done) => setTimeout(done, POLL_MS));
    site = await ask("/api/site");
    if (site && 1000 * site.uptime_s < performance.now() - began) break;
    site = null;
  }
  part("save").disabled = part("discard").disabled = false;
  document.body.dataset.saved = digest;
  await load();
  if (!site) {
    part("unsaved").hidden = false;
    say(["The site has not come back. Check its log; the previous settings are in the file with .before added to its name."], true);
  }
};

// What can be said before the site is asked.
const problems = () => {
  const found = view.invalid();
  for (const camera of draft.cameras) {
    const names = camera.zones.map((zone) => zone.name);
    const name = camera.keys.name || "the new camera";
    if (!camera.keys.name) found.push("The new camera has no name.");
    if (!camera.keys.url) found.push(`${name} has no address.`);
    if (new Set(names).size < names.length) found.push(`Two zones of ${name} have the same name.`);
    for (const zone of camera.zones) {
      if (!NAME.test(zone.name)) found.push(`A zone of ${name} is called “${zone.name}”: use letters, digits, - and _.`);
      if (zone.corners.length < 3) found.push(`The zone ${zone.name} of ${name} needs at least 3 corners.`);
    }
  }
  return found;
};

const save = async () => {
  const wrong = problems();
  if (wrong.length) return say(wrong, true);
  part("save").disabled = true;
  say(["Checking…"]);
  const answer = await send("PATCH", "/api/settings", { digest: file.digest, edits: draft.edits() });
  part("save").disabled = false;
  if (!answer.ok) return say(wordsOf(answer), true);
  return saved(answer.body);
};

// The site runs by the new file already, or restarts with it.
const saved = async (answer) => {
  if (answer.effect === "restart") return restarted(answer);
  document.body.dataset.saved = answer.digest;
  await load();
  part("unsaved").hidden = false;
  say([`Saved. ${answer.words}`]);
};

part("save").addEventListener("click", save);
part("discard").addEventListener("click", load);
addEventListener("beforeunload", (event) => {
  if ((draft && draft.edits().length) || text.isChanged()) event.preventDefault();
});

const start = async () => {
  const site = await ask("/api/site");
  if (!site) return;
  part("site").textContent = site.name;
  document.title = `Settings · ${site.name} · stepvad`;
};

connect((message) => view.hear(message), start);
load();
