// The page of notifications: this browser, and who else gets messages.
import { ask } from "./ask.js";
import { current, hindrance, renew, subscribe, unsubscribe } from "./push.js";
import { count, sentence } from "./words.js";

const state = document.getElementById("browser-state");
const on = document.getElementById("subscribe");
const off = document.getElementById("unsubscribe");
const list = document.getElementById("people");
let key = null;

const say = (words, isTrouble = false) => {
  state.textContent = words;
  state.classList.toggle("trouble", isTrouble);
};

const showBrowser = async () => {
  on.hidden = off.hidden = true;
  if (key === null) return say("The settings of this site do not notify browsers.");
  const why = hindrance();
  if (why) return say(why, true);
  const found = await current(key);
  if (found) {
    await renew(found);
    off.hidden = false;
    return say("This browser shows alerts, even while the page is closed.");
  }
  on.hidden = false;
  return say("This browser does not show alerts.");
};

const press = async (button, action) => {
  button.disabled = true;
  const trouble = await action(key);
  await load();
  if (trouble) say(trouble, true);
  button.disabled = false;
};

const group = (one) => {
  const made = document.getElementById("group").content.cloneNode(true);
  made.querySelector("h3").textContent = one.name;
  made.querySelector(".events").textContent = `Events of ${one.events}, sent to ${one.to.join(", ")}.`;
  made.querySelector(".limits").textContent = `${sentence(one.limits.join("; "))}.`;
  return made;
};

const load = async () => {
  const found = await ask("/api/notifications");
  if (!found) return say("The site did not answer. Reload this page.", true);
  key = found.public_key;
  document.getElementById("nobody").hidden = found.people.length > 0;
  document.getElementById("browsers").textContent = found.browsers ? `${count(found.browsers, "browser")} notified` : "";
  if (!list.children.length) list.append(...found.people.map(group));
  return showBrowser();
};

on.addEventListener("click", () => press(on, subscribe));
off.addEventListener("click", () => press(off, unsubscribe));
load();
