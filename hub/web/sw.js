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
