// Prints a fyrehose stream in order, each message once, as SEQUENCE, a tab and DATA:
// node careful_subscriber.js HOST PORT [KEY_FILE]
// The key of a message, if it has one, follows SEQUENCE and a space.
// With the key file of a sealed stream, it prints what it can open, and reports the rest.
'use strict';

const [DELIVER, REQUEST, KEEPALIVE, NOSUBSCRIBE, NOJOURNAL, HEADER, ENVELOPE] = [1, 4, 16, 1, 2, 9, 20];
const [RING, RING_BYTES, ROUND, RANGE, TICK /* ms */, GIVE_UP /* ticks */] = [65536, 64 << 20, 4096, 1024, 100, 50];
const MAGIC = Buffer.from('f7465901', 'hex'), KEYED = Buffer.from('f7464b01', 'hex');
const [host, port] = [process.argv[2], Number(process.argv[3])];
const keyFile = process.argv[4];
const open = keyFile && require('./open_sealed.js').opener(require('fs').readFileSync(keyFile, 'utf8'));
const refused = new Set(); // reasons that were reported
const wire = require('dgram').createSocket({ type: 'udp4', recvBufferSize: 4 << 20 });
const held = new Map(); // by number: packets that wait for lower numbers
const seen = new Set(); // publisher and counter, to tell a message that was pushed twice
let bytes = 0; // of what is held
let next = 0, live = 0, asked = 0; // to be printed next; highest seen; highest asked for
let ticks = 0, stalled = 0, beyond = 0; // stalled: since next rose; beyond: backbone's in a row from beyond next
let backbone;

// KEEPALIVE has FLAGS and TOKEN where REQUEST has FROM and TO. ADDR and PORT stay 0: where this comes from.
function tell(type, size, first, last, done) {
  const packet = Buffer.alloc(29);
  packet[0] = type;
  packet.writeUIntBE(first, 7, 6);
  packet.writeUIntBE(Math.min(last, 2 ** 48 - 1), 13, 6);
  wire.send(packet.subarray(0, size), port, backbone, done);
  if (type === REQUEST) asked = Math.max(asked, last);
}

function isRepeat(envelope) {
  const message = envelope.latin1Slice(4, ENVELOPE);
  if (seen.has(message)) return true;
  seen.add(message);
  if (seen.size > 65536) seen.delete(seen.values().next().value); // the oldest
  return false;
}

function printWhatIsDue() {
  process.stdout.cork(); // until all that has arrived by now was looked at
  setImmediate(() => process.stdout.uncork());
  for (let packet; (packet = held.get(next)); next++, stalled = 0) {
    held.delete(next);
    bytes -= packet.length;
    let data = packet.subarray(HEADER), envelope;
    if (data.length >= ENVELOPE && data.subarray(0, 4).equals(MAGIC)) envelope = data.subarray(0, ENVELOPE);
    if (open) { // First, for a forged envelope must not make a genuine message a repeat.
      const opened = open(data, envelope ? ENVELOPE : 0);
      if (typeof opened === 'string') {
        if (opened !== 'seal_repeated' && !refused.has(opened)) console.error(`dropped ${next}: ${opened}`);
        refused.add(opened);
        continue;
      }
      data = opened;
    } else if (envelope) data = data.subarray(ENVELOPE);
    if (envelope && isRepeat(envelope)) continue;
    let key = Buffer.alloc(0);
    if (envelope && data.length >= 5 && data.subarray(0, 4).equals(KEYED) && data.length >= 5 + data[4]) {
      [key, data] = [data.subarray(5, 5 + data[4]), data.subarray(5 + data[4])];
    }
    process.stdout.write(Buffer.concat([Buffer.from(key.length ? `${next} ` : `${next}`), key, Buffer.from('\t'), data, Buffer.from('\n')]));
  }
}

function take(packet, from) {
  if (packet.length < HEADER || packet[0] !== DELIVER || packet.length !== HEADER + packet.readUInt16BE(1)) return;
  const number = packet.readUIntBE(3, 6), fromBackbone = from.address === backbone && from.port === port;
  if (!next && fromBackbone) next = number;
  if (!next || number < next) return;
  if (!fromBackbone && (number > asked || held.has(number))) return; // Others may only fill our gaps.
  if (fromBackbone) beyond = number > next ? beyond + 1 : 0;
  if (number > live || live > number + RING) live = number; // A damaged number far above is soon forgotten.
  if (number >= next + RING || (number > next && bytes + packet.length > RING_BYTES)) return; // Ask for it later.
  bytes += packet.length - (held.get(number) || '').length;
  held.set(number, packet);
  printWhatIsDue();
}

function tick() {
  if (ticks++ % 10 === 0) tell(KEEPALIVE, 29, NOJOURNAL, 0);
  if (!next) return;
  stalled++;
  if (live < next) { // Was the end of a burst lost? Ask for what may follow, more and more rarely.
    if (stalled >= 8 && next < 2 ** 48 && !(stalled & (stalled - 1))) tell(REQUEST, 19, next, next + RANGE - 1);
  } else if (stalled >= GIVE_UP && beyond >= 3) { // A message alone proves no gap: its number may be damaged.
    let end = next;
    while (end < next + RING && !held.has(end)) end++;
    if (end === next + RING) end = live + 1;
    console.error(`lost ${next} to ${end - 1}`);
    [next, stalled] = [end, 0];
    printWhatIsDue();
  } else {
    for (let first = next, end; first <= live && first < next + ROUND; first = end > first ? end : end + 1) {
      for (end = first; end <= live && end < first + RANGE && !held.has(end);) end++;
      if (end > first) tell(REQUEST, 19, first, end - 1);
    }
  }
}

if (!port) {
  console.error('usage: node careful_subscriber.js HOST PORT [KEY_FILE]');
  process.exit(2);
}
require('dns').lookup(host, 4, (error, address) => {
  if (error) throw error;
  backbone = address;
  const ticking = setInterval(tick, TICK);
  const stop = () => tell(KEEPALIVE, 29, NOSUBSCRIBE | NOJOURNAL, 0, () => { clearInterval(ticking); wire.close(); });
  process.once('SIGINT', stop).once('SIGTERM', stop);
  process.stdout.on('error', () => process.exit(1)); // Nobody reads it any more.
  wire.on('message', take);
  tick();
});
