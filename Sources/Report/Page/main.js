// The page: its parts, keys, links and appearance.

(() => {
  const { data } = model;
  const views = ["sequence", "timeline", "attributes", "pairing", "findings"];
  const drawers = { attributes: attributesView, pairing: pairingView, findings: findingsView };
  let view = "sequence";

  // Appearance: the system's, until the reader chooses.
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  function isDark() { return root.dataset.theme ? root.dataset.theme === "dark" : system.matches; }
  function appearance(next) {
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    try { if (next) localStorage.setItem("bindrune-theme", next); } catch { /* a file may have no storage */ }
    $("theme").setAttribute("aria-pressed", isDark() ? "true" : "false");
    $("theme").textContent = isDark() ? "Light" : "Dark";
  }
  let stored = null;
  try { stored = localStorage.getItem("bindrune-theme"); } catch { /* as above */ }
  appearance(stored === "dark" || stored === "light" ? stored : null);
  $("theme").addEventListener("click", () => appearance(isDark() ? "light" : "dark"));
  system.addEventListener("change", () => { if (!root.dataset.theme) appearance(null); });

  $("title").textContent = data.file;
  $("facts").textContent = model.count
    ? `${counted(model.count, "record")} · ${duration(model.end)} · ${new Date(model.start / 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`
    : "The trace has no records.";
  // What happened: connections with troubles first, so that the cause is on the first screen.
  const told = [...data.stories].sort((a, b) => (b.length > 2) - (a.length > 2)), mostTold = 40;
  for (const [name, sentence, ...troubles] of told.slice(0, mostTold)) {
    if (name) $("story").append(el("p", {}, el("b", { text: name }), ` ${sentence}`));
    for (let at = 0; at < troubles.length; at += 2) {
      $("story").append(el("p", { class: "trouble" }, frameLink(model.place(Number(troubles[at])), `#${troubles[at]}`), ` ${troubles[at + 1]}`));
    }
  }
  const left = Math.max(0, told.length - mostTold) + data.untold;
  if (left) $("story").append(el("p", { class: "quiet", text: counted(left, "further connection") }));
  $("story").hidden = !told.length;
  for (const warning of data.warnings) $("warnings").append(el("p", { class: "callout problem", text: warning }));
  $("foot").textContent = `${data.tool} trace report`;

  // Connections.
  const side = $("connections");
  function connection(index) {
    const c = index < 0 ? null : data.connections[index];
    const facts = c ? [
      c.air ? "" : "0x" + hex(c.handle, 4), c.role ? `host is ${Roles[c.role]}` : "", model.string(c.name) ? model.string(c.peer) : "",
    ].filter(Boolean).join(" · ") : counted(data.connections.length, "connection");
    const start = c && c.first >= 0 ? model.times[c.first] : 0, end = c && c.last >= 0 ? model.times[c.last] : model.end;
    return el("button", { type: "button", class: "connection", "aria-pressed": "false", "data-link": index, onclick: () => choose(index) },
      el("b", { text: c ? model.connectionName(index) : "Everything" }), el("span", { class: "quiet", text: facts }),
      el("span", { class: "quiet", text: c ? `${counted(model.packets[index], "packet")} · ${duration(Math.max(0, end - start))}` : counted(model.count, "packet") }));
  }
  side.append(connection(-1), ...data.connections.map((_, index) => connection(index)));
  function choose(index) {
    mark(index);
    sequence.link = index;
    timeline.invalidate();
    if (view !== "sequence" && view !== "timeline") show(view);
  }
  function mark(index) {
    for (const button of side.children) button.setAttribute("aria-pressed", Number(button.dataset.link) === index ? "true" : "false");
  }

  // Layers.
  const counts = new Map();
  for (let i = 0; i < model.count; i++) counts.set(model.layer(i), (counts.get(model.layer(i)) || 0) + 1);
  for (const layer of Layers) {
    if (!counts.has(layer)) continue;
    const chip = el("button", { type: "button", class: `chip ${layer}`, "aria-pressed": "true", "data-layer": layer },
      LayerNames[layer], el("span", { class: "quiet", text: grouped(counts.get(layer)) }));
    chip.addEventListener("click", () => {
      sequence.toggle(layer);
      chip.setAttribute("aria-pressed", sequence.layers.has(layer) ? "true" : "false");
    });
    $("layers").append(chip);
  }

  // Views.
  function show(name) {
    view = name;
    for (const each of views) {
      $(each).hidden = each !== name;
      const tab = $(`tab-${each}`);
      tab.setAttribute("aria-selected", each === name ? "true" : "false");
      tab.tabIndex = each === name ? 0 : -1;
    }
    document.body.dataset.view = name;
    if (drawers[name]) {
      $(name).replaceChildren();
      drawers[name].draw($(name));
    }
    if (name === "timeline") timeline.show();
    if (name === "sequence" && sequence.selected >= 0) sequence.select(sequence.selected, { isSilent: true });
  }
  for (const name of views) {
    $(`tab-${name}`).addEventListener("click", () => { history.replaceState(null, "", name === "sequence" ? "#" : `#${name}`); show(name); });
  }
  $("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = views[(views.indexOf(view) + step + views.length) % views.length];
    $(`tab-${next}`).click();
    $(`tab-${next}`).focus();
    event.preventDefault();
  });
  const badge = (name, count) => { if (count) $(`tab-${name}`).append(el("span", { class: "badge", text: grouped(count) })); };
  badge("pairing", data.pairings.length);
  badge("findings", data.findings.length + (data.replay.count || 0));
  badge("attributes", data.servers.reduce((sum, s) => sum + s.attributes.length, 0));

  // Links: #frame-123, or the name of a view.
  function follow() {
    const hash = location.hash.slice(1), frame = /^frame-(\d+)$/.exec(hash);
    if (frame) {
      const i = model.place(Number(frame[1]));
      if (i < 0 || i >= model.count) {
        $("status").textContent = `Frame ${frame[1]} is not in this page: it has frames ${data.first} to ${data.first + model.count - 1}.`;
        return show("sequence");
      }
      show("sequence");
      sequence.select(i, { isCentred: true, isSilent: true });
      detail.show(i);
    } else show(views.includes(hash) ? hash : "sequence");
  }
  addEventListener("hashchange", follow);

  // Search.
  const search = $("search");
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      const frame = /^#(\d+)$/.exec(search.value.trim());
      if (frame) return sequence.search("");
      if (view !== "sequence") $("tab-sequence").click();
      sequence.search(search.value);
    }, 120);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { search.value = ""; sequence.search(""); sequence.focus(); }
    if (event.key === "Enter") {
      const frame = /^#(\d+)$/.exec(search.value.trim());
      if (frame) location.hash = `#frame-${frame[1]}`;
      else if (sequence.shown.length && !sequence.shown.includes(sequence.selected)) sequence.select(sequence.shown[0]);
      sequence.focus();
      event.preventDefault();
    }
  });

  // Keys.
  const help = $("help");
  $("keys").addEventListener("click", () => help.showModal());
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.matches("input, textarea")) return;
    if (event.key === "/") { search.focus(); search.select(); }
    else if (event.key === "?") help.showModal();
    else if (event.key === "t") $("theme").click();
    else if (/^[1-5]$/.test(event.key)) $(`tab-${views[event.key - 1]}`).click();
    else if (event.key === "Escape" && $("detail").contains(document.activeElement)) sequence.focus();
    else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && document.activeElement === document.body && view === "sequence") {
      sequence.focus();
      sequence.move(event.key === "ArrowDown" ? 1 : -1);
    } else return;
    event.preventDefault();
  });

  // Paper shows the filtered packets, up to a limit: the list in sight has only the rows in sight.
  const paper = $("paper"), mostPrinted = 2000;
  addEventListener("beforeprint", () => {
    const rows = Array.from(sequence.shown.subarray(0, mostPrinted), (i) => el("tr", {}, el("td", { text: model.frame(i) }),
      el("td", { text: (model.times[i] / 1e6).toFixed(6) }), el("td", { text: ["", "→", "←"][model.direction(i)] }),
      el("td", { text: [model.name(i), model.meaning(i)].filter(Boolean).join(" — ") }), el("td", { text: model.fields(i) })));
    paper.replaceChildren(
      el("table", {}, el("thead", {}, el("tr", {}, ...["Frame", "Seconds", "", "Packet", "Fields"].map((t) => el("th", { text: t })))), el("tbody", {}, ...rows)),
      sequence.shown.length > mostPrinted ? el("p", { text: `The first ${grouped(mostPrinted)} of ${counted(sequence.shown.length, "packet")}; a search or a connection chooses others.` }) : "");
  });
  addEventListener("afterprint", () => paper.replaceChildren());

  detail.start();
  timeline.start();
  sequence.start({
    onSelect(i) {
      detail.show(i);
      history.replaceState(null, "", `#frame-${model.frame(i)}`);
    },
    onFilter(count, isReset) {
      if (isReset) {
        search.value = "";
        mark(-1);
        for (const chip of $("layers").children) chip.setAttribute("aria-pressed", "true");
      }
      $("status").textContent = count === model.count ? counted(count, "packet") : `${grouped(count)} of ${counted(model.count, "packet")}`;
    },
  });
  mark(-1);
  $("empty").textContent = model.count ? "No packet matches." : "The trace has no records.";
  follow();
  document.body.dataset.ready = Math.round(performance.now());
})();
