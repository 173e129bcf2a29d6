// Web Push in this browser: whether it can, whether it does, and how to begin and end it.
const SUBSCRIPTIONS = "/api/notifications/subscriptions";

const bytes = (text) => {
  const padded = text.replaceAll("-", "+").replaceAll("_", "/").padEnd(Math.ceil(text.length / 4) * 4, "=");
  return Uint8Array.from(atob(padded), (letter) => letter.charCodeAt(0));
};
const isSame = (one, other) =>
  one !== null && one.byteLength === other.byteLength && new Uint8Array(one).every((byte, n) => byte === other[n]);

// Why this browser cannot be notified, in words; empty if it can.
export const hindrance = () => {
  if (!isSecureContext) {
    return "Browsers allow notifications from secure pages only. Open this page over https, " +
      "or as http://localhost on the machine that runs the site.";
  }
  const isPhone = /iPhone|iPad/.test(navigator.userAgent);
  if (!("serviceWorker" in navigator) || !("PushManager" in window)) {
    return isPhone
      ? "On an iPhone or iPad, add this page to the home screen first (Share, Add to Home Screen), and open it from there."
      : "This browser cannot show notifications. Use a current Firefox, Chrome, Edge or Safari, and not a private window.";
  }
  if (Notification.permission === "denied") {
    return "This browser blocks notifications from this page. Allow them in its settings for this page, then reload.";
  }
  return "";
};

const tell = async (method, body) => {
  const answer = await fetch(SUBSCRIPTIONS, {
    method,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  }).catch(() => null);
  if (answer?.ok) return "";
  const said = answer ? (await answer.json().catch(() => null))?.detail : null;
  return typeof said === "string" ? said : "The site did not answer. Try again.";
};

// The subscription of this browser with this key; one with another key is worth nothing.
export const current = async (key) => {
  const registration = await navigator.serviceWorker.getRegistration("/");
  const found = (await registration?.pushManager.getSubscription()) ?? null;
  if (!found) return null;
  if (isSame(found.options.applicationServerKey, bytes(key))) return found;
  await found.unsubscribe();
  return null;
};

// What went wrong, in words; empty if this browser is notified from now on.
export const subscribe = async (key) => {
  if ((await Notification.requestPermission()) !== "granted") {
    return "Nothing has changed: this browser does not allow notifications from this page.";
  }
  try {
    await navigator.serviceWorker.register("/sw.js");
    const registration = await navigator.serviceWorker.ready;
    const options = { userVisibleOnly: true, applicationServerKey: bytes(key) };
    const made = await registration.pushManager.subscribe(options);
    return await tell("PUT", made.toJSON());
  } catch (error) {
    return `The browser's push service refused (${error.name}). Check that this device is online, and try again.`;
  }
};

// The site hears of it even if the browser has forgotten its subscription, when a message fails.
export const unsubscribe = async (key) => {
  const found = await current(key);
  if (!found) return "";
  const said = await tell("DELETE", { endpoint: found.endpoint });
  await found.unsubscribe();
  return said;
};

// After a reload the site may not know of this browser any more, such as after its data was lost.
export const renew = async (found) => tell("PUT", found.toJSON());
