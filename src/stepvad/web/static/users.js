// Who may log in: add, change, remove; and what they did.
import { toLogIn } from "./ask.js";
import { me } from "./me.js";
import { element, when } from "./words.js";

const PAGE = 50;
const at = (id) => document.getElementById(id);
let oldest = null;
let self = null;

// The answer, or what was wrong in words.
const ask = async (path, { method = "GET", body } = {}) => {
  const answer = await fetch(path, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch(() => null);
  if (answer === null) return { problem: "The site does not answer. Try again." };
  if (answer.status === 401) {
    toLogIn();
    return { problem: "You are logged out." };
  }
  if (answer.ok) return { told: answer.status === 204 ? {} : await answer.json() };
  const { detail } = await answer.json().catch(() => ({}));
  if (answer.status === 422) return { problem: "A name may contain only letters, digits and . _ @ + -" };
  return { problem: detail ?? "You may not do that." };
};

const say = (words, isWrong = false) => {
  at("said").textContent = words;
  at("said").classList.toggle("wrong", isWrong);
};

// One change: says what was done or what was wrong, and shows the list anew.
const change = async (path, options, words) => {
  const { told, problem } = await ask(path, options);
  say(problem ?? words, Boolean(problem));
  await Promise.all([showUsers(), showEntries()]);
  return told;
};

const showLink = (told) => {
  at("one-time").hidden = !told;
  if (!told) return;
  at("link-words").textContent = `Send this link to ${told.user.name} to choose a password. It works once, within a day.`;
  at("link-url").value = location.origin + told.path;
  at("copy").textContent = "Copy";
  at("copy").focus();
};

const isSure = (name) => new Promise((resolve) => {
  const dialog = at("sure");
  at("sure-title").textContent = `Remove ${name}?`;
  dialog.returnValue = "no";
  for (const button of dialog.querySelectorAll("button")) button.onclick = () => dialog.close(button.value);
  // If the browser is late, an open dialog hears that the last question was closed.
  dialog.onclose = () => { if (!dialog.open) resolve(dialog.returnValue === "yes"); };
  dialog.showModal();
  at("sure-title").focus();
});

const path = (name, rest = "") => `/api/users/${encodeURIComponent(name)}${rest}`;

const state = (user) => {
  const parts = [];
  if (user.last_login) parts.push(`last log-in ${when(user.last_login)}`);
  if (!user.has_password) parts.push("no password yet");
  if (user.link_expires) parts.push(`link until ${when(user.link_expires)}`);
  return parts.join(" · ");
};

const newRow = (user) => {
  const row = at("user").content.firstElementChild.cloneNode(true);
  const { name } = user;
  row.dataset.name = name;
  row.querySelector("strong").textContent = name;
  const select = row.querySelector("select");
  select.ariaLabel = `What ${name} may do`;
  select.addEventListener("change", () =>
    change(path(name, "/role"), { method: "PUT", body: { role: select.value } }, `${name} may ${select.value} now.`));
  const link = row.querySelector(".new-link");
  link.ariaLabel = `New link for ${name}`;
  link.addEventListener("click", async () =>
    showLink(await change(path(name, "/link"), { method: "POST" }, "")));
  const remove = row.querySelector(".remove");
  remove.ariaLabel = `Remove ${name}`;
  remove.addEventListener("click", async () => {
    if (!(await isSure(name))) return;
    await change(path(name), { method: "DELETE" }, `${name} is removed and logged out.`);
    at("users").focus();
  });
  return row;
};

const showUsers = async () => {
  const { told } = await ask("/api/users");
  if (!told) return;
  const rows = new Map([...at("list").children].map((row) => [row.dataset.name, row]));
  const shown = told.map((user) => {
    const row = rows.get(user.name) ?? newRow(user);
    row.querySelector(".small").textContent = user.name === self ? "this is you" : state(user);
    row.querySelector("select").value = user.role;
    for (const own of row.querySelectorAll("select, .remove")) own.disabled = user.name === self;
    return row;
  });
  for (const row of rows.values()) if (!shown.includes(row)) row.remove();
  shown.forEach((row, n) => {
    if (at("list").children[n] !== row) at("list").insertBefore(row, at("list").children[n] ?? null);
  });
  at("none").hidden = told.length > 0;
};

const entry = (one) => {
  const line = element("li");
  const time = element("time", "", when(one.time));
  time.dateTime = new Date(1000 * one.time).toISOString();
  const what = `${one.action}${one.subject ? ` ${one.subject}` : ""}`;
  line.append(time, element("strong", "", one.user), ` ${what}`);
  if (one.address) line.append(element("span", "from", `from ${one.address}`));
  return line;
};

const showEntries = async (isMore = false) => {
  const query = new URLSearchParams({ limit: PAGE });
  if (isMore && oldest !== null) query.set("before", oldest);
  const { told } = await ask(`/api/audit?${query}`);
  if (!told) return;
  if (!isMore) at("entries").replaceChildren();
  at("entries").append(...told.map(entry));
  if (told.length) oldest = told[told.length - 1].seq;
  at("more").hidden = told.length < PAGE;
};

at("add").addEventListener("submit", async (submit) => {
  submit.preventDefault();
  const { name, role } = submit.target.elements;
  const body = { name: name.value.trim(), role: role.value };
  const told = await change("/api/users", { method: "POST", body }, `${body.name} may ${body.role}.`);
  showLink(told);
  if (told) name.value = "";
  else name.focus();
});
at("copy").addEventListener("click", async () => {
  at("link-url").select();
  const copied = await navigator.clipboard?.writeText(at("link-url").value).then(() => true, () => false);
  at("copy").textContent = copied || document.execCommand("copy") ? "Copied" : "Copy it by hand";
});
at("more").addEventListener("click", () => showEntries(true));
const start = async () => {
  self = (await me)?.name ?? null;
  await showUsers();
  await showEntries();
};
start();
