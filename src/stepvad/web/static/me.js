// Who is logged in: the body says the role, so that the style sheet hides what one may not do.
import { ask } from "./ask.js";

export const me = ask("/api/me");

const showMe = async () => {
  const user = await me;
  if (!user) return;
  document.body.dataset.role = user.role;
  document.body.dataset.knownBy = user.known_by;
  const link = document.getElementById("me");
  if (!link || user.name === "token") return;
  link.hidden = false;
  link.textContent = user.name;
  if (user.known_by !== "session") return; // a proxy has the password
  link.href = "/password";
  link.title = "Change your password";
};
showMe();
