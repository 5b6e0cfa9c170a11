// Timelines: throughput, round trips, signal strength, and what the controller holds.

const timeline = (() => {
  let panel, isStale = true;
  const height = 132, left = 64, bottom = 22;

  const inLink = (i) => sequence.link < 0 || model.link(i) === sequence.link;

  /** Octets of data per second, in bins. */
  function throughput() {
    const span = Math.max(model.end, 1), bins = 240, width = Math.max(10000, span / bins);
    const sums = [new Map(), new Map(), new Map()];
    for (let i = 0; i < model.count; i++) {
      if (!inLink(i)) continue;
      const kind = model.kind(i);
      if (kind !== 2 && kind !== 6) continue;
      const bin = Math.floor(model.times[i] / width), map = sums[model.direction(i)];
      const size = model.splits.get(i) || model.octetsOf(i).length;
      map.set(bin, (map.get(bin) || 0) + size);
    }
    const names = ["on the air", "to the peer", "from the peer"];
    return sums.map((map, side) => ({
      name: names[side], kind: "bars",
      points: [...map].map(([bin, sum]) => [(bin + 0.5) * width, (sum / width) * 1e6]).sort((a, b) => a[0] - b[0]),
      width,
    })).filter((series) => series.points.length);
  }
  function roundTrips() {
    const att = [], hci = [];
    for (let i = 0; i < model.count; i++) {
      const request = model.request(i);
      if (request < 0 || !inLink(i)) continue;
      (model.layer(i) === "att" ? att : hci).push([model.times[i], (model.times[i] - model.times[request]) / 1000, i]);
    }
    return [
      { name: "ATT request to response", kind: "dots", points: att },
      { name: "HCI command to event", kind: "dots", points: sequence.link < 0 ? hci : [] },
    ].filter((series) => series.points.length);
  }
  function strength() {
    const { strengths, devices } = model.data, byDevice = new Map();
    const wanted = sequence.link >= 0 ? model.data.connections[sequence.link].peer : -1;
    for (let at = 0; at < strengths.length; at += 3) {
      const device = strengths[at + 1];
      if (wanted >= 0 && model.string(devices[device][0]) !== model.string(wanted)) continue;
      if (!byDevice.has(device)) byDevice.set(device, []);
      byDevice.get(device).push([model.times[strengths[at]], strengths[at + 2], strengths[at]]);
    }
    const all = [...byDevice].sort((a, b) => b[1].length - a[1].length);
    const names = devices.map(([address, name]) => model.string(name) || model.string(address));
    const list = all.slice(0, 5).map(([device, points]) => ({
      // Devices of one name are told apart by their addresses.
      name: names[device] + (names.indexOf(names[device]) === names.lastIndexOf(names[device]) ? "" : " " + model.string(devices[device][0])),
      kind: "dots", points,
    }));
    list.hidden = all.length - list.length;
    return list;
  }
  /** Packets that the controller has and has not reported as completed. */
  function queue() {
    const { completed, connections } = model.data, points = [], waiting = new Map();
    let at = 0, sum = 0;
    if (!completed.length) return [];
    // The packets of a connection that has ended are returned without an event: Vol 4, Part E, §4.3.
    const ends = new Map();
    connections.forEach((c, link) => { if (c.last >= 0) ends.set(c.last, [...(ends.get(c.last) || []), link]); });
    for (let i = 0; i < model.count; i++) {
      let isChanged = false;
      if (model.kind(i) === 2 && model.direction(i) === 1 && inLink(i)) {
        waiting.set(model.link(i), (waiting.get(model.link(i)) || 0) + 1);
        sum++;
        isChanged = true;
      }
      for (; at < completed.length && completed[at] === i; at += 3) {
        const link = completed[at + 1];
        if (sequence.link >= 0 && link !== sequence.link) continue;
        const less = Math.min(waiting.get(link) || 0, completed[at + 2]);
        waiting.set(link, (waiting.get(link) || 0) - less);
        sum -= less;
        isChanged = true;
      }
      for (const link of ends.get(i) || []) {
        if (!waiting.get(link)) continue;
        sum -= waiting.get(link);
        waiting.set(link, 0);
        isChanged = true;
      }
      if (isChanged) points.push([model.times[i], sum, i]);
    }
    return points.length ? [{ name: "packets in the controller", kind: "steps", points }] : [];
  }

  // At most two points for each pixel column and series: the least and the greatest.
  function thin(points, x) {
    if (points.length < 3000) return points;
    const result = [];
    let column = -1, low = null, high = null;
    const flush = () => { if (low) { result.push(low); if (high !== low) result.push(high); } };
    for (const point of points) {
      const here = Math.round(x(point[0]));
      if (here !== column) { flush(); column = here; low = high = point; }
      else { if (point[1] < low[1]) low = point; if (point[1] > high[1]) high = point; }
    }
    flush();
    return result;
  }
  function ticks(least, most, count) {
    const raw = (most - least) / count, power = 10 ** Math.floor(Math.log10(raw || 1));
    const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw) || power;
    const list = [];
    for (let value = Math.ceil(least / step) * step; value <= most + step * 1e-6; value += step) list.push(value);
    return list;
  }

  function chart(title, unit, about, series, format, { limit, span, least: fixedLeast } = {}) {
    const values = series.flatMap((s) => s.points.map((p) => p[1]));
    if (!values.length) return null;
    let least = fixedLeast === undefined ? Infinity : fixedLeast, most = -Infinity;
    for (const value of values) { if (value < least) least = value; if (value > most) most = value; }
    if (limit) most = Math.max(most, limit);
    if (span && most - least < span) { least -= (span - most + least) / 2; most = least + span; }
    if (most === least) most = least + 1;
    const width = Math.max(320, panel.clientWidth - 64), inner = width - left - 12;
    const x = (t) => left + (t / Math.max(model.end, 1)) * inner;
    const y = (v) => 8 + (1 - (v - least) / (most - least)) * (height - 8 - bottom);
    const summary = series.map((s) => {
      const sorted = s.points.map((p) => p[1]).sort((a, b) => a - b);
      return `${s.name[0].toUpperCase() + s.name.slice(1)}: ${counted(sorted.length, "value")}, median ${format(sorted[sorted.length >> 1])}, greatest ${format(sorted[sorted.length - 1])}`;
    }).join("; ");
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${summary}` });
    for (const value of ticks(least, most, 3)) {
      picture.append(
        svg("line", { class: "grid", x1: left, x2: width - 12, y1: y(value), y2: y(value) }),
        svg("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end", text: format(value) }));
    }
    for (const value of ticks(0, model.end / 1e6, Math.max(2, Math.floor(inner / 110)))) {
      picture.append(svg("text", { class: "tick", x: x(value * 1e6), y: height - 5, "text-anchor": "middle", text: `${Number(value.toPrecision(6))} s` }));
    }
    if (limit) {
      picture.append(svg("line", { class: "limit", x1: left, x2: width - 12, y1: y(limit), y2: y(limit) }),
        svg("text", { class: "tick", x: width - 14, y: y(limit) + 13, "text-anchor": "end", text: "buffers of the controller" }));
    }
    series.forEach((s, index) => {
      const points = thin(s.points, x), name = `series series-${index}`;
      let path = "";
      if (s.kind === "bars") {
        // The directions stand beside each other.
        const bin = (s.width / Math.max(model.end, 1)) * inner, wide = Math.max(0.7, (bin - 1) / series.length);
        for (const [t, v] of points) {
          path += `M${(x(t) - bin / 2 + index * wide).toFixed(1)} ${y(least).toFixed(1)}V${y(v).toFixed(1)}h${wide.toFixed(1)}V${y(least).toFixed(1)}z`;
        }
        picture.append(svg("path", { class: `${name} bars`, d: path }));
      } else if (s.kind === "steps") {
        for (const [t, v] of points) path += path ? `H${x(t).toFixed(1)}V${y(v).toFixed(1)}` : `M${x(t).toFixed(1)} ${y(0).toFixed(1)}V${y(v).toFixed(1)}`;
        picture.append(svg("path", { class: `${name} steps`, d: path }));
      } else {
        for (const [t, v] of points) path += `M${x(t).toFixed(1)} ${y(v).toFixed(1)}h0`;
        picture.append(svg("path", { class: `${name} dots`, d: path }));
      }
    });
    const hair = svg("line", { class: "hair", x1: 0, x2: 0, y1: 4, y2: height - bottom, visibility: "hidden" });
    picture.append(hair);
    const timeAt = (event) => {
      const box = picture.getBoundingClientRect();
      return Math.max(0, Math.min(1, (event.clientX - box.left - left) / inner)) * model.end;
    };
    picture.addEventListener("pointermove", (event) => {
      const t = timeAt(event);
      hair.setAttribute("x1", x(t));
      hair.setAttribute("x2", x(t));
      hair.setAttribute("visibility", "visible");
    });
    picture.addEventListener("pointerleave", () => hair.setAttribute("visibility", "hidden"));
    picture.addEventListener("click", (event) => {
      const t = timeAt(event);
      let best = -1, distance = Infinity;
      for (const s of series) {
        for (const point of s.points) {
          if (point[2] !== undefined && Math.abs(point[0] - t) < distance) { best = point[2]; distance = Math.abs(point[0] - t); }
        }
      }
      if (best < 0) for (let i = 0; i < model.count; i++) if (inLink(i) && Math.abs(model.times[i] - t) < distance) { best = i; distance = Math.abs(model.times[i] - t); }
      if (best >= 0) location.hash = `#frame-${model.frame(best)}`;
    });
    const legend = el("div", { class: "legend" });
    if (series.length > 1 || series[0].name) {
      series.forEach((s, index) => legend.append(el("span", { class: `key series-${index}`, text: s.name })));
      if (series.hidden) legend.append(el("span", { class: "quiet", text: `and ${series.hidden} more` }));
    }
    return el("figure", {}, el("figcaption", {},
      el("h2", { text: title }), el("span", { class: "quiet", text: unit }), legend), picture,
      el("p", { class: "quiet", text: `${about} ${summary}.` }));
  }

  function draw() {
    isStale = false;
    panel.replaceChildren();
    const link = sequence.link;
    panel.append(el("h1", { text: link < 0 ? "Timeline of everything" : `Timeline of ${model.connectionName(link)}` }));
    const buffers = model.data.buffers.length ? model.data.buffers[model.data.buffers.length - 2] : undefined;
    const bytes = (v) => (v >= 10000 ? `${(v / 1000).toFixed(v < 1e5 ? 1 : 0)} kB/s` : `${Math.round(v)} B/s`);
    const ms = (v) => (v >= 1000 ? `${(v / 1000).toFixed(1)} s` : `${Number(v.toPrecision(3))} ms`);
    const charts = [
      chart("Throughput", "octets of data packets, headers included", "Each bar is one part of the time.", throughput(), bytes, { least: 0 }),
      chart("Round trips", "from a request to its answer", "", roundTrips(), ms, { least: 0 }),
      chart("Signal strength", "RSSI of advertising reports", "", strength(), (v) => `${Math.round(v)} dBm`.replace("-", "−"), { span: 20 }),
      chart("Queue", "data packets that the controller holds for the air",
        "A packet leaves the queue when Number Of Completed Packets returns its credit.", queue(), (v) => String(Math.round(v)), { least: 0, limit: buffers }),
    ].filter(Boolean);
    panel.append(...charts);
    if (!charts.length) panel.append(el("p", { class: "hint", text: "The trace has nothing to draw here: no data packets, answers or advertising reports." }));
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...["Frame", "Connection", "What", "Value"].map((t) => el("th", { scope: "col", text: t })))));
    const body = el("tbody");
    let count = 0;
    model.data.connections.forEach((connection, index) => {
      if (link >= 0 && index !== link) return;
      for (let at = 0; at < connection.changes.length && count < 500; at += 3, count++) {
        body.append(el("tr", {}, el("td", {}, frameLink(connection.changes[at])), el("td", { text: model.connectionName(index) }),
          el("td", { text: model.string(connection.changes[at + 1]) }), el("td", { text: model.string(connection.changes[at + 2]) })));
      }
    });
    if (count) {
      table.append(body);
      panel.append(el("h2", { text: "Parameters over time" }), table);
    }
  }
  return {
    start() { panel = $("timeline"); new ResizeObserver(() => { if (!panel.hidden) draw(); }).observe($("views")); },
    show() { if (isStale) draw(); },
    invalidate() { isStale = true; if (panel && !panel.hidden) draw(); },
  };
})();
