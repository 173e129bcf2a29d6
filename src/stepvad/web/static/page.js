// Puts the parts of the page together and keeps them up to date.
import { ask } from "./ask.js";
import { connect } from "./connection.js";
import { Events } from "./events.js";
import { EventView } from "./event.js";
import { showHealth, showStored } from "./health.js";
import { Wall } from "./wall.js";

const REFRESH_MS = 30000; // the whole hour of scores is asked for again

const wall = new Wall(document.getElementById("wall"), document.getElementById("span"));
const events = new Events();
const view = new EventView(() => events.load());
let known = "";

const timelines = async () => {
  for (const one of (await ask("/api/timelines")) ?? []) wall.setTimeline(one);
};

const hear = (message) => {
  if (message.frames) wall.showFrames(message.frames);
  if (!message.cameras) return;
  const hasWall = message.cameras.length > 0; // a fleet has events alone
  document.getElementById("cameras").hidden = !hasWall;
  document.body.classList.toggle("events-only", !hasWall);
  wall.showCameras(message.cameras, message.now);
  if (hasWall) events.setCameras(message.cameras.map((one) => one.name));
  showHealth(message.cameras, message.sinks);
  if (message.events && message.events !== known) {
    known = message.events;
    events.load();
    view.refresh();
    showStored();
    if (!hasWall) start();
  }
};

const start = async () => {
  const site = await ask("/api/site");
  if (site) {
    document.getElementById("site").textContent = site.name;
    document.title = `${site.name} · stepvad`;
    const sites = site.cameras.filter((name) => name.includes("/")).map((name) => `${name.split("/")[0]}/`);
    if (sites.length) events.setCameras([...new Set(sites), ...site.cameras]);
  }
};

const follow = () => {
  const [kind, id] = location.hash.slice(1).split("/");
  if (kind === "event" && id) view.open(decodeURIComponent(id));
  else view.close();
};

connect(hear, () => {
  known = "";
  start();
  timelines();
});
setInterval(timelines, REFRESH_MS);
addEventListener("hashchange", follow);
follow();
