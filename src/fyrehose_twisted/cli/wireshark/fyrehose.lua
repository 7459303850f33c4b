-- Wireshark dissectors of fyrehose, hydra with its UDP carrier, freenet and parcels.
--
-- Works with Lua 5.2 to 5.4, which Wireshark 4 has. It never raises: each message is first decoded from a string whose
-- length is checked, and only then added to the tree.

local VERSION = "1.0"
set_plugin_info({version = VERSION, author = "fyrehose_twisted", description = "fyrehose, hydra, freenet and parcels"})

-- Numbers

local function bit_function(name, operator)
  local found = (bit and bit[name]) or (bit32 and bit32[name])
  return found or load("return function(a, b) return a " .. operator .. " b end")()
end

local band = bit_function("band", "&")
local bxor = bit_function("bxor", "~")
local rshift = bit_function("rshift", ">>")

local function has_bit(value, mask)
  return math.floor(value / mask) % 2 == 1
end

-- Return the unsigned number in up to 6 bytes of a string, big endian.
local function uint(s, at, size)
  local value = 0
  for place = at, at + size - 1 do
    value = value * 256 + s:byte(place)
  end
  return value
end

-- Return the unsigned number in 8 bytes: a plain number if it is exact, else a UInt64.
local function uint64(s, at)
  local high, low = uint(s, at, 4), uint(s, at + 4, 4)
  if high < 2 ^ 21 then
    return high * 2 ^ 32 + low
  end
  return UInt64.new(low, high)
end

local function text_of(number)
  if type(number) == "number" then
    return string.format("%.0f", number)
  end
  return tostring(number)
end

local function to_uint64(number)
  if type(number) ~= "number" then
    return number
  end
  return UInt64.new(number % 2 ^ 32, math.floor(number / 2 ^ 32))
end

local function to_int64(number)
  if type(number) ~= "number" then
    return Int64.new(number:lower(), number:higher())
  end
  if number >= 0 then
    return Int64.new(number % 2 ^ 32, math.floor(number / 2 ^ 32))
  end
  return Int64.new(0, 0) - to_int64(-number)
end

local function hex(s)
  return (s:gsub(".", function(letter) return string.format("%02x", letter:byte()) end))
end

local function plural(count, noun, nouns)
  return text_of(count) .. " " .. (count == 1 and noun or nouns or noun .. "s")
end

local function range_text(first, last)
  local from, to = text_of(first), text_of(last)
  return from == to and from or from .. " to " .. to
end

local function duration(seconds)
  local nanoseconds = math.floor(seconds * 1e9 + 0.5)
  return NSTime.new(math.floor(nanoseconds / 1e9), nanoseconds % 1e9)
end

local crc_table = {}
for byte = 0, 255 do
  local value = byte
  for _ = 1, 8 do
    value = band(value, 1) == 1 and bxor(rshift(value, 1), 0xEDB88320) or rshift(value, 1)
  end
  crc_table[byte] = value
end

local function crc32(s, last)
  local value = 0xFFFFFFFF
  for at = 1, last do
    value = bxor(rshift(value, 8), crc_table[band(bxor(value, s:byte(at)), 0xFF)])
  end
  return bxor(value, 0xFFFFFFFF) % 2 ^ 32
end

local function is_utf8(s)
  local at = 1
  while at <= #s do
    local first = s:byte(at)
    local size = first < 0x80 and 1 or first >= 0xC2 and first < 0xE0 and 2 or first >= 0xE0 and first < 0xF0 and 3
      or first >= 0xF0 and first < 0xF5 and 4
    if not size or at + size - 1 > #s then
      return false
    end
    for place = at + 1, at + size - 1 do
      if s:byte(place) < 0x80 or s:byte(place) > 0xBF then
        return false
      end
    end
    at = at + size
  end
  return true
end

-- Return text that Wireshark can write.
local function clean(s)
  return is_utf8(s) and s or (s:gsub("[\128-\255]", "\239\191\189"))
end

-- Return text for the Info column, without control characters.
local function printable(s, limit)
  local cut = #s > (limit or 120) and s:sub(1, limit or 120) .. "..." or s
  return (clean(cut):gsub("[%c\127]", "?"))
end

-- Decoded messages
--
-- A message is a table: kind, info, and fields, a list of {field, offset, size, value}, of which a field without a value
-- is read by Wireshark from its bytes. A nested list of fields has a title instead of a field.

local function new_message(kind)
  return {kind = kind, info = "", fields = {}}
end

