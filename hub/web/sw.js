// The service worker: opens the page when the hub cannot be reached, and shows what the hub pushes.
//
// Files come from the hub whenever it answers, so an updated hub serves an updated page at once; the copies are
// for when it does not. Nothing but the page's own files is ever kept.

const CACHE = "hearth-page";
const KEPT = /^\/(|[\w-]+\.(js|css|svg|png|webmanifest)|(views|lang|vendor)\/[\w/.-]+\.js)$/;
/** A hub on the same network answers at once or not at all. */
const PATIENCE = 3000;

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== location.origin || !KEPT.test(url.pathname)) return;
  event.respondWith(serve(event.request));
});

async function serve(request) {
  const cache = await caches.open(CACHE);
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), PATIENCE);
  try {
    const fresh = await fetch(request, { signal: abort.signal });
    if (fresh.ok) await cache.put(request, fresh.clone());
    return fresh;
  } catch (error) {
    const kept = await cache.match(request);
    if (kept) return kept;
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

// What the hub pushes is `{kind, id, detail?}`; without `detail` nothing of the request left the house.
const WORDS = {
  en: {
    approval: "A request waits for your yes or no",
    pairing: "A device asks to be let in",
    alarm: "The hub needs your attention",
    test: "Notifications from your hub work",
  },
  zh: {
    approval: "有一个请求在等您批准或拒绝",
    pairing: "有设备请求加入",
    alarm: "中枢需要您查看",
    test: "中枢的通知可以送达",
  },
};
const PLACES = { approval: "/#/requests", pairing: "/#/people", alarm: "/#/audit", test: "/#/settings" };

self.addEventListener("push", (event) => event.waitUntil(tell(event.data)));

async function tell(data) {
  let notice = {};
  try {
    notice = data.json();
  } catch {
    // Whatever it was, a push must be shown: the browser demands it.
  }
  const kind = notice.kind in PLACES ? notice.kind : "alarm";
  const lang = (await kept("lang").catch(() => null)) ?? (navigator.language.startsWith("zh") ? "zh" : "en");
  await self.registration.showNotification("Hearth", {
    body: [(WORDS[lang] ?? WORDS.en)[kind], notice.detail].filter(Boolean).join(": ").slice(0, 300),
    icon: "/icon-192.png",
    tag: `${kind}:${notice.id ?? ""}`,
    lang,
    data: PLACES[kind],
  });
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(show(event.notification.data));
});

async function show(place) {
  const [open] = await self.clients.matchAll({ type: "window" });
  if (!open) return self.clients.openWindow(place);
  await open.focus();
  return open.navigate(place);
}

/** A setting that the page keeps where a worker can read it; see `keys.js`. */
function kept(name) {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("hearth");
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const db = request.result;
      const found = db.transaction("keys").objectStore("keys").get(name);
      found.onsuccess = () => resolve(found.result);
      found.onerror = () => reject(found.error);
      found.transaction.oncomplete = () => db.close();
    };
  });
}
