/* Loaded last: starts everything, then marks the page as ready. */
const opened = new Map();
function graphOf(number) {
  if (!opened.has(number)) opened.set(number, new Graph(JSON.parse(byId(`graph-${number}`).textContent)));
  return opened.get(number);
}

/* What the address asks for: which repository, moment, words and verdicts, and which commit is chosen. */
function startGraph() {
  const repository = byId("graph-repository");
  const asked = [...repository.options].find((option) => option.textContent === wanted.get("repository"));
  if (asked) repository.value = asked.value;
  const moments = { now: "0", plus_7_days: "1", plus_30_days: "2" };
  byId("graph-moment").value = moments[wanted.get("moment")] ?? "0";
  byId("graph-find").value = wanted.get("find") ?? "";
  const only = wanted.get("show")?.split(",");
  for (const box of document.querySelectorAll('#graph-tools input[name="verdict"]')) box.checked = !only || only.includes(box.value);
  const view = new GraphView(graphOf);
  view.colours = palette();
  view.open(Number(repository.value));
  addEventListener("hashchange", () => {
    const other = view.graph.rowOf(new URLSearchParams(location.hash.slice(1)).get("commit"));
    if (other >= 0 && other !== view.chosen) view.choose(other, true);
  });
  const row = view.graph.rowOf(wanted.get("commit"));
  if (row >= 0) {
    view.choose(row, true);
    byId("graph-view").scrollIntoView({ behavior: "instant" });
  }
}

root.dataset.script = "on";
startTheme();
startSorting();
startScrolling();
if (byId("graph-view")) startGraph();
requestAnimationFrame(() => { root.dataset.ready = Math.round(performance.now()); });
