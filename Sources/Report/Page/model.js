"use strict";
// The model: what Swift has written, and what follows from it by slicing and adding. Nothing here knows Bluetooth.

const Layers = ["hci", "l2cap", "sig", "att", "smp", "ll", "note"];
const LayerNames = { hci: "HCI", l2cap: "L2CAP", sig: "Signaling", att: "ATT", smp: "SMP", ll: "Air", note: "Notes" };
const Kinds = ["layer", "entry", "field", "bits", "flag", "wrong", "problem"];
const Ways = ["read", "part read", "written", "write command", "notified", "indicated", "signed write", "prepared"];
const Roles = ["", "Central", "Peripheral"];

function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text), octets = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) octets[i] = binary.charCodeAt(i);
  return octets;
}
function hex(number, digits) { return number.toString(16).toUpperCase().padStart(digits, "0"); }
const HexOctets = Array.from({ length: 256 }, (_, i) => hex(i, 2));
/** The octets in hexadecimal, at most `limit` of them. */
function hexText(octets, limit = 32) {
  let text = "";
  const end = Math.min(octets.length, limit);
  for (let i = 0; i < end; i++) text += (i ? " " : "") + HexOctets[octets[i]];
  return octets.length > limit ? text + " …" : text;
}
/** The octets as text if all are printable ASCII; else nothing. */
function asciiText(octets) {
  if (octets.length < 2) return "";
  let text = "";
  for (const octet of octets) {
    if (octet < 0x20 || octet > 0x7e) return "";
    text += String.fromCharCode(octet);
    if (text.length > 60) return text + "…";
  }
  return text;
}
function grouped(number) { return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202F"); }
function counted(number, noun) { return `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`; }
/** Microseconds as a duration. */
function duration(us) {
  const s = us / 1e6;
  if (s < 0.001) return `${us} µs`;
  if (s < 1) return `${(us / 1000).toFixed(us < 10000 ? 2 : 1)} ms`;
  if (s < 120) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
}

const model = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const count = data.times.length;
  const octets = decodeBase64(data.octets);
  delete data.octets;
  const times = new Float64Array(count), offsets = new Uint32Array(count + 1);
  let time = 0;
  for (let i = 0; i < count; i++) {
    time += data.times[i];
    times[i] = time;
    offsets[i + 1] = offsets[i] + data.counts[i];
  }
  const sparse = (list) => {
    const map = new Map();
    for (let i = 0; i < list.length; i += 2) map.set(list[i], list[i + 1]);
    return map;
  };
  const problems = sparse(data.problems), splits = sparse(data.splits), adapters = sparse(data.adapters);
  const findings = new Map();
  data.findings.forEach((finding, index) => {
    if (!findings.has(finding[0])) findings.set(finding[0], []);
    findings.get(finding[0]).push(index);
  });
  const divergences = new Map();
  (data.replay.divergences || []).forEach((divergence) => divergences.set(divergence.at, divergence));
  const answeredBy = new Map();
  for (let i = 0; i < count; i++) if (data.answers[i]) answeredBy.set(i - data.answers[i], i);
  const packets = new Uint32Array(data.connections.length);
  for (let i = 0; i < count; i++) if (data.links[i] >= 0 && data.flags[i] >> 2 & 7) packets[data.links[i]]++;

  const string = (place) => data.strings[place];
  const octetsOf = (i) => octets.subarray(offsets[i], offsets[i + 1]);

  /** The little-endian number of a row, as a BigInt if it needs more than 32 bits. */
  function number(bytes, bit, width) {
    if (width <= 24) {
      let value = 0;
      const first = bit >> 3, end = Math.min((bit + width + 7) >> 3, bytes.length);
      for (let place = end - 1; place >= first; place--) value = value * 256 + bytes[place];
      return Math.floor(value / 2 ** (bit & 7)) % 2 ** width;
    }
    let value = 0n;
    const first = bit >> 3, end = Math.min((bit + width + 7) >> 3, bytes.length);
    for (let place = end - 1; place >= first; place--) value = (value << 8n) | BigInt(bytes[place]);
    return BigInt.asUintN(width, value >> BigInt(bit & 7));
  }
  /** A value's text from its octets: the forms of ReportShapes.Form. */
  function value(bytes, bit, width, form, argument) {
    switch (form) {
      case 1: return "0x" + hex(number(bytes, bit, width), argument);
      case 2: return String(number(bytes, bit, width));
      case 3: { const v = number(bytes, bit, width); return `${v > 127 ? v - 256 : v} dBm`; }
      case 4: {
        const first = bit >> 3;
        return Array.from(bytes.subarray(first, first + 6)).reverse().map((o) => HexOctets[o]).join(":");
      }
      case 5: return width === 8 ? "1 octet" : `${width / 8} octets`;
      case 6: return number(bytes, bit, width) === 1 ? "yes" : "no";
      case 7: return `"${String.fromCharCode(...bytes.subarray(bit >> 3, (bit + width) >> 3))}"`;
      default: return string(argument);
    }
  }
  /** The byte map of a record. */
  function rows(i) {
    const shape = data.shapes[data.shapeOf[i]], bytes = octetsOf(i), list = [];
    for (let at = 0; at < shape.length; at += 6) {
      list.push({
        kind: Kinds[shape[at]], bit: shape[at + 1], width: shape[at + 2], label: string(shape[at + 3]),
        text: value(bytes, shape[at + 1], shape[at + 2], shape[at + 4], shape[at + 5]), form: shape[at + 4],
      });
    }
    return list;
  }
  const headers = new Set([
    "Opcode", "Code", "HCI packet type", "Event_Code", "Subevent_Code", "Parameter_Total_Length", "Length",
    "Identifier", "AD Type", "Num_HCI_Command_Packets", "Command_Opcode", "PDU Length", "Handle",
    "Packet_Boundary_Flag", "Broadcast_Flag",
  ]);
  /** The fields of the highest layer, in one line. */
  function fields(i) {
    const shape = data.shapes[data.shapeOf[i]], bytes = octetsOf(i);
    let start = 0, text = "";
    for (let at = 0; at < shape.length; at += 6) if (shape[at] === 0) start = at;
    for (let at = start; at < shape.length && text.length < 200; at += 6) {
      const kind = shape[at], bit = shape[at + 1], width = shape[at + 2];
      if (kind === 6) { text += (text ? " · " : "") + string(shape[at + 5]); continue; }
      if (kind !== 2 && kind !== 3) continue;
      const label = string(shape[at + 3]);
      if (headers.has(label)) continue;
      const shown = shape[at + 4] === 5
        ? hexText(bytes.subarray(bit >> 3, (bit + width) >> 3), 16) : value(bytes, bit, width, shape[at + 4], shape[at + 5]);
      text += (text ? " · " : "") + label.replaceAll("_", " ") + " " + shown;
    }
    return text;
  }
  const searchable = new Array(count);
  /** What the search looks through: number, names, fields, and the octets without spaces. */
  function searchText(i) {
    let text = searchable[i];
    if (text === undefined) {
      const problem = problems.get(i);
      text = (`${string(data.names[i])} ${string(data.meanings[i])} ${fields(i)} ${problem ? string(problem) : ""} `)
        .toLowerCase();
      searchable[i] = text;
    }
    return text;
  }

  return {
    data, count, times, string, octetsOf, rows, fields, searchText, problems, splits, findings, divergences, answeredBy,
    packets,
    layer: (i) => Layers[data.flags[i] >> 5],
    kind: (i) => (data.flags[i] >> 2) & 7,
    /** 0 not known, 1 from the host, 2 to it. */
    direction: (i) => data.flags[i] & 3,
    link: (i) => data.links[i],
    adapter: (i) => adapters.get(i) || 0,
    name: (i) => string(data.names[i]),
    meaning: (i) => string(data.meanings[i]),
    handle: (i) => data.handles[i],
    request: (i) => (data.answers[i] ? i - data.answers[i] : -1),
    /** The number that the trace's tools use. */
    frame: (i) => i + data.first,
    place: (frame) => frame - data.first,
    start: data.start,
    end: count ? times[count - 1] : 0,
    /** What to call a connection. */
    connectionName(link) {
      const c = data.connections[link];
      const name = string(c.name), peer = string(c.peer);
      return name || peer || (c.air ? "Access address 0x" + hex(c.handle, 8) : "Connection 0x" + hex(c.handle, 4));
    },
  };
})();
