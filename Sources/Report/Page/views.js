// Attributes, pairings and findings.

const attributesView = (() => {
  const text = (place) => model.string(place);
  function valueOctets(values, at) {
    const bytes = model.octetsOf(values[at]);
    return bytes.subarray(values[at + 1], values[at + 1] + values[at + 2]);
  }
  // Values hold record numbers; those outside of the page were not collected.
  function history(values) {
    const list = el("ol", { class: "history" }), step = 100;
    let shown = 0;
    const more = el("button", { type: "button", class: "more", text: "Show more" });
    const add = () => {
      const end = Math.min(values.length, shown + 4 * step);
      for (let at = shown; at < end; at += 4) {
        const octets = valueOctets(values, at), ascii = asciiText(octets);
        list.append(el("li", {}, frameLink(values[at]), el("span", { class: "quiet", text: `${(model.times[values[at]] / 1e6).toFixed(3)} s` }),
          el("span", { text: Ways[values[at + 3]] }), el("code", { text: octets.length ? hexText(octets, 40) : "empty" }),
          ascii ? el("q", { text: ascii }) : null));
      }
      shown = end;
      more.hidden = shown >= values.length;
      more.textContent = `Show more of ${counted(values.length / 4, "value")}`;
    };
    more.addEventListener("click", add);
    add();
    return el("div", {}, list, more);
  }
  function attribute([handle, type, typeName, uuid, uuidName, other, properties, values], depth) {
    const title = text(typeName) || (type ? text(type) : "Type not in the trace");
    const isDeclaration = uuid > 0;
    const name = isDeclaration ? text(uuidName) || text(uuid) : title;
    const line = [
      el("span", { class: "handle", text: "0x" + hex(handle, 4) }),
      el("span", { class: "name" }, el("b", { text: name }), el("span", { class: "quiet", text: [
        isDeclaration ? title : "", isDeclaration && text(uuidName) ? text(uuid) : "",
        !isDeclaration && text(typeName) ? text(type) : "", text(properties),
      ].filter(Boolean).join(" · ") })),
    ];
    if (!values.length) return el("div", { class: `attribute depth-${depth}` }, ...line);
    const last = valueOctets(values, values.length - 4), ascii = asciiText(last);
    const details = el("details", { class: `attribute depth-${depth}` }, el("summary", {}, ...line,
      el("code", { text: ascii ? `"${ascii}"` : hexText(last, 12) || "empty" }),
      el("span", { class: "count", text: counted(values.length / 4, "value") })));
    details.addEventListener("toggle", () => { if (details.open && !details.dataset.isFull) { details.dataset.isFull = 1; details.append(history(values)); } });
    return details;
  }
  function depthOf(server) {
    let service = 0, characteristic = 0;
    return server.attributes.map((a) => {
      const [handle, type, , , , other] = a, kind = type ? text(type) : "";
      if (kind === "2800" || kind === "2801") { service = other; characteristic = 0; return 0; }
      if (kind === "2803") { characteristic = other; return 1; }
      if (kind === "2802") return 1;
      if (handle === characteristic) return 2;
      return characteristic && handle <= service ? 2 : handle <= service ? 1 : 0;
    });
  }
  return {
    draw(panel) {
      panel.append(el("h1", { text: "Attributes" }));
      const servers = model.data.servers.filter((s) => sequence.link < 0 || s.link === sequence.link || !s.host
        && text(s.owner) && text(s.owner) === text(model.data.connections[sequence.link].peer));
      if (!servers.length) panel.append(el("p", { class: "hint", text: "The trace shows no attributes here: nobody discovered, read or wrote any." }));
      for (const server of servers) {
        const depths = depthOf(server), owner = text(server.owner);
        const box = el("section", { class: "card tree" }, el("h2", { text: server.host ? "The recording host's server" : `The server of ${owner ? model.connectionName(server.link) : "the peer"}` }),
          el("p", { class: "quiet", text: `${counted(server.attributes.length, "attribute")}, as the clients of the trace have seen them. A row with values opens.` }));
        server.attributes.forEach((a, index) => box.append(attribute(a, depths[index])));
        panel.append(box);
      }
    },
  };
})();

