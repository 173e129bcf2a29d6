// The text of the file with line numbers; the line that is refused is marked.
import { element } from "./words.js";
import { Effect, refusal, send, wordsOf } from "./settings-send.js";

export class FileText {
  constructor(saved, digest) {
    this.saved = saved;
    this.digest = digest;
    this.area = document.getElementById("text");
    this.numbers = document.getElementById("numbers");
    this.answer = document.getElementById("text-answer");
    this.saveButton = document.getElementById("save-text");
    this.effect = new Effect(this.saveButton, document.getElementById("text-effect"), "Save the file");
    this.before = "";
    this.locked = false;
    this.bad = null;
    this.area.addEventListener("input", () => {
      this.typed();
      this.effect.ask({ text: this.area.value });
    });
    this.area.addEventListener("scroll", () => (this.numbers.scrollTop = this.area.scrollTop));
    this.saveButton.addEventListener("click", () => this.save());
  }

  isChanged() {
    return this.area.value !== this.before;
  }

  // While the forms have changes that are not saved, the text cannot be changed.
  lock(locked) {
    this.locked = locked;
    this.area.readOnly = locked;
    this.typed();
  }

  show(text, wrong) {
    this.area.value = text;
    this.before = this.area.value; // with the ends of lines that a browser knows
    this.bad = wrong?.line ?? null;
    if (wrong) this.say(["The file was edited by hand and has an error. The site still runs with the previous version.", ...refusal(wrong)], true);
    else this.say([]);
    this.typed();
  }

  typed() {
    this.saveButton.disabled = !this.isChanged() || this.locked;
    const lines = this.area.value.split("\n").length;
    this.numbers.replaceChildren(...Array.from({ length: lines }, (_, n) =>
      element("div", n + 1 === this.bad ? "bad" : "", `${n + 1}`)));
    this.numbers.style.height = `${this.area.offsetHeight}px`;
    this.numbers.scrollTop = this.area.scrollTop;
  }

  say(lines, bad = false) {
    this.answer.classList.toggle("bad", bad);
    this.answer.replaceChildren(...lines.map((line) => element("p", "", line)));
  }

  // Mark a line and bring it into view.
  mark(line) {
    this.bad = line;
    this.typed();
    if (!line) return;
    const lines = this.area.value.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    this.area.focus();
    this.area.setSelectionRange(start, start + lines[line - 1].length);
    const height = this.area.scrollHeight / lines.length;
    this.area.scrollTop = Math.max((line - 5) * height, 0);
  }

  async save() {
    this.saveButton.disabled = true;
    this.say(["Checking…"]);
    const answer = await send("PUT", "/api/settings", { digest: this.digest(), text: this.area.value });
    if (!answer.ok) {
      this.mark(answer.body?.detail?.line ?? null);
      this.say(wordsOf(answer), true);
      this.typed();
      return;
    }
    this.say([]);
    this.before = this.area.value;
    await this.saved(answer.body);
  }
}
