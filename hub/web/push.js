// Being told while the page is closed: the browser's push service carries what the hub encrypted for it.

import { unbase64url } from "./keys.js";

/** Why it cannot be had here: `""` when it can, else a key of the texts. */
export async function pushLacks(hub) {
  if (!hub.has("push.web.subscribe")) return "push.nohub";
  if (!("serviceWorker" in navigator) || !("PushManager" in globalThis)) return "push.nobrowser";
  // Registered at the start, where the browser trusts the hub's certificate.
  return (await navigator.serviceWorker.getRegistration()) ? "" : "push.untrusted";
}

const subscription = async () => (await navigator.serviceWorker.ready).pushManager.getSubscription();

/** Whether this browser is told. */
export const isTold = async () => Boolean(await subscription());

/** Asks the person, then the push service, then the hub. */
export async function tellMe(hub, refused) {
  if ((await Notification.requestPermission()) !== "granted") throw new Error(refused);
  const { vapidPublicKey } = await hub.call("push.web.vapidPublicKey");
  const { pushManager } = await navigator.serviceWorker.ready;
  const made = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: unbase64url(vapidPublicKey) });
  try {
    await hub.call("push.web.subscribe", made.toJSON());
  } catch (error) {
    await made.unsubscribe();
    throw error;
  }
}

/** Ends it on both sides. */
export async function tellMeNoMore(hub) {
  const made = await subscription();
  if (!made) return;
  await hub.call("push.web.unsubscribe", { endpoint: made.endpoint });
  await made.unsubscribe();
}
