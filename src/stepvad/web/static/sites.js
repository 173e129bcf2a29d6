// The sites of a fleet, those that need somebody first; a click shows the events of a site.
import { ask } from "./ask.js";
import { count, element, sentence, when } from "./words.js";

const EVERY_MS = 15000;
const SHOWN = 20;

const box = document.getElementById("sites");
const more = document.getElementById("all-sites");
let timer = null;
let isWhole = false;
let known = [];

const rank = (one) => (one.is_away ? 0 : one.refused || one.troubles.length ? 1 : 2);

const camerasOf = (one) => {
  const some = Object.entries(one.cameras).filter(([, n]) => n);
  return some.map(([state, n]) => `${n} ${state}`).join(", ") || "none";
};

const said = (one) => {
  const refused = one.refused && `runs its former model and settings: ${one.refused}`;
  return [...one.troubles, refused, one.learning, one.budget].filter((words) => words);
};

const rowOf = (one, choose) => {
  const row = element("tr");
  row.dataset.site = one.site;
  row.dataset.state = ["away", "troubled", "online"][rank(one)];
  const name = element("th");
  name.scope = "row";
  const link = element("a", "", one.site);
  link.href = "#events";
  link.addEventListener("click", () => choose(`${one.site}/`));
  name.append(link);
  const state = element("td", "state", one.is_away ? `away since ${when(one.at)}` : "online");
  const words = element("td");
  words.append(...said(one).map((line) => element("p", "", sentence(line))));
  const model = one.model ? one.model.slice(0, 8) : "its own";
  row.append(name, state, ...[camerasOf(one), one.group, model, one.version].map((text) => element("td", "", text)), words);
  return row;
};

const show = (choose) => {
  const away = known.filter((one) => one.is_away).length;
  const troubled = known.filter((one) => rank(one) === 1).length;
  const parts = [count(known.length, "site"), away && `${away} away`, troubled && `${troubled} with a problem`];
  document.getElementById("sites-count").textContent = parts.filter((part) => part).join(", ");
  const sorted = [...known].sort((a, b) => rank(a) - rank(b) || a.site.localeCompare(b.site));
  const head = element("thead");
  head.append(element("tr"));
  for (const title of ["site", "state", "cameras", "group", "model", "version", "what it says"]) {
    const cell = element("th", "", title);
    cell.scope = "col";
    head.firstChild.append(cell);
  }
  const body = element("tbody");
  body.append(...sorted.slice(0, isWhole ? undefined : SHOWN).map((one) => rowOf(one, choose)));
  box.querySelector("table").replaceChildren(head, body);
  more.hidden = isWhole || sorted.length <= SHOWN;
  more.textContent = `All ${sorted.length} sites`;
};

// Begins to show them, and goes on; `choose` shows the events of a site.
export const showSites = (choose) => {
  if (timer !== null) return;
  const refresh = async () => {
    known = (await ask("/api/sites")) ?? known;
    box.hidden = false;
    if (!box.contains(document.activeElement)) show(choose);
  };
  more.addEventListener("click", () => {
    isWhole = true;
    show(choose);
  });
  timer = setInterval(refresh, EVERY_MS);
  refresh();
};
