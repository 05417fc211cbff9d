// Ed25519 and SHA-256 in plain script, for browsers without them: @noble/ed25519 3.2.0 and @noble/hashes 2.4.0
// (MIT), copied unchanged into noble/. Loaded only where WebCrypto is missing.

import { getPublicKey as publicKey, hashes, sign as edSign, verify as edVerify } from "./noble/ed25519.js";
import { sha256, sha512 } from "./noble/sha2.js";

hashes.sha512 = sha512;

export { sha256 };
export const getPublicKey = (secret) => publicKey(secret);
export const sign = (message, secret) => edSign(message, secret);

/** Strict, as the hub and nodes verify. */
export function verify(signature, message, key) {
  try {
    return edVerify(signature, message, key, { zip215: false });
  } catch {
    return false;
  }
}
