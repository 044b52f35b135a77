/* The list of commits: only the rows in sight are elements. Focus stays on the list; its active entry moves. */
class GraphView {
  constructor(graphs) {
    this.graphs = graphs;
    this.list = byId("graph-list");
    this.rowsBox = this.list.firstElementChild;
    this.lanes = byId("graph-lanes");
    this.overview = new Overview(byId("graph-overview"));
    this.hint = byId("graph-hint");
    this.why = byId("graph-why");
    this.chosen = -1;
    this.listen();
    changed.push(() => { this.colours = palette(); if (this.graph) { this.drawAll(); } });
    new ResizeObserver(() => { if (this.graph) this.drawAll(); }).observe(this.list);
  }

  listen() {
    const soon = () => { this.asked ??= requestAnimationFrame(() => { this.asked = null; this.drawRows(); }); };
    this.list.addEventListener("scroll", soon, { passive: true });
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.choose(Number(row.dataset.row), false);
    });
    this.list.addEventListener("mousemove", (event) => {
      const row = event.target.closest(".row");
      this.showHint(row ? Number(row.dataset.row) : -1, event);
    });
    const picture = this.overview.canvas;
    const under = (event) => this.overview.rowAt(this.graph, event.offsetX, event.offsetY);
    picture.addEventListener("mousemove", (event) => this.showHint(under(event), event));
    picture.addEventListener("click", (event) => this.choose(under(event), true));
    for (const box of [this.list, picture]) box.addEventListener("mouseleave", () => this.showHint(-1));
    byId("graph-tools").addEventListener("submit", (event) => event.preventDefault());
    byId("graph-tools").addEventListener("input", (event) => {
      if (event.target.id === "graph-repository") this.open(Number(event.target.value));
      else this.refilter();
    });
    byId("graph-next").addEventListener("click", () => this.jump(1));
    byId("graph-previous").addEventListener("click", () => this.jump(-1));
    byId("graph-reasons").addEventListener("keydown", (event) => { if (event.key === "Escape") this.list.focus(); });
  }

  open(number) {
    this.graph = this.graphs(number);
    this.chosen = -1;
    this.list.scrollTop = 0;
    this.why.replaceChildren(make("p", { className: "dim", textContent: "Select a commit." }));
    const words = `${counted(this.graph.given.commits, "commit")} of ${plain(this.graph.given.key)}, by time and verdict; the list below shows each one`;
    this.overview.canvas.setAttribute("aria-label", words);
    this.refilter();
  }

  refilter() {
    const graph = this.graph;
    graph.moment = Number(byId("graph-moment").value);
    const ticked = document.querySelectorAll('#graph-tools input[name="verdict"]:checked');
    this.shown = graph.filter(new Set([...ticked].map((box) => box.value)), byId("graph-find").value);
    this.place = new Int32Array(graph.length).fill(-1);
    this.shown.forEach((row, n) => { this.place[row] = n; });
    this.nearest = new Int32Array(graph.length).fill(-1);
    for (let row = graph.length - 1; row >= 0; row -= 1) {
      const parent = graph.rows.parents[row][0] ?? -1;
      this.nearest[row] = this.place[row] >= 0 ? row : parent >= 0 ? this.nearest[parent] : -1;
    }
    byId("graph-found").textContent = this.shown.length === graph.length
      ? `${counted(graph.length, "commit")}` : `${counted(this.shown.length, "commit")} of ${graph.length.toLocaleString("en")}`;
    this.rowsBox.style.height = `${this.shown.length * ROW}px`;
    const changes = this.shown.some((row) => CHANGES.has(graph.verdict(row)));
    byId("graph-next").disabled = byId("graph-previous").disabled = !changes;
    if (this.chosen >= 0) this.explain();
    this.drawAll();
  }

  drawAll() {
    this.overview.draw(this.graph, this.colours, this.place);
    this.drawRows();
  }

  drawRows() {
    const { scrollTop, clientHeight } = this.list;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - 4);
    const last = Math.min(this.shown.length - 1, Math.ceil((scrollTop + clientHeight) / ROW) + 4);
    const indent = drawLanes(this.lanes, this.graph, this, scrollTop, clientHeight, this.colours);
    const wanted = [];
    for (let n = first; n <= last; n += 1) wanted.push(n);
    const active = this.chosen >= 0 ? this.place[this.chosen] : -1;
    if (active >= 0 && (active < first || active > last)) wanted.push(active);
    this.rowsBox.replaceChildren(...wanted.map((n) => this.rowElement(n, indent)));
    if (active >= 0) this.list.setAttribute("aria-activedescendant", `commit-${this.chosen}`);
    else this.list.removeAttribute("aria-activedescendant");
    if (!this.shown.length) return;
    const at = (n) => this.shown[Math.min(this.shown.length - 1, Math.max(0, n))];
    const [from, to] = [at(Math.floor(scrollTop / ROW)), at(Math.ceil((scrollTop + clientHeight) / ROW) - 1)];
    this.overview.showWindow(this.graph, from, to, this.chosen, this.colours);
  }

  rowElement(n, indent) {
    const graph = this.graph;
    const row = this.shown[n];
    const verdict = graph.verdict(row);
    const refs = graph.refsOf(row);
    const unseen = (text) => make("span", { className: "unseen", textContent: text });
    const chips = refs.slice(0, 3).map((ref) => make("span", { className: `ref ${ref.kind}` }, unseen(`${ref.kind} `), plain(ref.name)));
    if (refs.length > 3) chips.push(make("span", { className: "ref", textContent: `+${refs.length - 3}` }));
    const parts = [
      make("span", { className: `verdict ${verdict}`, textContent: LABELS[verdict] }),
      make("code", { textContent: short(graph.rows.id[row]) }),
      make("span", { className: "when", textContent: dateOf(graph.rows.at[row]) }),
      ...chips,
      make("span", { className: "words", textContent: plain(graph.rows.message[row]) }),
      unseen(`. ${reasonOf(graph, row)}`),
    ];
    const node = make("div", { id: `commit-${row}`, className: "row" }, ...parts.flatMap((part) => [part, " "]));
    node.dataset.row = row;
    node.setAttribute("role", "option");
    node.setAttribute("aria-selected", String(row === this.chosen));
    node.setAttribute("aria-posinset", n + 1);
    node.setAttribute("aria-setsize", this.shown.length);
    node.style.top = `${n * ROW}px`;
    node.style.paddingLeft = `${indent}px`;
    return node;
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.chosen >= 0) byId("graph-reasons").focus();
    else if (event.key in moves && this.shown.length) {
      const now = this.chosen >= 0 ? this.place[this.chosen] : -1;
      const next = Math.min(this.shown.length - 1, Math.max(0, now + moves[event.key]));
      this.choose(this.shown[next], false);
    } else return;
    event.preventDefault();
  }

  /* Goes to the next commit whose verdict changes, and wraps around at the end. */
  jump(step) {
    const many = this.shown.length;
    let n = this.chosen >= 0 && this.place[this.chosen] >= 0 ? this.place[this.chosen] : step > 0 ? -1 : 0;
    for (let tried = 0; tried < many; tried += 1) {
      n = (n + step + many) % many;
      if (CHANGES.has(this.graph.verdict(this.shown[n]))) { this.choose(this.shown[n], true); return; }
    }
  }

  choose(row, centre) {
    if (row < 0) return;
    if (this.place[row] < 0) this.showEverything();
    this.chosen = row;
    const top = this.place[row] * ROW;
    const { scrollTop, clientHeight } = this.list;
    if (centre) this.list.scrollTop = top - clientHeight / 2;
    else if (top < scrollTop) this.list.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) this.list.scrollTop = top + ROW - clientHeight;
    this.explain();
    this.drawRows();
    this.remember();
  }

  /* Lets the address lead to this commit, but not at every repeat of a held key, which browsers refuse. */
  remember() {
    clearTimeout(this.later);
    this.later = setTimeout(() => this.address(), 400);
  }

  address() {
    const parts = { repository: this.graph.given.key, commit: this.graph.rows.id[this.chosen] };
    const moment = ["", "plus_7_days", "plus_30_days"][this.graph.moment];
    if (moment) parts.moment = moment;
    if (root.dataset.theme) parts.theme = root.dataset.theme;
    location.replace(`#${new URLSearchParams(parts)}`);
  }

  showEverything() {
    byId("graph-find").value = "";
    for (const box of document.querySelectorAll('#graph-tools input[name="verdict"]')) box.checked = true;
    this.refilter();
  }

  explain() {
    const graph = this.graph;
    const row = this.chosen;
    const verdict = graph.verdict(row);
    const link = (other) => {
      const button = make("button", { type: "button", textContent: `${short(graph.rows.id[other])}, ${LABELS[graph.verdict(other)]}` });
      button.addEventListener("click", () => this.choose(other, true));
      return make("div", {}, button);
    };
    const parts = [];
    const say = (title, ...content) => {
      if (content.length) parts.push(make("dt", { textContent: title }), make("dd", {}, ...content));
    };
    say("Commit", make("code", { textContent: graph.rows.id[row] }));
    say("Created", `${dateOf(graph.rows.at[row])}: ${plain(graph.rows.message[row]) || "no message"}`);
    say("Verdict", make("span", { className: `verdict ${verdict}`, textContent: `${LABELS[verdict]}. ` }), MEANINGS[verdict]);
    say("Proposed rules", reason(graph, "proposed", row));
    say("Stored rules", reason(graph, "stored", row));
    const refs = graph.refsOf(row);
    if (refs.length) say("HEAD or tag", refs.slice(0, 20).map((ref) => `${ref.kind} ${plain(ref.name)}`).join(", ") + (refs.length > 20 ? ` and ${refs.length - 20} more` : ""));
    const parents = graph.rows.parents[row];
    say("Parents, main one first", ...parents.map((parent) => parent >= 0 ? link(parent) : make("div", { textContent: "one that is not drawn" })));
    const children = graph.children[row];
    say("Children", ...children.slice(0, 20).map(link));
    this.why.replaceChildren(make("dl", {}, ...parts));
  }

  showHint(row, event) {
    this.hint.hidden = row < 0;
    if (row < 0) return;
    this.hint.textContent = `${short(this.graph.rows.id[row])}, ${dateOf(this.graph.rows.at[row])}: ${inBrief(this.graph, row)}`;
    const left = Math.min(event.clientX + 14, innerWidth - this.hint.offsetWidth - 8);
    const below = event.clientY + 18;
    const top = below + this.hint.offsetHeight > innerHeight ? event.clientY - this.hint.offsetHeight - 10 : below;
    this.hint.style.left = `${Math.max(4, left)}px`;
    this.hint.style.top = `${Math.max(4, top)}px`;
  }
}
