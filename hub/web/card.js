// What a person approves, and the signature that says so.
//
// A card is made from the node's challenge alone: one JSON text, signed by the node, whose id is the digest of
// its key. What is signed is the SHA-256 of that text as it travelled; it is never written anew.

import { approverKey, base64url, hex, load, save, sha256, unbase64url, unhex, verify } from "./keys.js";

const CHALLENGE_DOMAIN = "hearth-challenge-v1\0";
const GRANT_DOMAIN = "hearth-grant-v1\0";
const APPROVERS_DOMAIN = "hearth-approvers-v1\0";
const DECISIONS = ["deny", "allow-once", "allow-always"];
const KINDS = ["hub", "page", "terminal"];
const MAX_CHALLENGE = 16 * 1024;

const utf8 = (text) => new TextEncoder().encode(text);

function concat(...parts) {
  const all = new Uint8Array(parts.reduce((sum, p) => sum + p.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function u64(number) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(number));
  return bytes;
}

/** A challenge that does not hold; nothing of it may be shown as the node's word. */
export class BadChallenge extends Error {}

/**
 * Opens what `approval.get` answered. `challenge` is `null` for nodes that are away and for foreign ones. Throws
 * [`BadChallenge`] when the node did not sign it, or when it is about another request.
 */
export async function openCard({ approval, card }) {
  if (!card.challenge) return { approval, challenge: null };
  const { text, signature } = card.challenge;
  if (typeof text !== "string" || utf8(text).length > MAX_CHALLENGE) throw new BadChallenge("too long");
  if (!card.nodeKey) throw new BadChallenge("the hub did not give the node's key");
  const key = unhex(card.nodeKey);
  if (!(await verify(key, unbase64url(signature), utf8(CHALLENGE_DOMAIN + text)))) {
    throw new BadChallenge("the node did not sign it");
  }
  const challenge = JSON.parse(text);
  if (challenge.v !== 1) throw new BadChallenge(`version ${challenge.v}`);
  if (challenge.node !== hex(await sha256(key)) || challenge.node !== approval.nodeId) {
    throw new BadChallenge("it names another node");
  }
  if (challenge.request !== approval.id) throw new BadChallenge("it is about another request");
  await keepHead(challenge.hub, card.head);
  return {
    approval,
    challenge,
    text,
    digest: await sha256(utf8(text)),
    // A number or a doubled key that this browser reads differently from the node would be shown wrongly: then the
    // text itself is shown as well.
    exact: JSON.stringify(challenge) === text,
  };
}

/** The newest head of the audit log that this browser was shown: a log that was cut afterwards does not hold it. */
async function keepHead(hub, head) {
  const kept = await load(`head:${hub}`);
  if (!kept || head.seq >= kept.seq) await save(`head:${hub}`, head);
}

export const keptHead = (hub) => load(`head:${hub}`);

/** Whether two cards are about the same, nonce, boot and validity aside: compared byte for byte. */
export function sameMatter(a, b) {
  if (!a.challenge || !b.challenge) return !a.challenge && !b.challenge;
  const fresh = ({ boot, nonce }) => `"boot":"${boot}","nonce":"${nonce}"`;
  const end = ({ valid_ms: valid }) => `"valid_ms":${valid}}`;
  const [x, y] = [a.challenge, b.challenge];
  const parts = b.text.split(fresh(y));
  if (parts.length !== 2 || !b.text.endsWith(end(y))) return false;
  const twin = parts.join(fresh(x));
  return twin.slice(0, -end(y).length) + end(x) === a.text;
}

/** Signs a decision over a card with the person's key. */
export async function signGrant(key, card, decision) {
  const signedAtMs = Date.now();
  const message = concat(
    utf8(GRANT_DOMAIN), card.digest, Uint8Array.of(DECISIONS.indexOf(decision)), unhex(key.id), u64(signedAtMs),
  );
  const signature = base64url(await key.sign(message));
  return { challenge: hex(card.digest), decision, signer: key.id, signedAtMs, signature };
}

/** This page's own entry in a node's list of approvers, if it is there. */
export async function ownEntry(approvers) {
  const key = await approverKey();
  if (!key) return { key: null, entry: null };
  return { key, entry: approvers?.approvers?.find((a) => a.key === hex(key.publicKey)) ?? null };
}

/** What came of a decision: `done` with the hub's entry, or `changed` with the card as it is now. */
export async function decide(hub, shown, decision) {
  const fresh = await openCard(await hub.call("approval.get", { id: shown.approval.id }));
  if (fresh.approval.status !== "pending") return { state: "settled", approval: fresh.approval };
  if (!sameMatter(shown, fresh)) return { state: "changed", card: fresh };
  const params = { id: shown.approval.id, kind: "exec", decision };
  if (fresh.challenge) {
    const { approvers } = await hub.call("hearth.node.approvers.get", { nodeId: fresh.challenge.node });
    const { key, entry } = await ownEntry(approvers);
    if (entry) params.grant = await signGrant(key, fresh, decision);
    else params.seen = hex(fresh.digest);
  }
  const { approval } = await hub.call("approval.resolve", params);
  return { state: "done", approval, signed: Boolean(params.grant) };
}

function varint(number) {
  const bytes = [];
  for (let rest = number; ; rest >>>= 7) {
    if (rest < 0x80) return Uint8Array.from([...bytes, rest]);
    bytes.push((rest & 0x7f) | 0x80);
  }
}

/** A node's new list of approvers, signed; `set` has the next epoch. The bytes are those of postcard. */
export async function signApprovers(key, node, set) {
  const entries = set.approvers.map((a) => {
    const name = utf8(a.name);
    return concat(unhex(a.key), varint(KINDS.indexOf(a.kind)), Uint8Array.of(a.admin ? 1 : 0), varint(name.length), name);
  });
  const recovery = set.recovery ? concat(Uint8Array.of(1), unhex(set.recovery)) : Uint8Array.of(0);
  const message = concat(
    utf8(APPROVERS_DOMAIN), unhex(node), u64(set.epoch), varint(entries.length), ...entries, recovery,
  );
  return { set, signer: hex(key.publicKey), signature: base64url(await key.sign(message)) };
}
