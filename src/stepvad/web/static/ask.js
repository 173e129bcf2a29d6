const WAIT_MS = 30000;

// A log-out leads to the form itself; leaving before its answer would keep the cookie.
let logsOut = false;
addEventListener("submit", (event) => { logsOut ||= event.target.action.endsWith("/logout"); });
export const toLogIn = () => { if (!logsOut) location.assign("/login"); };

// One question to the site; null if it has no answer, `refused` and `away` hear why. Who is not logged in is sent to the form.
export const ask = async (path, { method = "GET", body, refused, away } = {}) => {
  const answer = await fetch(path, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(WAIT_MS),
  }).catch(() => null);
  if (answer === null) return null;
  if (answer.status === 401) {
    toLogIn();
    return null;
  }
  if (answer.status === 503) away?.(await answer.json().then(({ detail }) => detail, () => ""));
  if (answer.status === 422) refused?.((await answer.json()).detail);
  if (!answer.ok) return null;
  return answer.status === 204 ? {} : answer.json();
};
