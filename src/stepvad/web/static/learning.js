// How far the site has learned, its models, and how many alerts were right.
import { ask } from "./ask.js";
import { element, when } from "./words.js";

const banner = document.getElementById("learning");
const box = document.getElementById("models");

const act = (button, path, body) => {
  button.addEventListener("click", async () => {
    button.disabled = true;
    const done = await ask(path, { method: "POST", body });
    if (done) show(done);
    else button.textContent = "That did not work; try again";
    button.disabled = false;
  });
  return button;
};

const row = (one) => {
  const item = element("li", one.is_current ? "current" : "");
  const state = one.is_current ? ", in use" : "";
  item.append(element("strong", "", `Model of ${when(one.made)}${state}. `), element("span", "", one.changed));
  if (!one.is_current) item.append(act(element("button", "plain for-admins", "Go back to this one"), "/api/learning/use", { model: one.name }));
  return item;
};

const show = (told) => {
  const words = [told.words, told.doing && "A new model is being learned now.", told.problem && `The last attempt failed: ${told.problem}`];
  banner.textContent = words.filter((one) => one).join(" ");
  banner.hidden = !told.words;
  document.getElementById("learned").hidden = !told.words;
  if (!told.words || box.contains(document.activeElement)) return;
  const list = element("ul", "plain-list");
  list.append(...told.models.map(row));
  const fit = act(element("button", "plain for-admins", "Learn a new model now"), "/api/learning/fit");
  box.replaceChildren(list, fit);
};

const cells = (one) => [
  one.week, one.camera, one.alerts, one.right, one.normal, one.unjudged,
  one.precision === null ? "–" : `${Math.round(100 * one.precision)} %`,
];

const showPrecision = (weeks) => {
  const table = document.getElementById("precision");
  document.getElementById("judged-title").hidden = table.hidden = !weeks.length;
  const line = (values, tag) => {
    const made = element("tr");
    made.append(...values.map((value, n) => element(n < 2 && tag === "td" ? "th" : tag, "", String(value))));
    return made;
  };
  const head = element("thead");
  head.append(line(["week of", "camera", "alerts", "right", "normal", "not judged", "share right"], "th"));
  const body = element("tbody");
  body.append(...weeks.map((one) => line(cells(one), "td")));
  table.replaceChildren(head, body);
};

export const refreshLearning = async () => {
  const [told, weeks] = await Promise.all([ask("/api/learning"), ask("/api/precision")]);
  if (told) show(told);
  if (weeks) showPrecision(weeks);
};
