// Prints a fyrehose stream in order, each number once, as SEQUENCE, a tab and DATA: subscriber.js HOST PORT
// Trusts all senders, prints repeats, never gives up, misses a lost last message: see careful_subscriber.js
const [DELIVER, REQUEST, KEEPALIVE, NOJOURNAL, HEADER, ENVELOPE, RING] = [1, 4, 16, 2, 9, 20, 4096];
const [host, port] = process.argv.slice(2);
const wire = require('dgram').createSocket({ type: 'udp4', recvBufferSize: 4 << 20 });
const held = new Map(); // DATA by number, until it is due
let next = 1, live = 0, ticks = 0; // next: to be printed; live: highest that came
function tell(type, size, first, last) {
  const packet = Buffer.alloc(size);
  packet[0] = type;
  packet.writeUIntBE(first, 7, 6); // KEEPALIVE has FLAGS and TOKEN where REQUEST has FROM and TO.
  packet.writeUIntBE(last, 13, 6);
  wire.send(packet, port, host);
}
wire.on('message', (packet, { size }) => {
  if (size < HEADER || packet[0] !== DELIVER || packet.readUInt16BE(1) !== size - HEADER) return;
  const number = packet.readUIntBE(3, 6);
  if (number < next) return;
  if (live === 0) next = number;
  if (number > live && number < next + 256 * RING) live = number; // A higher one was damaged.
  if (number < next + RING) held.set(number, packet.subarray(HEADER));
  for (let data; (data = held.get(next)); held.delete(next++)) {
    if (data.length >= ENVELOPE && data.readUInt32BE() === 0xf7465901) data = data.subarray(ENVELOPE);
    process.stdout.write(Buffer.concat([Buffer.from(`${next}\t`), data, Buffer.from('\n')]));
  }
});
setInterval(() => {
  process.stdout.uncork(); // Write what has come since the last tick.
  process.stdout.cork();
  if (ticks++ % 10 === 0) tell(KEEPALIVE, 29, NOJOURNAL, 0);
  for (let from = next, end; from <= live && from < next + RING; from = Math.max(end, from + 1)) {
    for (end = from; end <= live && end < from + 1024 && !held.has(end);) end++;
    if (end > from) tell(REQUEST, 19, from, end - 1);
  }
}, 100);
