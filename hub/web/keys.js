// This browser's keys: one signs connections, another signs grants, never the same.
//
// Both are made by WebCrypto and cannot be read out, only used, from this page. A browser that has no Ed25519,
// or a page without a secure context, gets a key for connections in plain script: with it one can look and chat,
// but nothing such a key could sign is ever a person's yes.

const ED = { name: "Ed25519" };
const DATABASE = "hearth";
const STORE = "keys";

let database;

function open() {
  database ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return database;
}

async function transact(mode, run) {
  const db = await open();
  return new Promise((resolve, reject) => {
    const transaction = db.transaction(STORE, mode, { durability: "strict" });
    const request = run(transaction.objectStore(STORE));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

/** A value kept in this browser. */
export const load = (name) => transact("readonly", (s) => s.get(name));
export const save = (name, value) => transact("readwrite", (s) => s.put(value, name));
export const forget = (name) => transact("readwrite", (s) => s.delete(name));
export const forgetAll = () => transact("readwrite", (s) => s.clear());

/** Why this browser cannot hold a person's key: `""` when it can, else `insecure` or `old`. */
export async function lacks() {
  if (!isSecureContext || !crypto.subtle) return "insecure";
  try {
    await crypto.subtle.generateKey(ED, false, ["sign", "verify"]);
    return "";
  } catch {
    return "old";
  }
}

const plain = () => import("./vendor/ed25519.js");

/** SHA-256 of bytes. */
export async function sha256(bytes) {
  if (crypto.subtle) return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return (await plain()).sha256(bytes);
}

export const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

export function unhex(text) {
  if (typeof text !== "string" || !/^([0-9a-f]{2})*$/.test(text)) throw new Error("not hex");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export const base64url = (bytes) =>
  btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

export function unbase64url(text) {
  const binary = atob(String(text).replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (c) => c.charCodeAt(0));
}

/** Whether `signature` over `message` is by `publicKey`; all are bytes. */
export async function verify(publicKey, signature, message) {
  if (!(await lacks())) {
    try {
      const key = await crypto.subtle.importKey("raw", publicKey, ED, false, ["verify"]);
      return await crypto.subtle.verify(ED, key, signature, message);
    } catch {
      return false;
    }
  }
  return (await plain()).verify(signature, message, publicKey);
}

/** Something that signs: the raw public key, its id (hex SHA-256), and `sign(bytes)`. */
async function signer(kept) {
  const id = hex(await sha256(kept.publicKey));
  const sign = kept.privateKey
    ? async (bytes) => new Uint8Array(await crypto.subtle.sign(ED, kept.privateKey, bytes))
    : async (bytes) => (await plain()).sign(bytes, kept.secret);
  return { id, publicKey: kept.publicKey, sign, weak: !kept.privateKey };
}

async function make() {
  const pair = await crypto.subtle.generateKey(ED, false, ["sign", "verify"]);
  const publicKey = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  return { privateKey: pair.privateKey, publicKey };
}

/** The key that signs connections; made when there is none. */
export async function deviceKey() {
  let kept = await load("device");
  if (!kept) {
    if (await lacks()) {
      const secret = crypto.getRandomValues(new Uint8Array(32));
      kept = { secret, publicKey: await (await plain()).getPublicKey(secret) };
    } else {
      kept = await make();
    }
    await save("device", kept);
  }
  return signer(kept);
}

/** The person's key that signs grants, or `null` when none was made. */
export async function approverKey() {
  const kept = await load("approver");
  return kept ? signer(kept) : null;
}

/** Makes it. Only where it cannot be read out. */
export async function makeApproverKey() {
  const existing = await approverKey();
  if (existing) return existing;
  const kept = await make();
  await save("approver", kept);
  return signer(kept);
}