const pairingView = {
  draw(panel) {
    const text = (place) => model.string(place);
    panel.append(el("h1", { text: "Pairing" }));
    const stories = model.data.pairings.filter((p) => sequence.link < 0 || p.link === sequence.link);
    if (!stories.length) panel.append(el("p", { class: "hint", text: "The trace shows no pairing and no encryption here." }));
    const sides = ["", "Initiator", "Responder"];
    for (const story of stories) {
      const card = el("section", { class: "card story" },
        el("p", { class: "quiet", text: model.connectionName(story.link) }), el("h2", { text: text(story.title) }),
        el("p", { class: "lead", text: text(story.reason) }));
      if (text(story.failure)) card.append(el("p", { class: "callout problem", text: `The pairing failed: ${text(story.failure)}.` }));
      if (text(story.listener)) {
        card.append(el("div", { class: "callout listener" }, el("b", { text: "What could a listener know?" }), el("p", { text: text(story.listener) }),
          el("p", { class: "quiet", text: text(story.section) })));
      }
      const steps = el("ol", { class: "steps" });
      for (const [record, side, words] of story.steps) {
        steps.append(el("li", { class: ["both", "initiator", "responder"][side] },
          frameLink(record), el("p", {}, side ? el("b", { text: sides[side] + " " }) : null, text(words))));
      }
      card.append(steps);
      if (story.keys.length) {
        card.append(el("h3", { text: "Keys in this file" }), el("p", { class: "quiet", text: "They travel encrypted over the air, but a host's trace has them in the clear. Anybody who has this page has them." }));
        card.append(el("ul", { class: "keys" }, ...story.keys.map(([record, side, words]) => el("li", {}, frameLink(record), el("span", { text: `${sides[side]}'s ${text(words)}` })))));
      }
      panel.append(card);
    }
  },
};

const findingsView = {
  draw(panel) {
    const text = (place) => model.string(place), { data } = model;
    panel.append(el("h1", { text: "Findings" }));
    const mine = data.findings.filter((f) => sequence.link < 0 || model.link(f[0]) === sequence.link);
    panel.append(el("p", { class: "lead", text: mine.length
      ? `${counted(mine.length, "place")} where a packet breaks a rule of the Specification. ${data.judged} of ${data.ruleCount} rules could be judged.`
      : `No packet breaks a rule of the Specification here. ${data.judged} of ${data.ruleCount} rules could be judged; what a trace does not show breaks none.` }));
    if (data.findingCount > data.findings.length) panel.append(el("p", { class: "quiet", text: `The whole reading found ${grouped(data.findingCount)}; the others are outside of this page.` }));
    data.rules.forEach(([id, section, sentence], rule) => {
      const list = mine.filter((f) => f[1] === rule);
      if (!list.length) return;
      const items = el("ul", { class: "places" });
      for (const [i, , party, seen, allowed] of list.slice(0, 100)) {
        items.append(el("li", {}, frameLink(i), el("span", { class: "party", text: text(party) }), el("span", { text: `${text(seen)}; allowed: ${text(allowed)}` })));
      }
      if (list.length > 100) items.append(el("li", { class: "quiet", text: `and ${grouped(list.length - 100)} more` }));
      panel.append(el("section", { class: "card" }, el("h2", { text: sentence }), el("p", { class: "quiet", text: `${id} · ${section} · ${counted(list.length, "time")}` }), items));
    });
    const replay = data.replay;
    panel.append(el("h1", { text: "Replay" }));
    if (replay.problem) return panel.append(el("p", { class: "hint", text: replay.problem }));
    panel.append(el("p", { class: "lead", text: `Our host, put in the place of the recorded one, sent ${grouped(replay.equal)} of ${grouped(replay.compared)} PDUs as recorded; ${counted(replay.count, "divergence")}.` }));
    for (const divergence of replay.divergences) {
      const side = (title, lines) => el("div", {}, el("h3", { text: title }), ...lines.map((line) => el("code", { text: line })));
      panel.append(el("section", { class: "card" }, el("p", {}, frameLink(divergence.at, `#${divergence.number}`), el("span", { class: "quiet", text: ` ${divergence.stream}` })), el("p", { text: divergence.reason }),
        el("div", { class: "sides" }, side("Recorded", divergence.recorded), side("Ours", divergence.ours))));
    }
    if (replay.freedoms.length) {
      panel.append(el("section", { class: "card" }, el("h2", { text: "Where correct hosts may differ" }),
        el("dl", {}, ...replay.freedoms.flatMap(([name, meaning, count]) => [el("dt", { text: `${name} · ${count}` }), el("dd", { text: meaning })]))));
    }
  },
};
