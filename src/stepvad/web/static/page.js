// Puts the parts of the page together and keeps them up to date.
import { ask } from "./ask.js";
import { connect } from "./connection.js";
import { Events } from "./events.js";
import { EventView } from "./event.js";
import { MomentView } from "./moment.js";
import { showHealth, showStored } from "./health.js";
import { refreshLearning } from "./learning.js";
import { showSites } from "./sites.js";
import { Wall } from "./wall.js";
import { element, sentence, when } from "./words.js";

const REFRESH_MS = 30000; // the whole hour of scores is asked for again
const LEARNING_MS = 5000;

const cameras = new Map();
const wall = new Wall(document.getElementById("wall"), document.getElementById("span"));
const events = new Events();
const view = new EventView(events, cameras);
const moment = new MomentView(cameras);
let known = "";

const timelines = async () => {
  for (const one of (await ask("/api/timelines")) ?? []) wall.setTimeline(one);
};

const showTroubles = (troubles) => {
  const box = document.getElementById("troubles");
  const lines = troubles.map((one) => `${sentence(one.words)}, since ${when(one.since)}`);
  if (box.dataset.said === lines.join("\n")) return;
  box.dataset.said = lines.join("\n");
  box.hidden = !lines.length;
  box.replaceChildren(...lines.map((line) => element("p", "", line)));
};

const hear = (message) => {
  if (message.frames) wall.showFrames(message.frames);
  if (!message.cameras) return;
  showTroubles(message.troubles);
  const hasWall = message.cameras.length > 0; // a fleet has events alone
  document.getElementById("cameras").hidden = !hasWall;
  document.body.classList.toggle("events-only", !hasWall);
  cameras.clear();
  for (const one of message.cameras) cameras.set(one.name, one);
  events.setZones(message.cameras.flatMap((one) => Object.keys(one.zones)));
  wall.showCameras(message.cameras, message.now);
  if (!hasWall) showSites((name) => events.choose(name));
  if (hasWall) events.setCameras(message.cameras.map((one) => one.name));
  showHealth(message.cameras, message.sinks);
  if (message.events && message.events !== known) {
    known = message.events;
    events.load();
    view.refresh();
    showStored();
    if (hasWall) refreshLearning();
    else start();
  }
};

const start = async () => {
  const site = await ask("/api/site");
  if (site) {
    document.getElementById("site").textContent = site.name;
    document.title = `${site.name} · stepvad`;
    events.tellToReview(events.toReview);
    const sites = site.cameras.filter((name) => name.includes("/")).map((name) => `${name.split("/")[0]}/`);
    if (sites.length) events.setCameras([...new Set(sites), ...site.cameras]);
  }
};

const follow = () => {
  const [kind, id, at] = location.hash.slice(1).split("/");
  if (kind !== "moment") moment.close();
  if (kind === "event" && id) view.open(decodeURIComponent(id));
  else view.close();
  if (kind === "moment" && id && at) moment.open(decodeURIComponent(id), Number(at));
};

connect(hear, () => {
  known = "";
  start();
  timelines();
});
setInterval(timelines, REFRESH_MS);
setInterval(() => cameras.size && refreshLearning(), LEARNING_MS);
addEventListener("hashchange", follow);
follow();
