/* Why a commit is kept or not, in words. Every figure comes from the page's data; nothing is judged here. */
const NOBODY = -1;
const DANGLING = -2;
const MEANINGS = {
  kept: "The server keeps it under the proposed rules.",
  released: "The stored rules let it expire, but the proposed rules keep it again.",
  expires: "The stored rules keep it, but the proposed rules let it expire.",
  at_risk: "By the documented rule, the proposed rules keep it, but the server's walk stops early, so it expires.",
  at_risk_already: "By the documented rule, the proposed rules keep it, but the server's walk stops early, so it expires. It also expires under the stored rules.",
  gone: "The stored rules let it expire, and so do the proposed ones.",
};
const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
const dateOf = (seconds) => {
  const moment = new Date(seconds * 1000);
  return Number.isNaN(moment.getTime()) ? "date out of range" : moment.toISOString().slice(0, 10);
};
const short = (id) => id.slice(0, 12);

/* Characters that would hide, reorder or cover text are shown as escapes, as in text.py. */
const HARMFUL = new RegExp("[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Co}\\p{Cn}\\p{Zl}\\p{Zp}\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f"
  + "\\u2800\\u3164\\ufe00-\\ufe0f\\uffa0\\u{e0100}-\\u{e01ef}]"
  + "|(?<=^[\\p{Mn}\\p{Me}]*|[\\p{Mn}\\p{Me}]{4})[\\p{Mn}\\p{Me}]", "gu");
const plain = (text) => text.replace(HARMFUL,
  (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);

function keeperOf(graph, side, branch) {
  const after = side === "proposed" ? 1 : 0;
  if (branch === DANGLING) {
    return { name: "a commit of a deleted branch", days: graph.given.default_days[after], rule: "the default" };
  }
  const found = graph.given.branches[branch];
  return { name: `branch ${plain(found[0])}`, days: found[2 + after], rule: found[4 + after] ? "its own rule" : "the default" };
}

/* One sentence or two for one set of rules. */
function reason(graph, side, row) {
  const columns = graph.rows[side];
  if (!columns) return "No rules are set, so no collector runs and nothing expires.";
  const branch = columns.branch[row];
  if (branch === NOBODY) return "No branch reaches this commit, so nothing keeps it.";
  const keeper = keeperOf(graph, side, branch);
  const until = columns.until[row];
  if (until === null) return `It is the HEAD of ${keeper.name}, and is kept as long as the branch does not move.`;
  const via = columns.via[row];
  const from = via === -1 ? "the days count from its own date"
    : via === -2 ? "the days count from the commit that followed it there, which is not drawn"
    : `${short(graph.rows.id[via])} followed it there on ${dateOf(graph.rows.at[via])}, and the days count from then`;
  const rule = `${counted(keeper.days, "day")} (${keeper.rule})`;
  if (until >= graph.given.as_of && columns.server[row] === "0") {
    return `The server deletes it because its walk stops early. The documented rule keeps it until ${dateOf(until)} by ${keeper.name}, ${rule}: ${from}.`;
  }
  if (until >= graph.given.as_of) {
    const others = columns.keepers[row] > 1 ? ` ${counted(columns.keepers[row], "branch").replace(/branchs$/, "branches")} keep it in total.` : "";
    return `Kept until ${dateOf(until)} by ${keeper.name}, ${rule}: ${from}.${others}`;
  }
  return `Nothing has kept it since ${dateOf(until)}. The last to keep it was ${keeper.name}, ${rule}: ${from}.`;
}

/* The short form: for the tooltip, and for screen readers in the list. */
const reasonOf = (graph, row) => reason(graph, "proposed", row);
const inBrief = (graph, row) => `${LABELS[graph.verdict(row)]}. ${reasonOf(graph, row)}`;
