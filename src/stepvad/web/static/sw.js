// Shows a notification when the site sends one, also while no page is open.
const ICON = "/static/icon.svg";

const read = (data) => {
  try {
    return data.json();
  } catch {
    return { title: "stepvad", body: "Something happens. Open the page.", link: "/", tag: "" };
  }
};

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  const { title, body, link, tag } = read(event.data);
  const options = { body, tag, renotify: Boolean(tag), icon: ICON, data: { link } };
  event.waitUntil(self.registration.showNotification(title, options));
});

// The page of this browser may have another address than the one in the message.
const here = (link) => {
  const { pathname, hash } = new URL(link || "/", self.location.origin);
  return `${self.location.origin}${pathname}${hash}`;
};

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const link = here(event.notification.data?.link);
  const open = async () => {
    const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
    const page = pages.find((one) => new URL(one.url).pathname === new URL(link).pathname);
    if (!page) return self.clients.openWindow(link);
    await page.focus();
    return page.navigate(link);
  };
  event.waitUntil(open());
});

// A push service may replace a subscription: the site hears of the new one.
self.addEventListener("pushsubscriptionchange", (event) => {
  const renew = async () => {
    const options = event.oldSubscription?.options;
    const made = event.newSubscription ?? (options && (await self.registration.pushManager.subscribe(options)));
    if (!made) return;
    await fetch("/api/notifications/subscriptions", {
      method: "PUT",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(made),
    });
  };
  event.waitUntil(renew());
});
