// A request whose refusal has words: what is wrong, in which line, and what helps.
import { toLogIn } from "./ask.js";
import { sentence } from "./words.js";

const WAIT_MS = 60000; // a camera is tried for 45 seconds

export const send = async (method, path, body) => {
  const answer = await fetch(path, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(WAIT_MS),
  }).catch(() => null);
  if (answer === null) return { ok: false, status: 0, body: null };
  if (answer.status === 401) toLogIn();
  return { ok: answer.ok, status: answer.status, body: await answer.json().catch(() => null) };
};

const PAUSE_MS = 300;
const THEN = { reopen: " and reopen", restart: " and restart" };

// What saving would do to the running site, asked when typing pauses; the button says it, too.
export class Effect {
  constructor(button, note, label) {
    Object.assign(this, { button, note, label, asked: 0 });
  }

  ask(body) {
    const asked = ++this.asked;
    setTimeout(async () => {
      if (asked !== this.asked) return;
      const answer = await send("POST", "/api/settings/effect", body);
      if (asked !== this.asked) return;
      this.button.textContent = this.label + (THEN[answer.body?.effect] ?? "");
      this.note.textContent = answer.body?.words ?? "";
    }, PAUSE_MS);
  }
}

// The lines to show for an answer that is a refusal.
export const wordsOf = (answer) => {
  if (answer.status === 0) return ["The site does not answer. Load the page again to see whether the change was saved."];
  const detail = answer.body?.detail;
  if (typeof detail === "string") return [detail];
  if (Array.isArray(detail)) return detail.map((one) => `${one.loc.slice(1).join(".")}: ${one.msg}`);
  if (!detail) return [answer.status === 403 ? "You may not change the settings." : `The site answered ${answer.status}.`];
  return refusal(detail);
};

export const refusal = ({ problem, hint, line, excerpt }) => {
  const where = line ? `Line ${line}: ` : "";
  const lines = [`${where}${problem}`];
  if (excerpt) lines.push(excerpt);
  if (hint) lines.push(`${sentence(hint)}${hint.endsWith(".") ? "" : "."}`);
  return lines;
};
