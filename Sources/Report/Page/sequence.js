// The sequence diagram: a row for each packet, of which only those in sight exist.

const sequence = (() => {
  const height = 28;
  let shown = new Int32Array(0);
  let selected = -1;
  let link = -1;
  let words = [];
  let layers = new Set(Layers);
  let job = 0;
  let onSelect = () => {};
  let onFilter = () => {};
  const pool = new Map();
  let list, spacer, empty;

  // Whether a packet belongs to a diagram is decided by its connection: -1 shows all.
  function matches(i) {
    if (link >= 0 && model.link(i) !== link) return false;
    if (!layers.has(model.layer(i))) return false;
    if (!words.length) return true;
    const text = model.searchText(i);
    return words.every((word) => text.includes(word.text) || (word.octets && octetsInclude(i, word.octets)));
  }
  function octetsInclude(i, wanted) {
    const bytes = model.octetsOf(i), last = bytes.length - wanted.length;
    for (let at = 0; at <= last; at++) {
      let k = 0;
      while (k < wanted.length && bytes[at + k] === wanted[k]) k++;
      if (k === wanted.length) return true;
    }
    return false;
  }
  /** Filters in slices, so that the page never stalls. */
  function filter() {
    const mine = ++job, found = [];
    let i = 0;
    const slice = () => {
      if (mine !== job) return;
      const until = performance.now() + 12;
      while (i < model.count) {
        if (matches(i)) found.push(i);
        i++;
        if ((i & 63) === 0 && performance.now() > until) break;
      }
      if (i < model.count) return setTimeout(slice, 0);
      shown = Int32Array.from(found);
      refresh();
      onFilter(shown.length);
    };
    slice();
  }
  function refresh() {
    for (const row of pool.values()) row.remove();
    pool.clear();
    spacer.style.height = `${shown.length * height}px`;
    empty.hidden = shown.length > 0;
    const at = indexOf(selected);
    if (at >= 0) reveal(at, true);
    draw();
  }
  /** The place of a record among those shown, or of the next one: -1 if there is none. */
  function indexOf(i) {
    let low = 0, high = shown.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (shown[middle] === i) return middle;
      if (shown[middle] < i) low = middle + 1; else high = middle - 1;
    }
    return -1;
  }

  function draw() {
    const top = list.scrollTop, first = Math.max(0, Math.floor(top / height) - 6);
    const end = Math.min(shown.length, Math.ceil((top + list.clientHeight) / height) + 6);
    for (const [at, row] of pool) {
      if (at < first || at >= end) {
        row.remove();
        pool.delete(at);
      }
    }
    const fragment = document.createDocumentFragment();
    for (let at = first; at < end; at++) {
      if (pool.has(at)) continue;
      const row = make(at);
      pool.set(at, row);
      fragment.append(row);
    }
    spacer.append(fragment);
  }

  const paths = { command: "h-c", event: "c-h", sent: "h-p", received: "p-h", heard: "p-h", air: "air", note: "note" };
  function path(i) {
    const layer = model.layer(i), kind = model.kind(i), direction = model.direction(i);
    if (layer === "note") return paths.note;
    if (kind === 6) return paths.air;
    if (layer === "hci" && kind === 4) return /ADVERTISING_REPORT|Advertising_Report/.test(model.name(i)) ? paths.heard : paths.event;
    if (kind === 1) return paths.command;
    if (kind === 4) return paths.event;
    return direction === 1 ? paths.sent : direction === 2 ? paths.received : paths.air;
  }
  const spoken = {
    "h-c": "host to controller", "c-h": "controller to host", "h-p": "host to peer", "p-h": "peer to host",
    air: "on the air", note: "note",
  };
  function make(at) {
    const i = shown[at], layer = model.layer(i), way = path(i);
    const fields = model.fields(i), meaning = model.meaning(i), problem = model.problems.get(i);
    const found = model.findings.get(i), divergence = model.divergences.get(i);
    const row = el("div", {
      class: `row ${layer}${i === selected ? " selected" : ""}`, role: "option", id: `row-${model.frame(i)}`,
      "aria-selected": i === selected ? "true" : "false", "aria-setsize": shown.length, "aria-posinset": at + 1,
      "aria-label": [
        `Frame ${model.frame(i)}`, clock(i), spoken[way], model.name(i), meaning, fields,
        problem ? "Problem: " + model.string(problem) : "", found ? counted(found.length, "finding") : "",
        divergence ? "differs from our host" : "",
      ].filter(Boolean).join(", "),
    });
    row.dataset.at = at;
    row.style.transform = `translateY(${at * height}px)`;
    const marks = el("span", { class: "marks" });
    if (found) marks.append(el("i", { class: "mark finding", title: "breaks a rule" }));
    if (problem) marks.append(el("i", { class: "mark problem", title: model.string(problem) }));
    if (divergence) marks.append(el("i", { class: "mark divergence", title: "our host sends something else" }));
    row.append(
      marks, el("span", { class: "number", text: model.frame(i) }), el("span", { class: "time", text: clock(i) }),
      el("span", { class: `lanes ${way}` }, el("i", { class: "arrow" })),
      el("span", { class: "what" }, el("b", { text: model.name(i) || "(nothing)" }),
        meaning ? el("span", { class: "meaning", text: meaning }) : null,
        fields ? el("span", { class: "fields", text: fields }) : null));
    return row;
  }
  function clock(i) { return (model.times[i] / 1e6).toFixed(model.end > 1e10 ? 3 : 6); }

  function reveal(at, isCentred) {
    const top = at * height, bottom = top + height;
    if (isCentred && (top < list.scrollTop + height || bottom > list.scrollTop + list.clientHeight - height)) {
      list.scrollTop = Math.max(0, top - list.clientHeight / 2 + height);
    } else if (top < list.scrollTop) list.scrollTop = top;
    else if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight;
  }
  function select(i, { isCentred = false, isSilent = false } = {}) {
    if (i < 0 || i >= model.count) return;
    selected = i;
    let at = indexOf(i);
    if (at < 0) { // a link leads to a packet that the filter hides
      link = -1;
      words = [];
      layers = new Set(Layers);
      shown = Int32Array.from({ length: model.count }, (_, k) => k);
      job++;
      onFilter(shown.length, true);
      refresh();
      at = i;
    }
    reveal(at, isCentred);
    draw();
    for (const row of pool.values()) {
      const isIt = shown[row.dataset.at] === i;
      row.classList.toggle("selected", isIt);
      row.setAttribute("aria-selected", isIt ? "true" : "false");
    }
    list.setAttribute("aria-activedescendant", `row-${model.frame(i)}`);
    if (!isSilent) onSelect(i);
  }
  function move(step) {
    if (!shown.length) return;
    const at = selected < 0 ? -1 : indexOf(selected);
    const next = Math.max(0, Math.min(shown.length - 1, at < 0 ? 0 : at + step));
    select(shown[next]);
  }
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(list.clientHeight / height) - 1);
    const steps = {
      ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -shown.length, End: shown.length,
    };
    if (steps[event.key] !== undefined) move(steps[event.key]);
    else if (event.key === "Enter" && selected >= 0) detail.focus();
    else return;
    event.preventDefault();
  }

  return {
    start(options) {
      list = $("list");
      spacer = $("spacer");
      empty = $("empty");
      onSelect = options.onSelect;
      onFilter = options.onFilter;
      shown = Int32Array.from({ length: model.count }, (_, k) => k);
      let isDue = false;
      list.addEventListener("scroll", () => {
        if (isDue) return;
        isDue = true;
        requestAnimationFrame(() => { isDue = false; draw(); });
      }, { passive: true });
      new ResizeObserver(draw).observe(list);
      list.addEventListener("click", (event) => {
        const row = event.target.closest(".row");
        if (row) select(shown[row.dataset.at]);
      });
      list.addEventListener("keydown", key);
      refresh();
      onFilter(shown.length);
    },
    select, move, filter,
    get selected() { return selected; },
    get shown() { return shown; },
    get link() { return link; },
    set link(value) { link = value; filter(); },
    get layers() { return layers; },
    toggle(layer) { if (!layers.delete(layer)) layers.add(layer); filter(); },
    search(text) {
      words = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
        const digits = word.replace(/^0x/, "");
        const isOctets = /^([0-9a-f]{2})+$/.test(digits);
        return { text: word, octets: isOctets ? digits.match(/../g).map((pair) => parseInt(pair, 16)) : null };
      });
      filter();
    },
    make,
    focus() { list.focus({ preventScroll: true }); },
  };
})();
