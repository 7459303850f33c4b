// Opens sealed payloads of a fyrehose stream, as docs/protocol/fyrehose.md describes them. A module for other programs:
// const open = require('./open_sealed.js').opener(fs.readFileSync('prices.keys', 'utf8'));
// open(data, size of the envelope) returns a Buffer, or the reason for refusing the payload as a string.
'use strict';

const crypto = require('crypto');

const ALGORITHMS = { 'chacha20-poly1305': 1, 'aes-256-gcm': 2 };
const [HEADER, TAG, HASH, SIGNATURE, WINDOW, PUBLISHERS] = [40, 16, 32, 64, 65536, 1024];
const MAGIC = Buffer.from('f74653', 'hex');
const PUBLIC_KEY = Buffer.from('302a300506032b6570032100', 'hex'); // what precedes an Ed25519 key in DER

const sha256 = (...parts) => crypto.createHash('sha256').update(Buffer.concat(parts)).digest();

function readKeys(text) {
  const ring = { stream: '', keys: new Map(), signers: new Map() };
  for (const line of text.split('\n')) {
    const [kind, name, digits] = line.split('#')[0].trim().split(/\s+/);
    if (kind === 'stream') ring.stream = name;
    if (kind === 'key' && ALGORITHMS[name]) {
      const secret = Buffer.from(digits, 'hex');
      const id = sha256(Buffer.from('fyrehose seal key\0'), Buffer.from([ALGORITHMS[name]]), secret).toString('hex', 0, 4);
      ring.keys.set(id, { algorithm: name, secret });
    }
    if (kind === 'publisher') {
      const key = Buffer.from(digits, 'hex');
      const id = sha256(Buffer.from('fyrehose seal signer\0'), key).toString('hex', 0, 8);
      ring.signers.set(id, crypto.createPublicKey({ key: Buffer.concat([PUBLIC_KEY, key]), format: 'der', type: 'spki' }));
    }
  }
  if (!ring.stream || !ring.keys.size) throw new Error('a key file has a stream and at least one key');
  return ring;
}

// Whether an authentic counter of a publisher id is new: above the highest one, or missing below it.
function windows() {
  const known = new Map();
  let floor = -1n; // up to which time of sealing unknown publisher ids are not admitted
  return (publisher, counter, sealedAt) => {
    let one = known.get(publisher);
    if (!one) {
      if (sealedAt <= floor) return false;
      one = { highest: counter, latest: sealedAt, missing: new Set() };
      for (let n = Math.max(0, counter - WINDOW); n < counter; n++) one.missing.add(n);
    } else if (counter > one.highest) {
      for (let n = Math.max(one.highest + 1, counter - WINDOW); n < counter; n++) one.missing.add(n);
      for (const n of one.missing) { if (n >= counter - WINDOW) break; one.missing.delete(n); }
      one.highest = counter;
    } else if (!one.missing.delete(counter)) return false;
    if (sealedAt > one.latest) one.latest = sealedAt;
    known.delete(publisher);
    known.set(publisher, one); // The least recently used one is first.
    if (known.size > PUBLISHERS) {
      const [oldest, gone] = known.entries().next().value;
      known.delete(oldest);
      if (gone.latest > floor) floor = gone.latest;
    }
    return true;
  };
}

// What a signed text is: the payload, and the signer's id once the signature is verified; or the reason for refusing it.
function verify(ring, text, bound) {
  if (text.length < 10 + SIGNATURE) return 'seal_malformed';
  const signer = text.toString('hex', 0, 8), row = text[8], depth = text[9], size = 10 + depth * HASH + SIGNATURE;
  if (depth > 6 || row >> depth || text.length < size) return 'seal_malformed';
  const payload = text.subarray(size);
  if (!ring.signers.size) return { payload, signer: '' };
  if (!ring.signers.has(signer)) return 'seal_unknown_signer';
  let root = sha256(Buffer.from([0]), bound, payload);
  for (let level = 0; level < depth; level++) {
    const sibling = text.subarray(10 + level * HASH, 10 + (level + 1) * HASH);
    root = row >> level & 1 ? sha256(Buffer.from([1]), sibling, root) : sha256(Buffer.from([1]), root, sibling);
  }
  const signed = Buffer.concat([Buffer.from('fyrehose seal batch\0'), root]);
  const genuine = crypto.verify(null, signed, ring.signers.get(signer), text.subarray(size - SIGNATURE, size));
  return genuine ? { payload, signer } : 'seal_bad_signature';
}

function opener(keyFile) {
  const ring = readKeys(keyFile), stream = Buffer.from(ring.stream), tables = new Map();
  return (data, envelopeSize) => {
    const sealed = data.subarray(envelopeSize);
    if (!sealed.subarray(0, 3).equals(MAGIC)) return 'seal_missing';
    if (sealed.length < HEADER + TAG || ![1, 2].includes(sealed[3])) return 'seal_malformed';
    const key = ring.keys.get(sealed.toString('hex', 4, 8));
    if (!key) return 'seal_unknown_key';
    const publisher = sealed.subarray(8, 24), counter = sealed.subarray(24, 32), length = Buffer.alloc(2);
    length.writeUInt16BE(stream.length);
    const bound = Buffer.concat([sealed.subarray(0, HEADER), length, stream, data.subarray(0, envelopeSize)]);
    const label = Buffer.from('fyrehose seal publisher\0');
    const secret = crypto.createHmac('sha256', key.secret).update(Buffer.concat([label, publisher])).digest();
    const nonce = Buffer.concat([Buffer.alloc(4), counter]), options = { authTagLength: TAG };
    const cipher = crypto.createDecipheriv(key.algorithm, secret, nonce, options);
    const text = sealed.subarray(HEADER, sealed.length - TAG);
    cipher.setAAD(bound, { plaintextLength: text.length }).setAuthTag(sealed.subarray(sealed.length - TAG));
    let found = { signer: '' };
    try {
      found.payload = Buffer.concat([cipher.update(text), cipher.final()]);
    } catch {
      return 'seal_forged';
    }
    if (sealed[3] === 2) found = verify(ring, found.payload, bound);
    else if (ring.signers.size) return 'seal_unsigned';
    if (typeof found === 'string') return found;
    if (!tables.has(found.signer)) tables.set(found.signer, windows());
    const isNew = tables.get(found.signer)(publisher.toString('hex'), Number(counter.readBigUInt64BE()), sealed.readBigUInt64BE(32));
    return isNew ? found.payload : 'seal_repeated';
  };
}

module.exports = { opener };
