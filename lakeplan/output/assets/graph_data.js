/* One graph: its columns as the page was given them, and what is asked of them often. */
const VERDICTS = ["kept", "released", "expires", "at_risk", "at_risk_already", "gone"];
const LABELS = { kept: "kept", released: "kept again", expires: "expires", at_risk: "at risk", at_risk_already: "at risk already", gone: "gone" };
const CHANGES = new Set(["released", "expires", "at_risk"]);
const HEAD_ROW = 1;

class Graph {
  constructor(given) {
    this.given = given;
    this.rows = given.rows;
    this.length = given.rows.id.length;
    this.moment = 0;
    this.refs = new Map();
    for (const branch of given.branches) this.addRef(branch[HEAD_ROW], branch[0], "branch");
    for (const [name, row] of given.tags) this.addRef(row, name, "tag");
    this.children = Array.from({ length: this.length }, () => []);
    this.rows.parents.forEach((parents, row) => {
      for (const parent of parents) if (parent >= 0) this.children[parent].push(row);
    });
    this.searched = null;
  }

  addRef(row, name, kind) {
    if (row < 0) return;
    if (!this.refs.has(row)) this.refs.set(row, []);
    this.refs.get(row).push({ name, kind });
  }

  refsOf(row) {
    return this.refs.get(row) || [];
  }

  verdict(row) {
    return VERDICTS[Number(this.rows.verdicts[row][this.moment])];
  }

  rowOf(prefix) {
    return prefix ? this.rows.id.findIndex((id) => id.startsWith(prefix)) : -1;
  }

  /* Rows that are shown: a verdict that is ticked, and the words that were typed. */
  filter(verdicts, text) {
    const needle = text.trim().toLowerCase();
    if (needle && !this.searched) {
      this.searched = this.rows.id.map((id, row) =>
        [id, this.rows.message[row], ...this.refsOf(row).map((ref) => ref.name)].join("\n").toLowerCase());
    }
    const found = [];
    for (let row = 0; row < this.length; row += 1) {
      if (verdicts.has(this.verdict(row)) && (!needle || this.searched[row].includes(needle))) found.push(row);
    }
    return found;
  }
}
