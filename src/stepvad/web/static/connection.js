// The live connection: it says when it is lost, and comes back by itself.
import { ask } from "./ask.js";

const SILENCE_MS = 6000; // health comes every second
const WAITS_MS = [500, 1000, 2000, 4000, 8000];

export const connect = (hear, began) => {
  const link = document.getElementById("link");
  const lost = document.getElementById("lost");
  let failures = 0;
  let since = null;

  const tell = (state, words) => {
    if (link.dataset.state === state) return;
    link.dataset.state = state;
    link.textContent = words;
  };
  const isLost = () => {
    since ??= new Date();
    tell("lost", "Not connected");
    document.body.classList.add("is-lost");
    lost.hidden = false;
    const said = `The connection to the site was lost at ${since.toLocaleTimeString("en-GB")}. ` +
      "What you see is out of date. Reconnecting.";
    if (lost.textContent !== said) lost.textContent = said;
  };

  const open = () => {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws/live`);
    let watch = setTimeout(() => socket.close(), SILENCE_MS);
    socket.addEventListener("open", () => began());
    socket.addEventListener("message", (message) => {
      clearTimeout(watch);
      watch = setTimeout(() => {
        isLost();
        socket.close();
      }, SILENCE_MS);
      failures = 0;
      since = null;
      tell("live", "Live");
      document.body.classList.remove("is-lost");
      lost.hidden = true;
      hear(JSON.parse(message.data));
    });
    socket.addEventListener("close", (closed) => {
      clearTimeout(watch);
      if (closed.code === 1012) return open(); // the proxy is asked who this is
      isLost();
      setTimeout(open, WAITS_MS[Math.min(failures, WAITS_MS.length - 1)]);
      failures += 1;
      if (failures > 1) ask("/api/site"); // leads to the form if the token is another
    });
  };
  open();
};
