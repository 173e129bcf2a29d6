const WAIT_MS = 30000;

// One question to the site; null if it has no answer. Who is not logged in is sent to the form.
export const ask = async (path, { method = "GET", body } = {}) => {
  const answer = await fetch(path, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(WAIT_MS),
  }).catch(() => null);
  if (answer === null) return null;
  if (answer.status === 401) {
    location.assign("/login");
    return null;
  }
  if (!answer.ok) return null;
  return answer.status === 204 ? {} : answer.json();
};
