// One packet, layer by layer: fields and octets highlight each other.

const detail = (() => {
  let panel, current = -1, focused = -1, fields = [], cells = [];

  function show(i) {
    current = i;
    panel.replaceChildren();
    cells = [];
    fields = [];
    focused = -1;
    if (i < 0) {
      panel.append(el("p", { class: "hint", text: "Choose a packet to see each octet, its field and its meaning." }));
      return;
    }
    head(i);
    notes(i);
    const octets = octetGrid(i);
    panel.append(octets, byteMap(i));
  }

  function head(i) {
    const layer = model.layer(i), link = model.link(i), direction = model.direction(i);
    panel.append(
      el("header", { class: layer },
        el("div", { class: "crumbs" },
          el("a", { class: "frame", href: `#frame-${model.frame(i)}`, text: `Frame ${model.frame(i)}` }),
          el("span", { text: `${(model.times[i] / 1e6).toFixed(6)} s` }),
          el("span", { text: new Date((model.start + model.times[i]) / 1000).toISOString().replace("T", " ").replace("Z", " UTC") })),
        el("h2", { text: model.name(i) }),
        model.meaning(i) ? el("p", { class: "meaning", text: model.meaning(i) }) : null,
        el("p", { class: "quiet", text: [
          ["Direction not recorded", "From the host", "To the host"][direction],
          link >= 0 ? model.connectionName(link) : "", model.adapter(i) ? `adapter ${model.adapter(i)}` : "",
          counted(model.octetsOf(i).length, "octet"),
        ].filter(Boolean).join(" · ") })));
  }
  function notes(i) {
    const box = el("div", { class: "notes" });
    const request = model.request(i), answer = model.answeredBy.get(i), problem = model.problems.get(i);
    if (request >= 0) {
      box.append(el("p", {}, "Answers ", frameLink(request), ` after ${duration(model.times[i] - model.times[request])}`));
    }
    if (answer !== undefined) {
      box.append(el("p", {}, "Answered by ", frameLink(answer), ` after ${duration(model.times[answer] - model.times[i])}`));
    }
    if (problem) box.append(el("p", { class: "callout problem", text: model.string(problem) }));
    for (const index of model.findings.get(i) || []) {
      const [, rule, party, seen, allowed] = model.data.findings[index], [id, section, sentence] = model.data.rules[rule];
      box.append(el("div", { class: "callout finding" },
        el("b", { text: sentence }), el("p", { text: `The ${model.string(party)} sent: ${model.string(seen)}. Allowed: ${model.string(allowed)}.` }),
        el("p", { class: "quiet", text: `${id} · ${section}` })));
    }
    const divergence = model.divergences.get(i);
    if (divergence) {
      box.append(el("div", { class: "callout divergence" }, el("b", { text: "Our host sends something else here." }),
        el("p", {}, el("a", { href: "#findings", text: "Compare the two" }))));
    }
    if (box.childElementCount) panel.append(box);
  }

  /** The octets, sixteen a line. */
  function octetGrid(i) {
    const bytes = model.octetsOf(i), split = model.splits.get(i);
    const limit = Math.min(bytes.length, 2048);
    const box = el("div", { class: "octets", "aria-hidden": "true" });
    for (let at = 0; at < limit; at++) {
      if (at === split) {
        box.append(el("p", { class: "quiet", text: "The frame, joined from its fragments" }));
      }
      const cell = el("span", { class: "octet", text: HexOctets[bytes[at]] });
      cell.dataset.at = at;
      cells.push(cell);
      box.append(cell);
    }
    if (bytes.length > limit) box.append(el("p", { class: "quiet", text: `and ${counted(bytes.length - limit, "further octet")}` }));
    box.addEventListener("mouseover", (event) => {
      if (event.target.dataset.at !== undefined) light(fieldAt(Number(event.target.dataset.at)), false);
    });
    box.addEventListener("mouseleave", () => light(focused, false));
    box.addEventListener("click", (event) => {
      if (event.target.dataset.at !== undefined) move(fieldAt(Number(event.target.dataset.at)));
    });
    return box;
  }
  function fieldAt(octet) {
    return fields.findIndex(({ row }) => row.kind !== "flag" && row.width > 0 && octet >= row.bit >> 3 && octet < (row.bit + row.width + 7) >> 3);
  }

  function byteMap(i) {
    const bytes = model.octetsOf(i), map = el("div", { class: "map", role: "tree", "aria-label": "Layers and fields" });
    let group = map, layer = 0, rows = model.rows(i);
    const isLong = rows.length > 1200;
    if (isLong) rows = rows.slice(0, 1200);
    for (const row of rows) {
      if (row.kind === "layer") {
        layer = (layer + 1) % 6;
        group = el("div", { role: "group", class: `layer layer-${layer}` });
        map.append(el("div", { class: `title layer-${layer}`, role: "treeitem", "aria-expanded": "true", "aria-label": `${row.label}, ${row.text}` },
          el("b", { text: row.label }), el("span", { class: "section", text: row.text })), group);
        continue;
      }
      if (row.kind === "entry") {
        group.append(el("div", { class: "entry", role: "treeitem", text: row.label.replaceAll("_", " ") }));
        continue;
      }
      if (row.kind === "problem") {
        group.append(el("div", { class: "callout problem", role: "treeitem", text: row.text }));
        continue;
      }
      const place = fields.length, isBits = row.kind === "bits" || row.kind === "flag";
      const first = row.bit >> 3, end = (row.bit + row.width + 7) >> 3;
      const shownOctets = isBits ? bits(bytes, row) : hexText(bytes.subarray(first, end), 8);
      const item = el("div", {
        class: `field ${row.kind}`, role: "treeitem", tabindex: "-1",
        "aria-label": `${row.label || "octets"}: ${row.text}; ${isBits ? "bits" : "octets"} ${shownOctets}, at octet ${first}`,
        title: row.text,
      },
        el("span", { class: "place", text: row.kind === "flag" ? "" : first }),
        el("span", { class: "raw", text: shownOctets }),
        el("span", { class: "words" }, el("span", { class: "label", text: row.label.replaceAll("_", " ") }),
          el("span", { class: "text", text: row.text })));
      item.dataset.field = place;
      fields.push({ row, item, layer });
      group.append(item);
      for (let at = first; at < end && at < cells.length && row.kind !== "flag"; at++) cells[at].classList.add(`layer-${layer}`);
    }
    if (isLong) map.append(el("p", { class: "quiet", text: "The packet has further fields; trace show prints them." }));
    if (fields.length) fields[0].item.tabIndex = 0;
    map.addEventListener("mouseover", (event) => {
      const item = event.target.closest(".field");
      if (item) light(Number(item.dataset.field), false);
    });
    map.addEventListener("mouseleave", () => light(focused, false));
    map.addEventListener("click", (event) => {
      const item = event.target.closest(".field");
      if (item) move(Number(item.dataset.field));
    });
    map.addEventListener("focusin", (event) => {
      const item = event.target.closest(".field");
      if (item) { focused = Number(item.dataset.field); light(focused, false); }
    });
    map.addEventListener("keydown", (event) => {
      const steps = { ArrowDown: 1, ArrowUp: -1, Home: -fields.length, End: fields.length };
      if (steps[event.key] === undefined) return;
      move(Math.max(0, Math.min(fields.length - 1, Math.max(0, focused) + steps[event.key])));
      event.preventDefault();
      event.stopPropagation();
    });
    return map;
  }
  /** `.... 0010`: the row's bits among the others of their octets, the most significant first. */
  function bits(bytes, row) {
    const first = row.bit >> 3, end = (row.bit + row.width + 7) >> 3;
    let text = "";
    for (let bit = end * 8 - 1; bit >= first * 8; bit--) {
      const isInside = bit >= row.bit && bit < row.bit + row.width;
      text += isInside ? (bytes[bit >> 3] >> (bit & 7)) & 1 : "·";
      if (bit % 4 === 0 && bit !== first * 8) text += " ";
    }
    return text;
  }
  function light(place) {
    for (const cell of panel.querySelectorAll(".octet.lit")) cell.classList.remove("lit");
    for (const item of panel.querySelectorAll(".field.lit")) item.classList.remove("lit");
    if (place < 0 || !fields[place]) return;
    const { row, item } = fields[place];
    item.classList.add("lit");
    for (let at = row.bit >> 3; at < (row.bit + row.width + 7) >> 3; at++) if (cells[at]) cells[at].classList.add("lit");
  }
  function move(place) {
    if (!fields[place]) return;
    if (fields[focused]) fields[focused].item.tabIndex = -1;
    focused = place;
    fields[place].item.tabIndex = 0;
    fields[place].item.focus();
    fields[place].item.scrollIntoView({ block: "nearest" });
    light(place);
  }

  return {
    start() { panel = $("detail"); show(-1); },
    show,
    focus() { if (fields.length) move(Math.max(0, focused)); else panel.focus(); },
    get current() { return current; },
  };
})();
