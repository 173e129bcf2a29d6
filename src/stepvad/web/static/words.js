// Numbers and times as people read them.
export const number = (value) => {
  const digits = Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  const rounded = Number(value.toFixed(digits)) + 0; // -0 becomes 0
  return rounded.toFixed(digits).replace("-", "\u2212");
};

// How often the limit a score is: 1.8\u00d7.
export const times = (share) => `${share < 10 ? share.toFixed(1) : Math.round(share)}\u00d7`;

export const count = (n, noun, many = `${noun}s`) => `${n.toLocaleString("en")} ${n === 1 ? noun : many}`;

// What was said of an event, in a word or two.
export const stateOf = (event) => {
  if (event.mark === "right") return { kind: "right", says: "right alert" };
  if (event.mark === "normal") return { kind: "normal", says: "was normal" };
  if (event.end_time === null) return { kind: "open", says: "ongoing" };
  return event.reviewed === null ? { kind: "unseen", says: "to review" } : { kind: "seen", says: "seen" };
};

export const bytes = (n) => {
  const steps = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  for (; n >= 1000 && step < steps.length - 1; step++) n /= 1000;
  return `${step && n < 100 ? n.toFixed(1) : Math.round(n)} ${steps[step]}`;
};

export const clock = (seconds) =>
  new Date(1000 * seconds).toLocaleTimeString("en-GB");

// The time, with the day if that is not today.
export const when = (seconds) => {
  const date = new Date(1000 * seconds);
  if (date.toDateString() === new Date().toDateString()) return clock(seconds);
  const day = date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return `${day}, ${clock(seconds)}`;
};

export const duration = (seconds) => {
  if (seconds < 60) return `${Math.max(Math.round(seconds), 1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
};

export const milliseconds = (seconds) =>
  seconds === null ? "\u2013" : seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`;

export const sentence = (words) => words.slice(0, 1).toUpperCase() + words.slice(1);

// An element with a class and a text.
export const element = (tag, kind = "", text = "") => {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (text) made.textContent = text;
  return made;
};