local function put(message, field, offset, size, value)
  message.fields[#message.fields + 1] = {field = field, offset = offset, size = size, value = value}
end

local function put_group(message, title, offset, size)
  local group = {title = title, offset = offset, size = size, fields = {}}
  message.fields[#message.fields + 1] = group
  return group
end

local function add_fields(tree, tvb, base, fields)
  for _, each in ipairs(fields) do
    local range = each.size > 0 and tvb(base + each.offset, each.size) or tvb(base, 0)
    if each.title then
      add_fields(tree:add(range, each.title), tvb, base, each.fields)
    elseif each.value == nil then
      if each.size > 0 then
        tree:add(each.field, range)
      end
    else
      local item = tree:add(each.field, range, type(each.value) == "string" and clean(each.value) or each.value)
      if each.generated then
        item:set_generated()
      end
    end
  end
end

-- Gaps in sequence numbers

local MAX_GAPS = 1000

local function new_stream()
  return {missing = {}}
end

-- Return the notes that a number causes: a list of {is_gap, text}.
local function note_number(stream, number, skipped_after)
  local notes = {}
  local highest = stream.highest
  local function miss(first, last)
    table.insert(stream.missing, {first = first, last = last, left = last - first + 1, seen = {}})
    if #stream.missing > MAX_GAPS then
      table.remove(stream.missing, 1)
    end
    table.insert(notes, {true, string.format("%s missing: %s", text_of(last - first + 1), range_text(first, last))})
  end
  if highest == nil then
    stream.highest = number
  elseif number > highest then
    if skipped_after and skipped_after < number - 1 then
      if skipped_after > highest then
        miss(highest + 1, skipped_after)
      end
    elseif number > highest + 1 then
      miss(highest + 1, number - 1)
    end
    stream.highest = number
  else
    for place, gap in ipairs(stream.missing) do
      if gap.first <= number and number <= gap.last then
        if not gap.seen[number] then
          gap.seen[number] = true
          gap.left = gap.left - 1
          if gap.left == 0 then
            table.remove(stream.missing, place)
            table.insert(notes, {false, string.format(
              "%s repaired: %s", text_of(gap.last - gap.first + 1), range_text(gap.first, gap.last))})
          else
            table.insert(notes, {false, "repairs " .. text_of(number)})
          end
        end
        break
      end
    end
  end
  return notes
end

local function place_of(address, port)
  return tostring(address) .. ":" .. port
end

local function add_notes(tree, notes, gap_expert, repair_expert)
  for _, note in ipairs(notes or {}) do
    tree:add_proto_expert_info(note[1] and gap_expert or repair_expert, note[2])
  end
end

-- CBOR (RFC 8949)

local CBOR_DEPTH = 64

-- Return the item at a place, or nil and what is wrong. Offsets of items count from 0.
local function cbor(s, at, depth)
  if at > #s then
    return nil, "CBOR ends too early"
  end
  if depth > CBOR_DEPTH then
    return nil, "CBOR is nested too deeply"
  end
  local first = s:byte(at)
  local major, info = math.floor(first / 32), first % 32
  local item = {major = major, offset = at - 1}
  local value, after = info, at + 1
  local sizes = {[24] = 1, [25] = 2, [26] = 4, [27] = 8}
  local is_indefinite = info == 31
  if sizes[info] then
    local size = sizes[info]
    if at + size > #s then
      return nil, "CBOR ends too early"
    end
    value = size == 8 and uint64(s, at + 1) or uint(s, at + 1, size)
    item.is_long = major < 7 and type(value) == "number" and value < (size == 1 and 24 or 2 ^ (4 * size))
    after = at + 1 + size
  elseif is_indefinite then
    if major < 2 or major > 5 then
      return nil, "CBOR has an unexpected break"
    end
    item.indefinite = true
  elseif info > 27 then
    return nil, "CBOR has a reserved byte"
  end
  if major == 0 then
    item.value = value
  elseif major == 1 then
    item.value = type(value) == "number" and -1 - value or nil
    if item.value == nil then
      return nil, "CBOR has an integer below -2^53"
    end
  elseif major == 2 or major == 3 then
    if is_indefinite then
      local parts = {}
      while true do
        if after > #s then
          return nil, "CBOR ends too early"
        end
        if s:byte(after) == 0xFF then
          after = after + 1
          break
        end
        local part, problem = cbor(s, after, depth + 1)
        if not part then
          return nil, problem
        end
        if part.major ~= major or part.indefinite then
          return nil, "CBOR has a string with a wrong part"
        end
        parts[#parts + 1] = part.value
        after = at + (part.offset - at + 1) + part.size
      end
      item.value = table.concat(parts)
    else
      if type(value) ~= "number" or after + value - 1 > #s then
        return nil, "CBOR has a string that ends too late"
      end
      item.content = after - 1
      item.value = s:sub(after, after + value - 1)
      after = after + value
    end
    if major == 3 and not is_utf8(item.value) then
      return nil, "CBOR has text that is not UTF-8"
    end
  elseif major == 4 or major == 5 then
    local count = is_indefinite and math.huge or value
    if type(count) ~= "number" or (not is_indefinite and count > #s) then
      return nil, "CBOR has a longer array than bytes"
    end
    if major == 5 then
      count = count * 2
    end
    item.items = {}
    while #item.items < count do
      if is_indefinite and after <= #s and s:byte(after) == 0xFF and (major == 4 or #item.items % 2 == 0) then
        after = after + 1
        break
      end
      local inner, problem = cbor(s, after, depth + 1)
      if not inner then
        return nil, problem
      end
      item.items[#item.items + 1] = inner
      after = inner.offset + 1 + inner.size
    end
  elseif major == 6 then
    local inner, problem = cbor(s, after, depth + 1)
    if not inner then
      return nil, problem
    end
    inner.size = inner.offset + 1 + inner.size - at
    inner.offset = at - 1
    inner.is_long = true
    return inner
  else
    if info == 20 or info == 21 then
      item.value = info == 21
    elseif info == 22 then
      item.is_null = true
    elseif info == 27 then
      item.is_float = true
    elseif info == 24 and value < 32 then
      return nil, "CBOR has a reserved byte"
    else
      item.is_other = true
    end
  end
  item.size = after - at
  return item
end

-- Return whether an item is in its shortest form: no tags, no indefinite sizes.
local function is_canonical(item)
  if item.is_long or item.indefinite then
    return false
  end
  for _, each in ipairs(item.items or {}) do
    if not is_canonical(each) then
      return false
    end
  end
  return true
end

local function is_int(item)
  return item ~= nil and item.major == 0
end

local function is_text(item)
  return item ~= nil and item.major == 3
end

local function is_bytes(item)
  return item ~= nil and item.major == 2
end

local function is_bool(item)
  return item ~= nil and type(item.value) == "boolean"
end

local function is_array(item, count)
  return item ~= nil and item.major == 4 and (count == nil or #item.items == count)
end

-- fyrehose (documents 000 and 001, and the extensions of docs/protocol/fyrehose.md)

local fyrehose = Proto("fyrehose", "Fyrehose")

local FYREHOSE_KINDS = {
  [0x01] = "DELIVER", [0x02] = "PUSH", [0x04] = "REQUEST", [0x08] = "FORWARD", [0x10] = "KEEPALIVE",
  [0x20] = "KEEPALIVE-ACK", [0x40] = "extension", [0x41] = "FETCHED", [0x44] = "REQUEST6", [0x48] = "FORWARD6",
  [0x50] = "KEEPALIVE6", [0x42] = "PUSH", [0x82] = "PUSH", [0xC2] = "PUSH", [0x81] = "DELIVER", [0xC1] = "FETCHED",
  [0x88] = "FORWARD", [0xC8] = "FORWARD6", [0xA0] = "KEEPALIVE-ACK",
}
local EXTENSION_KINDS = {
  "HOLDS", "STATUS", "ASKED", "LEADER", "HEAD", "LEADER6", "GROUP", "DEPTH", "BEACON",
}
local FLAGS = {
  {"nosubscribe", "NOSUBSCRIBE", 0x1}, {"nojournal", "NOJOURNAL", 0x2}, {"durable", "DURABLE", 0x4},
  {"extensions", "EXTENSIONS", 0x8}, {"watches", "WATCHES", 0x10}, {"ipv4", "IPV4", 0x20}, {"ipv6", "IPV6", 0x40},
  {"relay", "RELAY", 0x80}, {"multicast", "MULTICAST", 0x100}, {"hears", "HEARS", 0x200}, {"mac", "MAC", 0x400},
}

local f = {
  type = ProtoField.uint8("fyrehose.type", "Type", base.HEX, FYREHOSE_KINDS),
  kind = ProtoField.string("fyrehose.kind", "Kind"),
  extension = ProtoField.uint8("fyrehose.extension", "Extension", base.DEC, EXTENSION_KINDS),
  version = ProtoField.uint8("fyrehose.version", "Version"),
  length = ProtoField.uint16("fyrehose.length", "Length of DATA"),
  seq = ProtoField.uint64("fyrehose.seq", "Sequence number"),
  fetched = ProtoField.bool("fyrehose.fetched", "Repair of another client"),
  confirm = ProtoField.bool("fyrehose.confirm", "Confirm at the sender's address"),
  again = ProtoField.bool("fyrehose.again", "Retransmission"),
  hops = ProtoField.uint8("fyrehose.hops", "Relays so far"),
  addr = ProtoField.ipv4("fyrehose.addr", "Address"),
  addr6 = ProtoField.ipv6("fyrehose.addr6", "Address"),
  port = ProtoField.uint16("fyrehose.port", "Port"),
  first = ProtoField.uint64("fyrehose.first", "First number"),
  last = ProtoField.uint64("fyrehose.last", "Last number"),
  with_mac = ProtoField.bool("fyrehose.with_mac", "With MAC"),
  mac = ProtoField.bytes("fyrehose.mac", "MAC"),
  token = ProtoField.bytes("fyrehose.token", "Token"),
  stream_id = ProtoField.bytes("fyrehose.stream_id", "Stream id"),
  flags = ProtoField.uint64("fyrehose.flags", "Flags", base.HEX),
  data = ProtoField.bytes("fyrehose.data", "DATA"),
  publisher = ProtoField.bytes("fyrehose.publisher", "Publisher"),
  counter = ProtoField.uint64("fyrehose.counter", "Message counter"),
  key = ProtoField.bytes("fyrehose.key", "Key"),
  sealed = ProtoField.bool("fyrehose.sealed", "Sealed"),
  term = ProtoField.uint64("fyrehose.term", "Term"),
  held_up_to = ProtoField.uint64("fyrehose.held_up_to", "Held up to"),
  oldest = ProtoField.uint64("fyrehose.oldest", "Oldest number"),
  since = ProtoField.uint64("fyrehose.since", "Durable since"),
  durable = ProtoField.uint64("fyrehose.durable", "Durable up to"),
  reached = ProtoField.uint64("fyrehose.reached", "Complete up to"),
  left = ProtoField.uint32("fyrehose.left", "Clients left to ask"),
  asks_head = ProtoField.bool("fyrehose.asks_head", "Asks for a HEAD"),
  leader = ProtoField.ipv4("fyrehose.leader", "Leader"),
  leader6 = ProtoField.ipv6("fyrehose.leader6", "Leader"),
  leader_port = ProtoField.uint16("fyrehose.leader.port", "Port of the leader"),
  member = ProtoField.ipv4("fyrehose.member", "Member"),
  member6 = ProtoField.ipv6("fyrehose.member6", "Member"),
  member_port = ProtoField.uint16("fyrehose.member.port", "Port of the member"),
  highest = ProtoField.uint64("fyrehose.highest", "Highest number"),
  depth = ProtoField.uint8("fyrehose.depth", "Relays to the backbone"),
  listeners = ProtoField.uint32("fyrehose.listeners", "Listeners"),
  crc = ProtoField.uint32("fyrehose.crc", "CRC-32", base.HEX),
  burst = ProtoField.uint32("fyrehose.burst", "Packets that were sent in one call"),
  answers = ProtoField.framenum("fyrehose.answers", "Answers the KEEPALIVE in", base.NONE, frametype.RESPONSE),
  answered = ProtoField.framenum("fyrehose.answered", "Answered in", base.NONE, frametype.REQUEST),
  rtt = ProtoField.relative_time("fyrehose.rtt", "Round-trip time"),
}
local flag_fields = {}
for _, flag in ipairs(FLAGS) do
  flag_fields[flag[1]] = ProtoField.bool("fyrehose.flags." .. flag[1], flag[2])
end
local fyrehose_fields = {}
for _, field in pairs(f) do
  table.insert(fyrehose_fields, field)
end
for _, field in pairs(flag_fields) do
  table.insert(fyrehose_fields, field)
end
fyrehose.fields = fyrehose_fields

local fyrehose_gap = ProtoExpert.new("fyrehose.gap", "Sequence numbers missing", expert.group.SEQUENCE, expert.severity.WARN)
local fyrehose_repair = ProtoExpert.new("fyrehose.repair", "Sequence numbers repaired", expert.group.SEQUENCE, expert.severity.NOTE)
local fyrehose_malformed = ProtoExpert.new("fyrehose.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR)
fyrehose.experts = {fyrehose_gap, fyrehose_repair, fyrehose_malformed}

local MAX_DATA, MAC_SIZE, MAX_SEQUENCE = 65526, 16, 2 ^ 48 - 1
local RELAY = 0x52454C415900
local MAPPED = string.rep("\0", 10) .. "\255\255"

local function format_host4(s, at)
  return string.format("%d.%d.%d.%d", s:byte(at, at + 3))
end

local function format_host6(s, at)
  local groups = {}
  for place = at, at + 14, 2 do
    groups[#groups + 1] = string.format("%x", uint(s, place, 2))
  end
  return "[" .. table.concat(groups, ":") .. "]"
end

local function host6_problem(s, at)
  local packed = s:sub(at, at + 15)
  if packed == string.rep("\0", 16) then
    return "ADDR is the unspecified address"
  elseif packed:byte(1) == 0xFF then
    return "ADDR is a multicast address"
  elseif packed:byte(1) == 0xFE and band(packed:byte(2), 0xC0) == 0x80 then
    return "ADDR is a link-local address"
  end
end

-- Add an address; return its text, and what is wrong with it.
local function put_address(message, s, offset, size, field, field6, port_field)
  local at, text = offset + 1, nil
  local port = uint(s, at + size, 2)
  if size == 4 then
    put(message, field, offset, 4)
    text = format_host4(s, at)
  elseif s:sub(at, at + 11) == MAPPED then
    put(message, field, offset + 12, 4)
    text = format_host4(s, at + 12)
  else
    local problem = host6_problem(s, at)
    if problem then
      return nil, problem
    end
    put(message, field6, offset, 16)
    text = format_host6(s, at)
  end
  put(message, port_field, offset + size, 2)
  if text == "0.0.0.0" and port == 0 then
    return "the sender"
  end
  return text .. ":" .. port
end

local function put_data(message, s, offset, size, sequence)
  local data = s:sub(offset + 1, offset + size)
  put(message, f.data, offset, size)
  local info = plural(size, "byte")
  if #data == 28 and data:sub(1, 4) == "\247FY\2" and sequence then
    local term, held, first = uint64(data, 5), uint64(data, 13), uint64(data, 21)
    if first == sequence and type(held) == "number" and held < first and term ~= 0 then
      put(message, f.term, offset + 4, 8, to_uint64(term))
      put(message, f.held_up_to, offset + 12, 8, to_uint64(held))
      message.skipped_after = held
      return "start of term " .. text_of(term) .. ", numbers after " .. text_of(held) .. " were never given"
    end
  end
  local at = 1
  if #data >= 20 and data:sub(1, 4) == "\247FY\1" then
    put(message, f.publisher, offset + 4, 8)
    put(message, f.counter, offset + 12, 8, to_uint64(uint64(data, 13)))
    info = info .. ", publisher " .. hex(data:sub(5, 12)) .. " message " .. text_of(uint64(data, 13))
    at = 21
    if data:sub(at, at + 3) == "\247FK\1" and #data >= at + 4 then
      local key_size = data:byte(at + 4)
      if key_size > 0 and #data >= at + 4 + key_size then
        put(message, f.key, offset + at + 4, key_size)
        info = info .. ", key " .. printable(data:sub(at + 5, at + 4 + key_size), 40)
      end
    end
  end
  if data:sub(at, at + 2) == "\247FS" then
    put(message, f.sealed, offset + at - 1, 3, true)
    info = info .. ", sealed"
  end
  return info
end

local function decode_deliver(s, kind)
  local mac_size = kind >= 0x80 and MAC_SIZE or 0
  if #s < 9 + mac_size then
    return nil, string.format("DELIVER of %d bytes; header and MAC alone have %d", #s, 9 + mac_size)
  end
  local length, sequence = uint(s, 2, 2), uint(s, 4, 6)
  if length ~= #s - 9 - mac_size then
    return nil, string.format("DELIVER declares %d bytes of DATA, but has %d", length, #s - 9 - mac_size)
  end
  if length > MAX_DATA then
    return nil, string.format("DELIVER of %d bytes of DATA is over %d", length, MAX_DATA)
  end
  local is_fetched = kind == 0x41 or kind == 0xC1
  local message = new_message(is_fetched and "FETCHED" or "DELIVER")
  put(message, f.length, 1, 2)
  put(message, f.seq, 3, 6, to_uint64(sequence))
  put(message, f.fetched, 0, 1, is_fetched)
  put(message, f.with_mac, 0, 1, mac_size > 0)
  message.info = text_of(sequence) .. ", " .. put_data(message, s, 9, length, sequence)
  if mac_size > 0 then
    put(message, f.mac, 9 + length, MAC_SIZE)
    message.info = message.info .. ", with MAC"
  end
  message.sequence = sequence
  return message
end

local function decode_push(s, kind)
  if #s < 3 then
    return nil, string.format("PUSH of %d bytes; its header alone has 9, or 3 in version 1", #s)
  end
  local length, version, start = uint(s, 2, 2), nil, nil
  if length == #s - 9 then
    version, start = 2, 9
  elseif length == #s - 3 then
    version, start = 1, 3
  else
    return nil, string.format("PUSH of %d bytes declares %d bytes of DATA, which fits neither version", #s, length)
  end
  if length > MAX_DATA then
    return nil, string.format("PUSH of %d bytes of DATA is over %d", length, MAX_DATA)
  end
  local message = new_message("PUSH")
  local hops = 0
  put(message, f.version, 0, 1, version)
  put(message, f.confirm, 0, 1, kind >= 0x80)
  put(message, f.again, 0, 1, band(kind, 0x40) ~= 0)
  put(message, f.length, 1, 2)
  if version == 2 then
    local unused = uint(s, 4, 6)
    if RELAY < unused and unused <= RELAY + 255 then
      hops = unused - RELAY
    end
    put(message, f.hops, 3, 6, hops)
  end
  message.info = put_data(message, s, start, length) .. (kind >= 0x80 and ", confirm" or "")
    .. (band(kind, 0x40) ~= 0 and ", again" or "") .. (hops > 0 and ", after " .. plural(hops, "relay") or "")
    .. (version == 1 and ", version 1" or "")
  message.confirm = kind >= 0x80
  return message
end

local function decode_range(s, kind)
  local plain = band(kind, 0x7F)
  local size = (plain == 0x44 or plain == 0x48) and 16 or 4
  local is_request = plain == 0x04 or plain == 0x44
  local message = new_message(is_request and "REQUEST" or "FORWARD")
  if #s ~= size + 15 then
    return nil, string.format("%s of %d bytes; it has %d", FYREHOSE_KINDS[kind], #s, size + 15)
  end
  local first, last = uint(s, size + 4, 6), uint(s, size + 10, 6)
  if first > last then
    return nil, string.format("%s from %s to %s is empty", message.kind, text_of(first), text_of(last))
  end
  if size == 16 and s:sub(2, 13) == MAPPED then
    return nil, "ADDR of 16 bytes with an IPv4 address, which has 4"
  end
  local address, problem = put_address(message, s, 1, size, f.addr, f.addr6, f.port)
  if not address then
    return nil, problem
  end
  put(message, f.first, size + 3, 6, to_uint64(first))
  put(message, f.last, size + 9, 6, to_uint64(last))
  if not is_request then
    put(message, f.with_mac, 0, 1, kind >= 0x80)
  end
  message.info = (last == MAX_SEQUENCE and text_of(first) .. " and later" or range_text(first, last)) .. " for " .. address
    .. (kind >= 0x80 and ", with MACs" or "")
  return message
end

local function decode_keepalive(s, kind)
  local message = new_message("KEEPALIVE")
  if kind == 0x10 and #s == 7 then
    put(message, f.version, 0, 1, 1)
    local address = put_address(message, s, 1, 4, f.addr, f.addr6, f.port)
    message.info = (address == "the sender" and "" or "receives at " .. address .. ", ") .. "version 1"
    message.address, message.flags = address, 0
    return message
  end
  local size = kind == 0x50 and 16 or 4
  if #s ~= size + 25 then
    if size == 4 then
      return nil, string.format("KEEPALIVE of %d bytes; it has 29, or 7 in version 1", #s)
    end
    return nil, string.format("KEEPALIVE6 of %d bytes; it has 41", #s)
  end
  if size == 16 and s:sub(2, 13) == MAPPED then
    return nil, "ADDR of 16 bytes with an IPv4 address, which has 4"
  end
  put(message, f.version, 0, 1, 2)
  local address, problem = put_address(message, s, 1, size, f.addr, f.addr6, f.port)
  if not address then
    return nil, problem
  end
  local flags, names = uint(s, size + 4, 6), {}
  put(message, f.flags, size + 3, 6, to_uint64(flags))
  local group = put_group(message, "Flags", size + 3, 6)
  for _, flag in ipairs(FLAGS) do
    local is_set = has_bit(flags, flag[3])
    put(group, flag_fields[flag[1]], size + 3, 6, is_set)
    if is_set then
      names[#names + 1] = flag[2]
    end
  end
  put(message, f.token, size + 9, 16)
  message.info = (address == "the sender" and "" or "receives at " .. address .. ", ") .. "flags "
    .. (#names > 0 and table.concat(names, " ") or "none")
  message.address, message.flags, message.token = address, flags, s:sub(size + 10, size + 25)
  return message
end

local function decode_ack(s, kind)
  local message = new_message("KEEPALIVE-ACK")
  if kind == 0xA0 then
    if #s ~= 49 then
      return nil, string.format("KEEPALIVE-ACK with a MAC of %d bytes; it has 49", #s)
    end
    put(message, f.version, 0, 1, 2)
    put(message, f.with_mac, 0, 1, true)
    put(message, f.token, 1, 16)
    put(message, f.stream_id, 17, 16)
    put(message, f.mac, 33, 16)
    message.info = "stream " .. hex(s:sub(18, 33)) .. ", with MAC"
  elseif #s == 17 then
    put(message, f.version, 0, 1, 2)
    put(message, f.token, 1, 16)
  elseif #s == 1 then
    put(message, f.version, 0, 1, 1)
    message.info = "version 1"
  else
    return nil, string.format("KEEPALIVE-ACK of %d bytes; it has 17, or 1 in version 1", #s)
  end
  message.token = s:sub(2, 17)
  return message
end

local function number_problem(...)
  for _, number in ipairs({...}) do
    if type(number) ~= "number" or number > MAX_SEQUENCE + 1 then
      return string.format("extension with number %s, which is over %s", text_of(number), text_of(MAX_SEQUENCE))
    end
  end
end

local function decode_extension(s)
  local size, kind = #s - 4, #s > 1 and s:byte(2) or 0
  local name = EXTENSION_KINDS[kind]
  if not name then
    return nil, string.format("extension 0x%02x is not one of the protocol's", kind)
  end
  if size < 2 or crc32(s, size) ~= uint(s, size + 1, 4) then
    return nil, string.format("%s of %d bytes has a wrong checksum", name, #s)
  end
  local message = new_message(name == "LEADER6" and "LEADER" or name)
  local wrong_size = string.format("%s of %d bytes, which is not a valid size", name, size)
  put(message, f.extension, 1, 1)
  if name ~= "BEACON" then
    if size < 18 then
      return nil, wrong_size
    end
    put(message, f.token, 2, 16)
  end
  local function number(field, offset)
    local value = uint64(s, offset + 1)
    put(message, field, offset, 8, to_uint64(value))
    return value
  end
  local function holding(offset)
    local since, durable = number(f.since, offset), number(f.durable, offset + 8)
    local problem = number_problem(since, durable)
    if problem then
      return nil, problem
    end
    return since <= durable and range_text(since, durable) or "nothing since " .. text_of(since)
  end
  if name == "HOLDS" then
    if size ~= 50 then
      return nil, wrong_size
    end
    local oldest = number(f.oldest, 18)
    local durable, problem = holding(26)
    local reached = number(f.reached, 42)
    problem = problem or number_problem(oldest, reached)
    if problem then
      return nil, problem
    end
    message.info = durable .. " durable, oldest " .. text_of(oldest)
  elseif name == "STATUS" then
    if size < 34 or size > 34 + 16 * 16 or (size - 34) % 16 ~= 0 then
      return nil, wrong_size
    end
    local oldest, last = number(f.oldest, 18), number(f.last, 26)
    local problem, ranges = number_problem(oldest, last), {}
    for offset = 34, size - 16, 16 do
      local durable, wrong = holding(offset)
      problem = problem or wrong
      ranges[#ranges + 1] = durable
    end
    if problem then
      return nil, problem
    end
    message.info = "last " .. text_of(last) .. ", oldest " .. text_of(oldest) .. ", " .. plural(#ranges, "journal")
      .. (#ranges > 0 and ": " .. table.concat(ranges, "; ") or "")
  elseif name == "ASKED" then
    if size ~= 38 then
      return nil, wrong_size
    end
    local first, last = number(f.first, 18), number(f.last, 26)
    local problem = number_problem(first, last)
    if problem then
      return nil, problem
    end
    if first > last then
      return nil, string.format("ASKED from %s to %s is empty", text_of(first), text_of(last))
    end
    put(message, f.left, 34, 4)
    message.info = range_text(first, last) .. ", " .. plural(uint(s, 35, 4), "client") .. " left to ask"
  elseif name == "LEADER" or name == "LEADER6" then
    local host = name == "LEADER" and 4 or 16
    local fixed, each = 26 + host + 3, host + 2
    if size < fixed or size > fixed + 7 * each or (size - fixed) % each ~= 0 then
      return nil, wrong_size
    end
    local term = number(f.term, 18)
    local leader, problem = put_address(message, s, 26, host, f.leader, f.leader6, f.leader_port)
    local flags = s:byte(fixed)
    put(message, f.asks_head, fixed - 1, 1, flags % 2 == 1)
    local members, has_ipv6 = {}, leader and leader:sub(1, 1) == "["
    for offset = fixed, size - each, each do
      local member, wrong = put_address(message, s, offset, host, f.member, f.member6, f.member_port)
      problem = problem or wrong
      has_ipv6 = has_ipv6 or (member and member:sub(1, 1) == "[")
      members[#members + 1] = member
    end
    if problem then
      return nil, problem
    end
    if host == 16 and not has_ipv6 then
      return nil, "LEADER6 without an IPv6 address"
    end
    message.info = "term " .. text_of(term)
      .. (leader == "the sender" and ", no leader known" or ", leader " .. leader)
      .. (flags % 2 == 1 and ", asks for a HEAD" or "")
      .. (#members > 0 and ", members " .. table.concat(members, " ") or "")
  elseif name == "HEAD" then
    if size ~= 34 then
      return nil, wrong_size
    end
    local term, highest = number(f.term, 18), number(f.highest, 26)
    local problem = number_problem(highest)
    if problem then
      return nil, problem
    end
    message.info = "term " .. text_of(term) .. ", highest number " .. text_of(highest)
  elseif name == "GROUP" then
    if size ~= 24 then
      return nil, wrong_size
    end
    if band(s:byte(19), 0xF0) ~= 0xE0 or uint(s, 23, 2) == 0 then
      return nil, "GROUP with an address that is no multicast group"
    end
    message.info = "multicast group " .. put_address(message, s, 18, 4, f.addr, f.addr6, f.port)
  elseif name == "DEPTH" then
    if size ~= 19 or s:byte(19) == 0 then
      return nil, wrong_size
    end
    put(message, f.depth, 18, 1)
    message.info = plural(s:byte(19), "relay") .. " to the backbone"
  else
    if size ~= 6 then
      return nil, wrong_size
    end
    put(message, f.listeners, 2, 4)
    message.info = plural(uint(s, 3, 4), "listener")
  end
  put(message, f.crc, size, 4)
  return message
end

-- Return the packet in a datagram, or nil and what is wrong.
local function decode_fyrehose(s)
  if #s == 0 then
    return nil, "datagram of 0 bytes has no type"
  end
  local kind = s:byte(1)
  local name = FYREHOSE_KINDS[kind]
  local message, problem
  if name == "DELIVER" or name == "FETCHED" then
    message, problem = decode_deliver(s, kind)
  elseif name == "PUSH" then
    message, problem = decode_push(s, kind)
  elseif name == "KEEPALIVE" or name == "KEEPALIVE6" then
    message, problem = decode_keepalive(s, kind)
  elseif name == "KEEPALIVE-ACK" then
    message, problem = decode_ack(s, kind)
  elseif name == "extension" then
    message, problem = decode_extension(s)
  elseif name then
    message, problem = decode_range(s, kind)
  else
    return nil, string.format("type byte 0x%02x is not one of the protocol's", kind)
  end
  return message, problem
end

local MAX_BURST = 128

-- Return the packets of a burst that the kernel had not yet separated when it was captured, and the size of each.
local function decode_burst(s)
  if #s < 4 then
    return nil
  end
  local name, length = FYREHOSE_KINDS[s:byte(1)], uint(s, 2, 2)
  local sizes = {}
  if name == "DELIVER" or name == "FETCHED" then
    sizes = {9 + length + (s:byte(1) >= 0x80 and MAC_SIZE or 0)}
  elseif name == "PUSH" then
    sizes = {9 + length, 3 + length}
  elseif name == "REQUEST" or name == "FORWARD" then
    sizes = {19}
  elseif name == "REQUEST6" or name == "FORWARD6" then
    sizes = {31}
  end
  for _, size in ipairs(sizes) do
    if size < #s and #s / size <= MAX_BURST then
      local messages = {}
      for at = 1, #s, size do
        local message = decode_fyrehose(s:sub(at, at + size - 1))
        if not message then
          messages = nil
          break
        end
        messages[#messages + 1] = message
      end
      if messages then
        return messages, size
      end
    end
  end
end

-- What the first pass over the packets learns.
local fyrehose_streams, partial_receivers, known_clients, fyrehose_notes = {}, {}, {}, {}
local open_keepalives, keepalive_answers = {}, {}

function fyrehose.init()
  fyrehose_streams, partial_receivers, known_clients, fyrehose_notes = {}, {}, {}, {}
  open_keepalives, keepalive_answers = {}, {}
end

local function learn(message, pinfo)
  local source = place_of(pinfo.src, pinfo.src_port)
  local receiver = place_of(pinfo.dst, pinfo.dst_port)
  if message.kind == "KEEPALIVE" then
    local address = message.address == "the sender" and source or message.address
    known_clients[address] = true
    local is_partial = has_bit(message.flags, 0x1) or has_bit(message.flags, 0x200)
    partial_receivers[address] = is_partial or nil
    if is_partial then
      fyrehose_streams[address] = nil
    end
    if message.token then
      open_keepalives[source .. ">" .. receiver .. hex(message.token)] = {pinfo.number, pinfo.rel_ts}
    end
  elseif message.kind == "KEEPALIVE-ACK" then
    local key = receiver .. ">" .. source .. hex(message.token)
    local asked = open_keepalives[key]
    if asked then
      open_keepalives[key] = nil
      keepalive_answers[pinfo.number] = {frame = asked[1], rtt = pinfo.rel_ts - asked[2]}
      keepalive_answers[asked[1]] = {answered = pinfo.number}
    end
  elseif message.kind == "PUSH" and message.confirm and not known_clients[source] then
    partial_receivers[source] = true
  end
  if message.sequence and not partial_receivers[receiver] then
    fyrehose_streams[receiver] = fyrehose_streams[receiver] or new_stream()
    return note_number(fyrehose_streams[receiver], message.sequence, message.skipped_after)
  end
end

local function show_fyrehose(message, tvb, base, size, pinfo, tree, index)
  local subtree = tree:add(fyrehose, tvb(base, size), "Fyrehose, " .. message.kind .. " " .. message.info)
  subtree:add(f.type, tvb(base, 1))
  subtree:add(f.kind, tvb(base, 1), message.kind)
  add_fields(subtree, tvb, base, message.fields)
  local key = pinfo.number .. "/" .. index
  if not pinfo.visited then
    fyrehose_notes[key] = learn(message, pinfo)
  end
  add_notes(subtree, fyrehose_notes[key], fyrehose_gap, fyrehose_repair)
  local answer = keepalive_answers[pinfo.number]
  if answer and answer.frame then
    subtree:add(f.answers, tvb(base, 0), answer.frame):set_generated()
    subtree:add(f.rtt, tvb(base, 0), duration(answer.rtt)):set_generated()
  elseif answer then
    subtree:add(f.answered, tvb(base, 0), answer.answered):set_generated()
  end
  for _, note in ipairs(fyrehose_notes[key] or {}) do
    message.info = message.info .. " [" .. note[2] .. "]"
  end
end

local function is_cut(tvb)
  return tvb:reported_len() > tvb:captured_len()
end

function fyrehose.dissector(tvb, pinfo, tree)
  pinfo.cols.protocol = "Fyrehose"
  local s = tvb:raw(0, tvb:captured_len())
  local message, problem = decode_fyrehose(s)
  if message then
    show_fyrehose(message, tvb, 0, #s, pinfo, tree, 0)
    pinfo.cols.info = message.kind .. " " .. message.info
    return tvb:len()
  end
  local messages, size = decode_burst(s)
  if messages then
    for index, each in ipairs(messages) do
      local base = (index - 1) * size
      show_fyrehose(each, tvb, base, math.min(size, #s - base), pinfo, tree, index)
    end
    local last = messages[#messages]
    tree:add(f.burst, tvb(0, 0), #messages):set_generated()
    pinfo.cols.info = string.format("%d packets in one call: %s %s ... %s", #messages, messages[1].kind, messages[1].info, last.info)
    return tvb:len()
  end
  if is_cut(tvb) then
    problem = "the capture cut the datagram"
  end
  local subtree = tree:add(fyrehose, tvb(), "Fyrehose, malformed")
  subtree:add_proto_expert_info(fyrehose_malformed, problem)
  pinfo.cols.info = "malformed: " .. problem
  return tvb:len()
end

-- Clients repair one another from and to ports of their own. Only what can hardly be anything else is taken for it.
local function is_fyrehose(tvb, pinfo, tree)
  if tvb:captured_len() < 10 or is_cut(tvb) then
    return false
  end
  local s = tvb:raw(0, tvb:captured_len())
  local kind = s:byte(1)
  local name = FYREHOSE_KINDS[kind]
  if name ~= "DELIVER" and name ~= "FETCHED" and name ~= "extension" then
    return false
  end
  if not decode_fyrehose(s) and not decode_burst(s) then
    return false
  end
  fyrehose.dissector(tvb, pinfo, tree)
  return true
end

-- Streams

-- Dissect the messages of a TCP stream. next_message takes the rest of the bytes and returns a message and its size; or
-- nil and the number of bytes that it lacks, nil if unknown; or false and what is wrong.
local function dissect_stream(tvb, pinfo, proto, name, next_message, show, malformed_expert, tree)
  pinfo.cols.protocol = name
  local s = tvb:raw(0, tvb:captured_len())
  local infos, base = {}, 0
  while base < #s do
    local message, size = next_message(s:sub(base + 1))
    if message then
      show(message, tvb, base, size, pinfo, tree, base)
      infos[#infos + 1] = message.kind .. (message.info ~= "" and " " .. message.info or "")
      base = base + size
    elseif message == nil and not is_cut(tvb) then
      pinfo.desegment_offset = base
      pinfo.desegment_len = size or DESEGMENT_ONE_MORE_SEGMENT
      break
    else
      local problem = message == nil and "the capture cut the segment" or size
      local subtree = tree:add(proto, tvb(base), name .. ", malformed")
      subtree:add_proto_expert_info(malformed_expert, problem)
      infos[#infos + 1] = "malformed: " .. problem
      break
    end
  end
  if #infos > 0 then
    pinfo.cols.info = #infos > 4 and string.format("%d messages: %s, ... %s", #infos, infos[1], infos[#infos])
      or table.concat(infos, "; ")
  end
  return tvb:len()
end

-- hydra (document 002)

local hydra = Proto("hydra", "Hydra")
local h = {
  command = ProtoField.string("hydra.command", "Command"),
  term = ProtoField.int64("hydra.term", "Term"),
  val = ProtoField.string("hydra.val", "Token of the PING"),
  id = ProtoField.uint32("hydra.id", "Node"),
  count = ProtoField.uint32("hydra.count", "Times relayed"),
  tag = ProtoField.string("hydra.tag", "Tag of the node"),
  idx = ProtoField.uint64("hydra.idx", "Number of the line"),
  token = ProtoField.string("hydra.token", "Token of the line"),
  line = ProtoField.string("hydra.line", "IRC line"),
  irc_command = ProtoField.string("hydra.irc_command", "IRC command"),
  reason = ProtoField.string("hydra.reason", "Reason"),
  nom = ProtoField.uint32("hydra.nom", "Nominee"),
  ind = ProtoField.uint32("hydra.ind", "New node"),
  pong_to = ProtoField.framenum("hydra.ping_frame", "Answers the PING in", base.NONE, frametype.RESPONSE),
  rtt = ProtoField.relative_time("hydra.rtt", "Time since the PING"),
}
local hydra_malformed = ProtoExpert.new("hydra.malformed", "Malformed line", expert.group.MALFORMED, expert.severity.ERROR)
hydra.fields = {h.command, h.term, h.val, h.id, h.count, h.tag, h.idx, h.token, h.line, h.irc_command, h.reason, h.nom,
  h.ind, h.pong_to, h.rtt}
hydra.experts = {hydra_malformed}

local MAX_LINE, MAX_PARTIAL_LINE = 1100, 4096
local MAX_TERM = UInt64.new(0xFFFFFFFF, 0x7FFFFFFF)

-- Return the number in a word, or nil.
local function decimal(word, lowest, highest)
  local sign, digits = word:match("^(%-?)0*(%d+)$")
  if not digits or #digits > 19 then
    return nil
  end
  if #digits > 15 then
    local value = UInt64.new(0, 0)
    for digit in digits:gmatch(".") do
      value = value * UInt64.new(10, 0) + UInt64.new(tonumber(digit), 0)
    end
    if sign == "-" or type(highest) == "number" or value > highest then
      return nil
    end
    return value
  end
  local value = tonumber(digits)
  if sign == "-" then
    value = -value
  end
  if value < lowest or (type(highest) == "number" and value > highest) then
    return nil
  end
  return value
end

local TERM, ANY_TERM, ID, COUNT = {0, MAX_TERM}, {-2 ^ 31, MAX_TERM}, {1, 2 ^ 32 - 1}, {0, 2 ^ 31}
local HYDRA_COMMANDS = {
  PING = {{h.term, ANY_TERM, "bad-term"}, {h.val}, {h.id, ID, "bad-id"}},
  PONG = {{h.val}, {h.id, ID, "bad-id"}, {h.count, COUNT, "bad-count"}, rest = "tag"},
  DROP = {{h.id, ID, "bad-id"}, rest = "reason"},
  NOMINATE = {{h.term, TERM, "bad-term"}, {h.id, ID, "bad-id"}},
  PLEDGE = {{h.term, TERM, "bad-term"}, {h.nom, ID, "bad-id"}, {h.id, ID, "bad-id"}},
  CALL = {{h.term, TERM, "bad-term"}},
  ELECT = {{h.term, TERM, "bad-term"}, {h.nom, ID, "bad-id"}, {h.id, ID, "bad-id"}},
  KNOCK = {{h.ind, ID, "bad-id"}, rest = "tag"},
  MEET = {{h.ind, ID, "bad-id"}, {h.id, ID, "bad-id"}},
  WELCOME = {{h.ind, ID, "bad-id"}},
  HELLO = {{h.ind, ID, "bad-id"}, {h.id, ID, "bad-id"}},
}
local SIGNED_FIELDS = {[h.term] = true}
local WIDE_FIELDS = {[h.idx] = true}
local BLANK, WORD = "[ \t\n\v\f\r]", "[^ \t\n\v\f\r]"

local function hydra_value(field, value)
  if SIGNED_FIELDS[field] then
    return to_int64(value)
  end
  return WIDE_FIELDS[field] and to_uint64(value) or value
end

local function decode_irc(s, command)
  local number_at, number, after = s:match("^" .. BLANK .. "*" .. command .. BLANK .. "+()(" .. WORD .. "+)" .. BLANK .. "()")
  if not number or after > #s then
    return nil, "missing-field"
  end
  local is_recv = command == "RECV"
  local value = decimal(number, is_recv and 0 or 1, is_recv and MAX_TERM or 2 ^ 32 - 1)
  if not value then
    return nil, is_recv and "bad-number" or "bad-id"
  end
  local message = new_message(command)
  local field = is_recv and h.idx or h.id
  put(message, field, number_at - 1, #number, hydra_value(field, value))
  local line, at = s:sub(after), after
  local token = line:match("^@%+hydra/n=([!-:<-~]+) ")
  if token and #token <= 32 then
    put(message, h.token, after + 9, #token, token)
    at = after + 11 + #token
    line = s:sub(at)
  end
  put(message, h.line, at - 1, #line, line)
  local words = {}
  for word in line:gmatch(WORD .. "+") do
    words[#words + 1] = word
    if #words == 3 then
      break
    end
  end
  for _, mark in ipairs({"@", ":"}) do
    if words[1] and words[1]:sub(1, 1) == mark then
      table.remove(words, 1)
    end
  end
  if words[1] then
    put(message, h.irc_command, at - 1, #line, words[1]:upper())
  end
  message.info = (is_recv and "" or "of node ") .. text_of(value) .. ": " .. printable(line)
  return message
end

local function decode_line(s)
  if #s > MAX_LINE then
    return nil, "overlong-line"
  end
  if s:find("[\r\n\0]") then
    return nil, "control-character"
  end
  local command_at, command = s:match("^" .. BLANK .. "*()(" .. WORD .. "+)")
  if not command then
    local message = new_message("KEEPALIVE")
    message.info = "empty line"
    return message
  end
  if command == "RECV" or command == "SEND" then
    return decode_irc(s, command)
  end
  if command == "AUTH" and s:match("^AUTH %x+$") or command == "PROOF" and s:match("^PROOF %x+$") then
    local message = new_message(command)
    message.info = "of the authentication"
    return message
  end
  local known = HYDRA_COMMANDS[command]
  if not known then
    return nil, "unknown-command"
  end
  local message = new_message(command)
  local at, infos = command_at + #command, {}
  for _, each in ipairs(known) do
    local field, limits, problem = each[1], each[2], each[3]
    local word_at, word = s:match("^" .. BLANK .. "+()(" .. WORD .. "+)", at)
    if not word then
      return nil, "missing-field"
    end
    local value = word
    if limits then
      value = decimal(word, limits[1], limits[2])
      if not value then
        return nil, problem
      end
    elseif #word > 32 then
      return nil, "bad-val"
    end
    put(message, field, word_at - 1, #word, hydra_value(field, value))
    infos[#infos + 1] = word
    at = word_at + #word
    if field == h.val then
      message.val = word
    end
  end
  if known.rest then
    local rest_at, rest = s:match("^" .. BLANK .. "+()(.*)", at)
    if known.rest == "tag" then
      local tag = (rest or ""):match("^" .. WORD .. "+") or ""
      tag = tag:sub(1, 64)
      put(message, h.tag, (rest_at or 1) - 1, #tag, tag)
      infos[#infos + 1] = tag ~= "" and tag or nil
    else
      local reason = (rest or ""):sub(1, 200):gsub(BLANK .. "+$", "")
      put(message, h.reason, (rest_at or 1) - 1, #reason, reason)
      infos[#infos + 1] = reason ~= "" and reason or nil
    end
  end
  message.info = printable(table.concat(infos, " "))
  return message
end

local function next_line(s)
  local stop = s:find("\r\n", 1, true)
  if not stop then
    if #s > MAX_PARTIAL_LINE + 1 then
      return false, "overlong-line: a line has more than " .. MAX_PARTIAL_LINE .. " bytes"
    end
    return nil
  end
  local message, problem = decode_line(s:sub(1, stop - 1))
  if not message then
    -- The link stays open, so what follows is read.
    message = {kind = "malformed:", info = problem, fields = {}, problem = problem}
  end
  return message, stop + 1
end

local pings, pong_frames = {}, {}

function hydra.init()
  pings, pong_frames = {}, {}
end

local function show_line(message, tvb, base, size, pinfo, tree)
  local subtree = tree:add(hydra, tvb(base, size), "Hydra, " .. message.kind .. " " .. message.info)
  if message.problem then
    subtree:add_proto_expert_info(hydra_malformed, message.problem)
    return
  end
  subtree:add(h.command, tvb(base, size), message.kind)
  add_fields(subtree, tvb, base, message.fields)
  local key = message.val and pinfo.number .. "/" .. message.val
  if not pinfo.visited then
    if message.kind == "PING" and not pings[message.val] then
      pings[message.val] = {pinfo.number, pinfo.rel_ts}
    elseif message.kind == "PONG" and pings[message.val] then
      pong_frames[key] = {pings[message.val][1], pinfo.rel_ts - pings[message.val][2]}
    end
  end
  local ping = message.kind == "PONG" and pong_frames[key]
  if ping then
    subtree:add(h.pong_to, tvb(base, 0), ping[1]):set_generated()
    subtree:add(h.rtt, tvb(base, 0), duration(ping[2])):set_generated()
  end
end

function hydra.dissector(tvb, pinfo, tree)
  return dissect_stream(tvb, pinfo, hydra, "Hydra", next_line, show_line, hydra_malformed, tree)
end

local function is_hydra(tvb, pinfo, tree)
  if tvb:captured_len() < 39 then
    return false
  end
  if not tvb:raw(0, 39):match("^AUTH %x+\r\n$") then
    return false
  end
  pinfo.conversation = hydra
  hydra.dissector(tvb, pinfo, tree)
  return true
end

-- The UDP carrier of hydra

local carrier = Proto("hydra_udp", "Hydra over UDP")
local CARRIER_KINDS = {"INIT", "COOKIE", "OPEN", "ACCEPT", "REFUSE", "DATA", "FIN", "ABORT", "RESET"}
local CARRIER_SIZES = {INIT = 40, COOKIE = 25, OPEN = 33, ACCEPT = 25, REFUSE = 9, RESET = 9}
local u = {
  kind = ProtoField.uint8("hydra_udp.kind", "Kind", base.DEC, CARRIER_KINDS),
  session = ProtoField.bytes("hydra_udp.session", "Session"),
  accepted = ProtoField.bytes("hydra_udp.accepted", "Session of the acceptor"),
  cookie = ProtoField.bytes("hydra_udp.cookie", "Cookie"),
  instance = ProtoField.bytes("hydra_udp.instance", "Process"),
  number = ProtoField.uint64("hydra_udp.number", "Datagram number"),
  seq = ProtoField.uint64("hydra_udp.seq", "Segment"),
  ack = ProtoField.uint64("hydra_udp.ack", "Acknowledged up to"),
  mask = ProtoField.bytes("hydra_udp.mask", "Acknowledged after a gap"),
  acked = ProtoField.uint64("hydra_udp.acked", "Acknowledged after a gap"),
  payload = ProtoField.bytes("hydra_udp.payload", "Payload"),
  mac = ProtoField.bytes("hydra_udp.mac", "MAC"),
}
local carrier_gap = ProtoExpert.new("hydra_udp.gap", "Segments missing", expert.group.SEQUENCE, expert.severity.WARN)
local carrier_repair = ProtoExpert.new("hydra_udp.repair", "Segments repaired", expert.group.SEQUENCE, expert.severity.NOTE)
local carrier_malformed = ProtoExpert.new("hydra_udp.malformed", "Malformed datagram", expert.group.MALFORMED, expert.severity.ERROR)
carrier.fields = {u.kind, u.session, u.accepted, u.cookie, u.instance, u.number, u.seq, u.ack, u.mask, u.acked, u.payload, u.mac}
carrier.experts = {carrier_gap, carrier_repair, carrier_malformed}

local sessions, carrier_results = {}, {}

function carrier.init()
  sessions, carrier_results = {}, {}
end

local function session_of(key)
  sessions[key] = sessions[key] or {stream = new_stream(), waiting = {}, rest = ""}
  return sessions[key]
end

local function looks_signed(payload)
  if #payload < MAC_SIZE then
    return false
  end
  return payload:sub(-MAC_SIZE):find("[^\t\r\n -~]") ~= nil
end

-- Return the datagram, or nil and what is wrong.
local function decode_carrier(s)
  if #s == 0 then
    return nil, "datagram of 0 bytes has no kind"
  end
  local name = CARRIER_KINDS[s:byte(1)]
  if not name then
    return nil, string.format("kind 0x%02x is not one of the UDP carrier's", s:byte(1))
  end
  local message = new_message(name)
  local size = CARRIER_SIZES[name]
  if size then
    if #s ~= size and #s ~= size + MAC_SIZE then
      return nil, string.format("%s of %d bytes; it has %d, or %d with a MAC", name, #s, size, size + MAC_SIZE)
    end
    message.has_mac, message.stop = #s ~= size, size
    message.session = s:sub(2, 9)
    put(message, u.session, 1, 8)
    if name == "COOKIE" or name == "OPEN" then
      put(message, u.cookie, 9, 16)
    end
    if name == "ACCEPT" then
      message.accepted = s:sub(10, 17)
      put(message, u.accepted, 9, 8)
      put(message, u.instance, 17, 8)
    elseif name == "OPEN" then
      put(message, u.instance, 25, 8)
    end
    message.info = "session " .. hex(message.session)
    return message
  end
  if #s < 34 then
    return nil, string.format("%s of %d bytes; its header alone has 34", name, #s)
  end
  local mask_size = s:byte(34)
  if #s < 34 + mask_size then
    return nil, string.format("%s of %d bytes ends within its mask of %d", name, #s, mask_size)
  end
  message.session = s:sub(2, 9)
  local number, sequence, ack = uint64(s, 10), uint64(s, 18), uint64(s, 26)
  if name == "FIN" and sequence == 0 then
    return nil, "FIN without a sequence number"
  end
  local rest = #s - 34 - mask_size
  if name ~= "DATA" or sequence == 0 then
    if rest ~= 0 and rest ~= MAC_SIZE then
      return nil, string.format("%s has %d bytes after its header", name, rest)
    end
    message.has_mac = rest ~= 0
    message.stop = 34 + mask_size
  end
  put(message, u.session, 1, 8)
  put(message, u.number, 9, 8, to_uint64(number))
  put(message, u.seq, 17, 8, to_uint64(sequence))
  put(message, u.ack, 25, 8, to_uint64(ack))
  put(message, u.mask, 34, mask_size)
  if type(ack) == "number" then
    for place = 0, mask_size * 8 - 1 do
      local byte = s:byte(35 + math.floor(place / 8))
      if has_bit(byte, 2 ^ (place % 8)) then
        put(message, u.acked, 34 + math.floor(place / 8), 1, to_uint64(ack + 2 + place))
      end
    end
  end
  message.sequence = type(sequence) == "number" and sequence > 0 and sequence or nil
  message.payload_at = 34 + mask_size
  message.info = "session " .. hex(message.session) .. (message.sequence and ", segment " .. text_of(sequence) or "")
    .. ", datagram " .. text_of(number) .. ", acknowledges " .. text_of(ack)
  return message
end

-- Add a segment to its session; return the bytes of the lines that it completes.
local function carried_lines(session, sequence, payload)
  session.expected = session.expected or sequence
  if sequence < session.expected then
    return ""
  end
  if sequence >= session.expected + 256 then
    session.expected, session.waiting, session.rest = sequence, {}, ""
  end
  session.waiting[sequence] = session.waiting[sequence] or payload
  while session.waiting[session.expected] do
    session.rest = session.rest .. session.waiting[session.expected]
    session.waiting[session.expected] = nil
    session.expected = session.expected + 1
  end
  local stop = 0
  while true do
    local found = session.rest:find("\r\n", stop + 1, true)
    if not found then
      break
    end
    stop = found + 1
  end
  local lines = session.rest:sub(1, stop)
  session.rest = session.rest:sub(stop + 1)
  if #session.rest > MAX_PARTIAL_LINE then
    session.rest = ""
  end
  return lines
end

local function learn_carrier(message, s, pinfo)
  local there = place_of(pinfo.src, pinfo.src_port) .. ">" .. place_of(pinfo.dst, pinfo.dst_port) .. "/"
  local back = place_of(pinfo.dst, pinfo.dst_port) .. ">" .. place_of(pinfo.src, pinfo.src_port) .. "/"
  local result = {has_mac = message.has_mac}
  if message.kind == "ACCEPT" then
    for _, key in ipairs({there .. message.session, back .. message.accepted}) do
      local session = session_of(key)
      session.has_mac, session.expected = message.has_mac, 1
    end
  elseif message.kind == "DATA" or message.kind == "FIN" then
    local session = session_of(there .. message.session)
    if message.has_mac ~= nil then
      session.has_mac = message.has_mac
    else
      local payload = s:sub(message.payload_at + 1)
      result.has_mac = session.has_mac
      if result.has_mac == nil then
        result.has_mac = looks_signed(payload)
      end
      result.has_mac = result.has_mac and #payload >= MAC_SIZE
    end
    if message.sequence then
      result.notes = note_number(session.stream, message.sequence)
      local stop = message.stop or (#s - (result.has_mac and MAC_SIZE or 0))
      result.lines = carried_lines(session, message.sequence, s:sub(message.payload_at + 1, stop))
    end
  end
  return result
end

function carrier.dissector(tvb, pinfo, tree)
  pinfo.cols.protocol = "Hydra/UDP"
  local s = tvb:raw(0, tvb:captured_len())
  local message, problem = decode_carrier(s)
  if is_cut(tvb) then
    message, problem = nil, "the capture cut the datagram"
  end
  if not message then
    local subtree = tree:add(carrier, tvb(), "Hydra over UDP, malformed")
    subtree:add_proto_expert_info(carrier_malformed, problem)
    pinfo.cols.info = "malformed: " .. problem
    return tvb:len()
  end
  if not pinfo.visited then
    carrier_results[pinfo.number] = learn_carrier(message, s, pinfo)
  end
  local result = carrier_results[pinfo.number] or {}
  local subtree = tree:add(carrier, tvb(), "Hydra over UDP, " .. message.kind .. " " .. message.info)
  subtree:add(u.kind, tvb(0, 1))
  add_fields(subtree, tvb, 0, message.fields)
  local stop = message.stop or (#s - (result.has_mac and MAC_SIZE or 0))
  if message.payload_at and stop > message.payload_at then
    subtree:add(u.payload, tvb(message.payload_at, stop - message.payload_at))
  end
  if result.has_mac then
    subtree:add(u.mac, tvb(#s - MAC_SIZE, MAC_SIZE))
  end
  add_notes(subtree, result.notes, carrier_gap, carrier_repair)
  local infos = {message.kind .. " " .. message.info}
  for _, note in ipairs(result.notes or {}) do
    infos[#infos] = infos[#infos] .. " [" .. note[2] .. "]"
  end
  if result.lines and #result.lines > 0 then
    local lines = ByteArray.new(result.lines, true):tvb("Lines of Hydra")
    local base = 0
    while base < #result.lines do
      local line, size = next_line(result.lines:sub(base + 1))
      show_line(line, lines, base, size, pinfo, tree)
      infos[#infos + 1] = line.kind .. " " .. line.info
      base = base + size
    end
  end
  pinfo.cols.info = #infos > 5 and string.format("%s; %d lines: %s ...", infos[1], #infos - 1, infos[2])
    or table.concat(infos, "; ")
  return tvb:len()
end

-- freenet (document 003; the encoding is that of docs/protocol/freenet.md)

local freenet = Proto("freenet", "Freenet overlay")
local FREENET_KINDS = {
  [1] = "HELLO", [2] = "PROVE", [3] = "LOCATED", [4] = "PING", [5] = "PONG", [10] = "SUBSCRIBE_REQUEST",
  [11] = "RESUBSCRIBE_REQUEST", [12] = "ACCEPTED", [13] = "REJECTED_LOOP", [14] = "REJECTED_OVERLOAD",
  [15] = "REJECTED_BUSY", [16] = "DATA_NOT_FOUND", [17] = "ROUTE_NOT_FOUND", [20] = "SUBSCRIBE_SUCCEEDED",
  [21] = "SUBSCRIBE_SUCCEEDED_NEW_ROOT", [22] = "SUBSCRIBE_RESTARTED", [23] = "UNSUBSCRIBE", [24] = "DISMISSED",
  [25] = "BETTER_ROOT", [26] = "RECALL", [30] = "SUBSCRIBE_DATA", [31] = "PUBLISH_DATA", [32] = "PUBLISH_SUCCEEDED",
  [33] = "PUBLISH_COLLISION", [34] = "PUBLISH_FAILED",
}
local FREENET_FIELDS = {
  [1] = {"node", "boot", "location", "nonce"}, [2] = {"proof"}, [3] = {"location"}, [4] = {}, [5] = {},
  [10] = {"uid", "key", "htl", "last_seen", "best"}, [11] = {"uid", "key", "htl", "last_seen", "must_beat", "best"},
  [12] = {"uid"}, [13] = {"uid"}, [14] = {"uid"}, [15] = {"uid", "place"}, [16] = {"uid", "busy"},
  [17] = {"uid", "htl", "busy"}, [20] = {"key", "uid", "root"}, [21] = {"key", "uid", "root"},
  [22] = {"key", "uid", "place"}, [23] = {"key"}, [24] = {"key"}, [25] = {"key", "root"}, [26] = {"key", "after"},
  [30] = {"key", "packet", "data"}, [31] = {"uid", "key", "packet", "best", "data", "htl", "wanted"}, [32] = {"uid"},
  [33] = {"uid", "next"}, [34] = {"uid", "reason"},
}
local n = {
  kind = ProtoField.uint8("freenet.kind", "Kind", base.DEC, FREENET_KINDS),
  length = ProtoField.uint32("freenet.length", "Length"),
}
local freenet_types = {
  node = "uint64", boot = "uint64", uid = "uint64", packet = "uint64", next = "uint64", htl = "uint8",
  last_seen = "int64", after = "int64", location = "double", best = "double", must_beat = "double", root = "double",
  place = "double", busy = "double", nonce = "bytes", proof = "bytes", key = "bytes", data = "bytes",
  reason = "string", wanted = "bool",
}
local freenet_titles = {
  node = "Node", boot = "Boot", uid = "Uid", packet = "Packet", next = "Free packet number", htl = "Hops to live",
  last_seen = "Last packet seen", after = "After packet", location = "Location", best = "Nearest location",
  must_beat = "Location to beat", root = "Location of the root", place = "Location of the searching node",
  busy = "Nearest busy location", nonce = "Nonce", proof = "Proof", key = "Key", data = "Data", reason = "Reason",
  wanted = "Wanted",
}
for name, kind in pairs(freenet_types) do
  n[name] = ProtoField[kind]("freenet." .. name, freenet_titles[name])
end
local freenet_malformed = ProtoExpert.new("freenet.malformed", "Malformed message", expert.group.MALFORMED, expert.severity.ERROR)
local freenet_gap = ProtoExpert.new("freenet.gap", "Packets missing", expert.group.SEQUENCE, expert.severity.WARN)
local freenet_repair = ProtoExpert.new("freenet.repair", "Packets repaired", expert.group.SEQUENCE, expert.severity.NOTE)
local freenet_field_list = {}
for _, field in pairs(n) do
  table.insert(freenet_field_list, field)
end
freenet.fields = freenet_field_list
freenet.experts = {freenet_malformed, freenet_gap, freenet_repair}

local FREENET_PACKETS = {packet = true, next = true, last_seen = true, after = true}
local FREENET_SIZES = {nonce = {16, 16}, proof = {0, 32}, key = {20, 20}, data = {0, 1058}}

-- Add a field; return its text, or nil and what is wrong.
local function put_freenet(message, s, name, item)
  local kind, field = freenet_types[name], n[name]
  if name == "busy" and item.is_null then
    return "none"
  end
  if kind == "double" then
    local at = item.offset + 2
    -- Below 1.0, the exponent is below 1023. A zero may have a sign.
    if not item.is_float or (math.floor(uint(s, at, 2) / 16) >= 1023 and s:sub(at, at + 7) ~= "\128\0\0\0\0\0\0\0") then
      return nil, name .. " is not a location"
    end
    local range = {field = field, offset = item.offset + 1, size = 8}
    message.fields[#message.fields + 1] = range
    return "..."
  elseif kind == "bytes" then
    local sizes = FREENET_SIZES[name]
    if not is_bytes(item) or #item.value < sizes[1] or #item.value > sizes[2] then
      return nil, name .. " is not a byte string of its size"
    end
    put(message, field, item.content or item.offset, #item.value)
    return (name == "key" and hex(item.value)) or plural(#item.value, "byte")
  elseif kind == "string" then
    if not is_text(item) or item.value:find("[%c\127]") or #item.value:gsub("[\128-\191]", "") > 64 then
      return nil, name .. " is not printable text of at most 64 characters"
    end
    put(message, field, item.content or item.offset, #item.value, item.value)
    return printable(item.value, 64)
  elseif kind == "bool" then
    if not is_bool(item) then
      return nil, name .. " is not a boolean"
    end
    put(message, field, item.offset, item.size, item.value)
    return item.value and "yes" or "no"
  end
  if not is_int(item) and not (kind == "int64" and item.major == 1 and item.value == -1) then
    return nil, name .. " is not a number in its range"
  end
  if type(item.value) ~= "number" and FREENET_PACKETS[name] and item.value > MAX_TERM then
    return nil, name .. " is not a number in its range"
  end
  if kind == "uint8" then
    if type(item.value) ~= "number" or item.value > 255 then
      return nil, name .. " is not a number in its range"
    end
    put(message, field, item.offset, item.size, item.value)
  else
    put(message, field, item.offset, item.size, kind == "int64" and to_int64(item.value) or to_uint64(item.value))
  end
  return text_of(item.value)
end

local function decode_freenet(s)
  local item, problem = cbor(s, 1, 0)
  if not item then
    return nil, problem
  end
  if item.size ~= #s then
    return nil, "trailing bytes after the message"
  end
  if not is_canonical(item) then
    return nil, "message is not in canonical encoding"
  end
  if not is_array(item) or not is_int(item.items[1]) then
    return nil, "message is not an array that begins with a number"
  end
  local code = item.items[1].value
  local names = FREENET_FIELDS[code]
  if not names then
    return nil, "unknown message code " .. text_of(code)
  end
  if #item.items ~= #names + 1 then
    return nil, string.format("%s has %d fields instead of %d", FREENET_KINDS[code], #item.items - 1, #names)
  end
  local message = new_message(FREENET_KINDS[code])
  put(message, n.kind, item.items[1].offset, item.items[1].size, code)
  local infos = {}
  for place, name in ipairs(names) do
    local text, wrong = put_freenet(message, s, name, item.items[place + 1])
    if not text then
      return nil, FREENET_KINDS[code] .. ": " .. wrong
    end
    if freenet_types[name] ~= "double" and name ~= "nonce" and name ~= "proof" then
      infos[#infos + 1] = (name:gsub("_", " ")) .. " " .. text
    end
    if name == "key" then
      message.key = hex(item.items[place + 1].value)
    elseif name == "packet" and code == 30 then
      message.packet = item.items[place + 1].value
    end
  end
  message.info = table.concat(infos, ", ")
  return message
end

local MAX_FREENET_FRAME = 2048

local function next_freenet(s)
  if #s < 4 then
    return nil, 4 - #s
  end
  local size = uint(s, 1, 4)
  if size == 0 or size > MAX_FREENET_FRAME then
    return false, string.format("message of %s bytes; the limit is 1 to %d", text_of(size), MAX_FREENET_FRAME)
  end
  if #s < 4 + size then
    return nil, 4 + size - #s
  end
  local message, problem = decode_freenet(s:sub(5, 4 + size))
  if not message then
    return false, problem
  end
  return message, 4 + size
end

local freenet_streams, freenet_notes = {}, {}

function freenet.init()
  freenet_streams, freenet_notes = {}, {}
end

local function show_freenet(message, tvb, base, size, pinfo, tree, index)
  local subtree = tree:add(freenet, tvb(base, size), "Freenet, " .. message.kind)
  subtree:add(n.length, tvb(base, 4))
  add_fields(subtree, tvb, base + 4, message.fields)
  if type(message.packet) == "number" then
    local key = pinfo.number .. "/" .. index
    if not pinfo.visited then
      local stream = message.key .. place_of(pinfo.dst, pinfo.dst_port)
      freenet_streams[stream] = freenet_streams[stream] or new_stream()
      freenet_notes[key] = note_number(freenet_streams[stream], message.packet)
    end
    add_notes(subtree, freenet_notes[key], freenet_gap, freenet_repair)
    for _, note in ipairs(freenet_notes[key] or {}) do
      message.info = message.info .. " [" .. note[2] .. "]"
    end
  end
end

function freenet.dissector(tvb, pinfo, tree)
  return dissect_stream(tvb, pinfo, freenet, "Freenet", next_freenet, show_freenet, freenet_malformed, tree)
end

-- The first message of each end of a connection is a HELLO.
local function is_freenet(tvb, pinfo, tree)
  if tvb:captured_len() < 30 then
    return false
  end
  local s = tvb:raw(0, tvb:captured_len())
  if s:sub(1, 3) ~= "\0\0\0" or s:sub(5, 6) ~= "\133\1" or not next_freenet(s) then
    return false
  end
  pinfo.conversation = freenet
  freenet.dissector(tvb, pinfo, tree)
  return true
end

-- parcels (document 004, and the extensions of docs/protocol/parcels.md)

local parcels = Proto("parcels", "Parcels")
local DOCUMENT_TYPES = {"DscReq", "DscRes", "SeqReq", "SeqRes", "ProtoError"}
local MODES = {"Wrk", "Dsc", "Err", "Panic", "Shutdown", "SeqRecovery"}
local MODE_VALUES, REFUSALS = {}, {
  "WRONG_CLUSTER", "WRONG_SECRET", "NAME_TAKEN", "ID_TAKEN", "OTHER_FOUNDING", "TOO_MANY", "NO_QUORUM", "OVERSIZE",
  "FORGOTTEN", "OUT_OF_ORDER", "SHUTTING_DOWN", "NOT_HELD", "OTHER_BODY", "UNEXPECTED", "NOT_SUPPORTED",
}
for place, mode in ipairs(MODES) do
  MODE_VALUES[place - 1] = mode
end
local ENTRY_KINDS = {[0] = "data", [1] = "membership", [2] = "no-op"}
local EXTENSION_TYPES = {
  Hello = {"cluster", "name", "incarnation", "cluster_id", "nonce"},
  Welcome = {"name", "incarnation", "cluster_id", "nonce", "proof"},
  Proof = {"proof"},
  Refused = {"why", "text"},
  Beat = {"mode", "term", "sequence"},
  VoteAsked = {"term", "last_index", "last_term", "trial"},
  VoteGiven = {"term", "granted", "trial"},
  Append = {"term", "previous", "previous_term", "commit", "entries"},
  Appended = {"term", "taken", "index"},
  StatePart = {"term", "index", "index_term", "offset", "total", "data"},
  StateTaken = {"term", "index", "offset"},
  Publish = {"run"},
  Published = {"publisher", "epoch", "first", "sequences"},
  NotPublished = {"publisher", "epoch", "first", "why", "text"},
  Fetch = {"first", "last"},
  Fetched = {"first", "events"},
  FetchState = {"sequence", "offset"},
  FetchedState = {"sequence", "offset", "total", "held", "data"},
  TakeOver = {"term"},
  VoteOrdered = {"term", "last_index", "last_term"},
  Dismissed = {"term"},
}
local parcels_types = {
  cluster = "string", name = "string", incarnation = "uint64", cluster_id = "uint64", nonce = "bytes", proof = "bytes",
  text = "string", term = "uint64", sequence = "uint64", last_index = "uint64", last_term = "uint64", trial = "bool",
  granted = "bool", previous = "uint64", previous_term = "uint64", commit = "uint64", taken = "bool", index = "uint64",
  index_term = "uint64", offset = "uint64", total = "uint64", data = "bytes", publisher = "string", epoch = "uint64",
  first = "uint64", last = "uint64", held = "bool",
}
local p = {
  head_length = ProtoField.uint8("parcels.head_length", "Length of the head"),
  type = ProtoField.string("parcels.type", "Type"),
  response = ProtoField.bool("parcels.response", "Response"),
  id = ProtoField.uint16("parcels.id", "Sender"),
  size = ProtoField.uint16("parcels.size", "Size of the data"),
  body = ProtoField.string("parcels.body", "Body"),
  seq_number = ProtoField.uint64("parcels.seq_number", "Sequence number"),
  application_data = ProtoField.bytes("parcels.application_data", "Application data"),
  node_id = ProtoField.uint16("parcels.node.id", "Node"),
  node_mode = ProtoField.string("parcels.node.mode", "Mode"),
  node_name = ProtoField.string("parcels.node.name", "Name"),
  node_host = ProtoField.string("parcels.node.host", "Host"),
  node_port = ProtoField.uint16("parcels.node.port", "Port"),
  node_version = ProtoField.uint16("parcels.node.version", "Version of the extension"),
  node_incarnation = ProtoField.uint64("parcels.node.incarnation", "Incarnation"),
  node_cluster = ProtoField.uint32("parcels.node.cluster", "CRC-32 of the cluster's name", base.HEX),
  mode = ProtoField.uint8("parcels.mode", "Mode", base.DEC, MODE_VALUES),
  why = ProtoField.uint8("parcels.why", "Reason", base.DEC, REFUSALS),
  run_publisher = ProtoField.string("parcels.run.publisher", "Publisher"),
  run_epoch = ProtoField.uint64("parcels.run.epoch", "Epoch"),
  run_first = ProtoField.uint64("parcels.run.first", "Publisher's first number"),
  run_expect = ProtoField.uint64("parcels.run.expect", "Expected last event"),
  event = ProtoField.bytes("parcels.event", "Event"),
  event_size = ProtoField.uint32("parcels.event.size", "Size of the event"),
  event_publisher = ProtoField.string("parcels.event.publisher", "Publisher"),
  event_epoch = ProtoField.uint64("parcels.event.epoch", "Epoch"),
  event_number = ProtoField.uint64("parcels.event.number", "Publisher's number"),
  event_sequence = ProtoField.uint64("parcels.event.sequence", "Sequence number"),
  entry_term = ProtoField.uint64("parcels.entry.term", "Term"),
  entry_kind = ProtoField.uint8("parcels.entry.kind", "Kind", base.DEC, ENTRY_KINDS),
  entry_index = ProtoField.uint64("parcels.entry.index", "Index"),
  member_name = ProtoField.string("parcels.member.name", "Member"),
  member_incarnation = ProtoField.uint64("parcels.member.incarnation", "Incarnation"),
  member_host = ProtoField.ipv4("parcels.member.host", "Host"),
  member_host6 = ProtoField.ipv6("parcels.member.host6", "Host"),
  member_port = ProtoField.uint16("parcels.member.port", "Port"),
  span_first = ProtoField.uint64("parcels.span.first", "First sequence number"),
  span_count = ProtoField.uint64("parcels.span.count", "Number of events"),
}
for name, kind in pairs(parcels_types) do
  p[name] = ProtoField[kind]("parcels." .. name, (name:sub(1, 1):upper() .. name:sub(2):gsub("_", " ")))
end
local parcels_malformed = ProtoExpert.new("parcels.malformed", "Malformed parcel", expert.group.MALFORMED, expert.severity.ERROR)
local parcels_field_list = {}
for _, field in pairs(p) do
  table.insert(parcels_field_list, field)
end
parcels.fields = parcels_field_list
parcels.experts = {parcels_malformed}

-- Return the fields of a structure by name; it may be a map with names or places as keys, or an array.
local function struct(item, names, extra)
  local found = {}
  if item == nil then
    return nil, "a structure is missing"
  end
  if item.major == 4 then
    if #item.items ~= #names then
      return nil, "a structure has a wrong number of fields"
    end
    for place, name in ipairs(names) do
      found[name] = item.items[place]
    end
    return found
  end
  if item.major ~= 5 then
    return nil, "a structure is no map"
  end
  local wanted = {}
  for place, name in ipairs(names) do
    wanted[name], wanted[place - 1] = name, name
  end
  if extra then
    wanted[extra] = extra
  end
  for place = 1, #item.items, 2 do
    local name = wanted[item.items[place].value]
    if name then
      if found[name] then
        return nil, name .. " is there twice"
      end
      found[name] = item.items[place + 1]
    end
  end
  for _, name in ipairs(names) do
    if not found[name] then
      return nil, name .. " is missing"
    end
  end
  return found
end

-- Return the name of a variant and its content; the name may be a place, and stand alone or as the key of a map.
local function variant(item, names, is_open)
  local content
  if item and item.major == 5 and #item.items == 2 and not item.indefinite then
    item, content = item.items[1], item.items[2]
  end
  if not item then
    return nil, "a variant is missing"
  end
  local name = item.value
  if is_int(item) then
    name = names[type(name) == "number" and name + 1 or -1]
  elseif item.major ~= 2 and item.major ~= 3 then
    return nil, "a variant is no text"
  end
  for _, known in ipairs(names) do
    if name == known then
      return name, content
    end
  end
  if is_open and type(name) == "string" then
    return name, content
  end
  return nil, "a variant is unknown"
end

local function is_uint(item, highest)
  return is_int(item) and (type(item.value) == "number" and item.value <= highest or highest == math.huge)
end

-- Add a node's information; return its text, or nil and what is wrong.
local function put_node(message, s, item, shift)
  local fields, problem = struct(item, {"id", "mode", "name", "host"}, "ours")
  if not fields then
    return nil, problem
  end
  if not is_uint(fields.id, 65535) then
    return nil, "the id of a node is not a number of 16 bits"
  end
  local mode, mode_problem = variant(fields.mode, MODES)
  if not mode then
    return nil, mode_problem
  end
  if not is_text(fields.name) and not is_bytes(fields.name) then
    return nil, "the name of a node is no text"
  end
  local family, place = variant(fields.host, {"V4", "V6"})
  if not family then
    return nil, place
  end
  local size = family == "V4" and 4 or 16
  if not is_array(place, 2) or not is_array(place.items[1], size) or not is_uint(place.items[2], 65535) then
    return nil, "the host of a node is no address and port"
  end
  local octets = {}
  for _, octet in ipairs(place.items[1].items) do
    if not is_uint(octet, 255) then
      return nil, "the host of a node is no address"
    end
    octets[#octets + 1] = string.char(octet.value)
  end
  local packed = table.concat(octets)
  local host = size == 4 and format_host4(packed, 1) or format_host6(packed, 1):sub(2, -2)
  local group = put_group(message, "Node " .. printable(fields.name.value, 64), shift + item.offset, item.size)
  put(group, p.node_id, shift + fields.id.offset, fields.id.size, fields.id.value)
  put(group, p.node_mode, shift + fields.mode.offset, fields.mode.size, mode)
  put(group, p.node_name, shift + fields.name.offset, fields.name.size, fields.name.value)
  put(group, p.node_host, shift + place.items[1].offset, place.items[1].size, host)
  put(group, p.node_port, shift + place.items[2].offset, place.items[2].size, place.items[2].value)
  local ours = fields.ours
  if ours then
    if not is_array(ours, 3) or not is_uint(ours.items[1], 65535) or not is_int(ours.items[2])
      or not is_uint(ours.items[3], 2 ^ 32 - 1) then
      return nil, "'ours' is not an array of three numbers"
    end
    put(group, p.node_version, shift + ours.items[1].offset, ours.items[1].size, ours.items[1].value)
    put(group, p.node_incarnation, shift + ours.items[2].offset, ours.items[2].size, to_uint64(ours.items[2].value))
    put(group, p.node_cluster, shift + ours.items[3].offset, ours.items[3].size, ours.items[3].value)
  end
  local shown = size == 4 and host or "[" .. host .. "]"
  return string.format("%s at %s:%d in mode %s", printable(fields.name.value, 64), shown, place.items[2].value, mode)
end

local function put_nodes(message, s, item, shift)
  if not is_array(item) then
    return nil, "neighbours is no array"
  end
  local texts = {}
  for _, each in ipairs(item.items) do
    local text, problem = put_node(message, s, each, shift)
    if not text then
      return nil, problem
    end
    texts[#texts + 1] = text
  end
  return texts
end

local function put_number(message, field, item, shift)
  if not is_int(item) or (type(item.value) ~= "number" and item.value > MAX_TERM) then
    return nil
  end
  put(message, field, shift + item.offset, item.size, to_uint64(item.value))
  return text_of(item.value)
end

local function put_text(message, field, item, shift)
  if not is_text(item) then
    return nil
  end
  put(message, field, shift + (item.content or item.offset), #item.value, item.value)
  return printable(item.value, 64)
end

local function put_event(message, item, shift)
  if not is_bytes(item) then
    return nil
  end
  put(message, p.event_size, shift + item.offset, item.size, #item.value)
  put(message, p.event, shift + (item.content or item.offset), #item.value)
  return true
end

-- Add the events of one publisher; return their text, or nil.
local function put_run(message, item, shift)
  if not is_array(item) or (#item.items ~= 4 and #item.items ~= 5) or not is_array(item.items[4]) then
    return nil
  end
  local group = put_group(message, "Events of one publisher", shift + item.offset, item.size)
  local publisher = put_text(group, p.run_publisher, item.items[1], shift)
  local epoch = put_number(group, p.run_epoch, item.items[2], shift)
  local first = put_number(group, p.run_first, item.items[3], shift)
  if not publisher or not epoch or not first then
    return nil
  end
  if item.items[5] and not put_number(group, p.run_expect, item.items[5], shift) then
    return nil
  end
  for _, event in ipairs(item.items[4].items) do
    if not put_event(group, event, shift) then
      return nil
    end
  end
  return string.format("%s epoch %s, %s from %s", publisher, epoch, plural(#item.items[4].items, "event"), first)
end

local function put_entry(message, item, shift, index)
  if not is_array(item, 3) or not is_uint(item.items[2], 2) then
    return nil
  end
  local kind, content = item.items[2].value, item.items[3]
  local group = put_group(message, "Entry, " .. ENTRY_KINDS[kind], shift + item.offset, item.size)
  if not put_number(group, p.entry_term, item.items[1], shift) then
    return nil
  end
  put(group, p.entry_kind, shift + item.items[2].offset, item.items[2].size, kind)
  if index then
    put(group, p.entry_index, shift + item.offset, item.size, to_uint64(index))
    group.fields[#group.fields].generated = true
  end
  if kind == 2 then
    return content.is_null
  end
  if not is_array(content) then
    return nil
  end
  for _, each in ipairs(content.items) do
    if kind == 0 then
      if not put_run(group, each, shift) then
        return nil
      end
    else
      if not is_array(each, 4) or not is_bytes(each.items[3]) or not is_uint(each.items[4], 65535) then
        return nil
      end
      local host = each.items[3]
      if not put_text(group, p.member_name, each.items[1], shift)
        or not put_number(group, p.member_incarnation, each.items[2], shift) or (#host.value ~= 4 and #host.value ~= 16) then
        return nil
      end
      put(group, #host.value == 4 and p.member_host or p.member_host6, shift + (host.content or host.offset), #host.value)
      put(group, p.member_port, shift + each.items[4].offset, each.items[4].size, each.items[4].value)
    end
  end
  return true
end

-- Add a field of an extension parcel; return its text, or nil.
local function put_extension_field(message, name, item, shift)
  local kind = parcels_types[name]
  if kind == "uint64" then
    return put_number(message, p[name], item, shift)
  elseif kind == "string" then
    return put_text(message, p[name], item, shift)
  elseif kind == "bool" then
    if not is_bool(item) then
      return nil
    end
    put(message, p[name], shift + item.offset, item.size, item.value)
    return item.value and "yes" or "no"
  elseif kind == "bytes" then
    local size = is_bytes(item) and #item.value
    if not size or (name == "nonce" and size ~= 16) or (name == "proof" and size ~= 0 and size ~= 32) then
      return nil
    end
    put(message, p[name], shift + (item.content or item.offset), #item.value)
    return plural(#item.value, "byte")
  elseif name == "mode" then
    if not is_uint(item, #MODES - 1) then
      return nil
    end
    put(message, p.mode, shift + item.offset, item.size, item.value)
    return MODE_VALUES[item.value]
  elseif name == "why" then
    if not is_uint(item, #REFUSALS) or item.value == 0 then
      return nil
    end
    put(message, p.why, shift + item.offset, item.size, item.value)
    return REFUSALS[item.value]
  elseif name == "run" then
    return put_run(message, item, shift)
  end
  if not is_array(item) then
    return nil
  end
  for place, each in ipairs(item.items) do
    if name == "entries" then
      local index = type(message.previous) == "number" and message.previous + place or nil
      if not put_entry(message, each, shift, index) then
        return nil
      end
    elseif name == "sequences" then
      if not is_array(each, 2) or not put_number(message, p.span_first, each.items[1], shift)
        or not put_number(message, p.span_count, each.items[2], shift) then
        return nil
      end
    else
      if not is_array(each, 4) then
        return nil
      end
      local group = put_group(message, "Event", shift + each.offset, each.size)
      if not put_text(group, p.event_publisher, each.items[1], shift)
        or not put_number(group, p.event_epoch, each.items[2], shift)
        or not put_number(group, p.event_number, each.items[3], shift)
        or not put_event(group, each.items[4], shift) then
        return nil
      end
      if type(message.first) == "number" then
        put(group, p.event_sequence, shift + each.offset, each.size, to_uint64(message.first + place - 1))
        group.fields[#group.fields].generated = true
      end
    end
  end
  if name == "entries" then
    return #item.items == 0 and "heartbeat" or plural(#item.items, "entry", "entries")
  end
  return tostring(#item.items)
end

local function decode_extension_parcel(message, name, data, shift)
  local names = EXTENSION_TYPES[name]
  local item, problem = cbor(data, 1, 0)
  if not item then
    return problem
  end
  if item.size ~= #data or not is_array(item, #names) then
    return name .. " is not an array of " .. #names
  end
  local infos = {}
  for place, field in ipairs(names) do
    local each = item.items[place]
    if field == "previous" or field == "first" then
      message[field] = each.value
    end
    local text = put_extension_field(message, field, each, shift)
    if not text then
      return name .. "." .. field .. " is not valid"
    end
    if field ~= "nonce" and field ~= "proof" then
      infos[#infos + 1] = field == "run" and text or (field:gsub("_", " ")) .. " " .. text
    end
  end
  message.info = table.concat(infos, ", ")
end

local function next_parcel(s)
  local head_size = s:byte(1)
  if head_size == 0 then
    return false, "a parcel with a head of 0 bytes"
  end
  if #s < 1 + head_size then
    return nil, 1 + head_size - #s
  end
  local item, problem = cbor(s:sub(2, 1 + head_size), 1, 0)
  if not item then
    return false, problem
  end
  if item.size ~= head_size then
    return false, "trailing bytes after the head of a parcel"
  end
  local head, missing = struct(item, {"is_response", "parcel_type", "id", "size", "body"})
  if not head then
    return false, missing
  end
  local name, content = variant(head.parcel_type, DOCUMENT_TYPES, true)
  if not name or (content and not content.is_null) then
    return false, "parcel_type is not valid"
  end
  if not is_bool(head.is_response) or not is_uint(head.id, 65535) or not is_uint(head.size, 65535) then
    return false, "is_response, id or size is not valid"
  end
  local body, body_content = variant(head.body, {"Empty", "DscReq", "DscRes", "SeqRes"})
  if not body then
    return false, "body is not valid: " .. body_content
  end
  local size = 1 + head_size + head.size.value
  local is_document = false
  for _, known in ipairs(DOCUMENT_TYPES) do
    is_document = is_document or name == known
  end
  if not is_document and not EXTENSION_TYPES[name] then
    return false, "parcel_type is " .. printable(name, 40) .. ", which is not one of the protocol's"
  end
  if not is_document and body ~= "Empty" then
    return false, "the body of a " .. name .. " is not empty"
  end
  local message = new_message(name)
  put(message, p.head_length, 0, 1)
  put(message, p.type, 1 + head.parcel_type.offset, head.parcel_type.size, name)
  put(message, p.response, 1 + head.is_response.offset, head.is_response.size, head.is_response.value)
  put(message, p.id, 1 + head.id.offset, head.id.size, head.id.value)
  put(message, p.size, 1 + head.size.offset, head.size.size, head.size.value)
  put(message, p.body, 1 + head.body.offset, head.body.size, body)
  local infos = {"of node " .. head.id.value}
  local nodes
  if body == "DscReq" then
    local fields, wrong = struct(body_content, {"identity"})
    local text
    if fields then
      text, wrong = put_node(message, s, fields.identity, 1)
    end
    if not text then
      return false, wrong
    end
    infos[#infos + 1] = text
  elseif body == "DscRes" then
    local fields, wrong = struct(body_content, {"neighbours"})
    if fields then
      nodes, wrong = put_nodes(message, s, fields.neighbours, 1)
    end
    if not nodes then
      return false, wrong
    end
  elseif body == "SeqRes" then
    local fields, wrong = struct(body_content, {"seq_number"})
    if not fields then
      return false, wrong
    end
    local text = put_number(message, p.seq_number, fields.seq_number, 1)
    if not text then
      return false, "seq_number is no number"
    end
    infos[#infos + 1] = "sequence " .. text
  elseif body_content and not body_content.is_null then
    return false, "an empty body has content"
  end
  if #s < size then
    return nil, size - #s
  end
  local data = s:sub(2 + head_size, size)
  if not is_document then
    local wrong = decode_extension_parcel(message, name, data, 1 + head_size)
    if wrong then
      return false, wrong
    end
    return message, size
  end
  if #data > 0 then
    if nodes and name == "DscRes" then
      local more, wrong = cbor(data, 1, 0)
      local rest
      if more and more.size == #data then
        rest, wrong = put_nodes(message, s, more, 1 + head_size)
      end
      if not rest then
        return false, wrong or "trailing bytes after the neighbours"
      end
      for _, text in ipairs(rest) do
        nodes[#nodes + 1] = text
      end
    else
      put(message, p.application_data, 1 + head_size, #data)
      infos[#infos + 1] = plural(#data, "byte") .. " of data"
    end
  end
  if nodes then
    infos[#infos + 1] = plural(#nodes, "neighbour") .. (#nodes > 0 and ": " .. table.concat(nodes, "; ") or "")
  end
  message.info = table.concat(infos, ", ")
  return message, size
end

local function show_parcel(message, tvb, base, size, pinfo, tree)
  local subtree = tree:add(parcels, tvb(base, size), "Parcels, " .. message.kind)
  add_fields(subtree, tvb, base, message.fields)
end

function parcels.dissector(tvb, pinfo, tree)
  return dissect_stream(tvb, pinfo, parcels, "Parcels", next_parcel, show_parcel, parcels_malformed, tree)
end

local function is_parcels(tvb, pinfo, tree)
  if tvb:captured_len() < 15 or tvb:raw(1, 13) ~= "\165kis_response" then
    return false
  end
  pinfo.conversation = parcels
  parcels.dissector(tvb, pinfo, tree)
  return true
end

-- Ports and heuristics

local function register(proto, preference, title, table_name, default)
  proto.prefs[preference] = Pref.range(title, default, "Ports on which the protocol is spoken", 65535)
  local dissectors = DissectorTable.get(table_name)
  local current = proto.prefs[preference]
  dissectors:add(current, proto)
  return function()
    dissectors:remove(current, proto)
    current = proto.prefs[preference]
    dissectors:add(current, proto)
  end
end

fyrehose.prefs_changed = register(fyrehose, "udp_ports", "UDP ports", "udp.port", "2323")
hydra.prefs_changed = register(hydra, "tcp_ports", "TCP ports", "tcp.port", "6174")
carrier.prefs_changed = register(carrier, "udp_ports", "UDP ports", "udp.port", "6174")
freenet.prefs_changed = register(freenet, "tcp_ports", "TCP ports", "tcp.port", "6180")
parcels.prefs_changed = register(parcels, "tcp_ports", "TCP ports", "tcp.port", "7878")

fyrehose:register_heuristic("udp", is_fyrehose)
hydra:register_heuristic("tcp", is_hydra)
freenet:register_heuristic("tcp", is_freenet)
parcels:register_heuristic("tcp", is_parcels)
