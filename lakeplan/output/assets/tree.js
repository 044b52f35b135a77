/* A table whose rows are folders in order of their paths, each with its depth: opened, closed, and sorted among
   their siblings. */
class FolderTable {
  constructor(table) {
    this.table = table;
    this.root = { children: [] };
    const above = [this.root];
    for (const row of table.tBodies[0].rows) {
      const depth = Number(row.cells[0].dataset.depth);
      const node = { row, depth, children: [], open: depth < 1 };
      above.length = Math.min(above.length, depth + 1);
      above[above.length - 1].children.push(node);
      above.push(node);
    }
    this.nodes([this.root]).forEach((node) => this.addButton(node));
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      const button = make("button", { type: "button", title: "Sort folders by this column" }, ...header.childNodes);
      button.addEventListener("click", () => this.sort(column, header));
      header.append(button);
    });
    this.show();
  }

  nodes(some) {
    return some.flatMap((node) => node.children.flatMap((child) => [child, ...this.nodes([child])]));
  }

  addButton(node) {
    if (!node.children.length) return;
    const cell = node.row.cells[0];
    const button = make("button", { type: "button", className: "fold" }, ...cell.childNodes);
    button.addEventListener("click", () => {
      node.open = !node.open;
      this.show();
    });
    node.button = button;
    cell.append(button);
  }

  sort(column, header) {
    const descending = header.getAttribute("aria-sort") !== "descending";
    for (const other of this.table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const key = ({ row }) => row.cells[column].dataset.sort;
    const order = (a, b) => (column ? Number(key(a)) - Number(key(b)) : key(a).localeCompare(key(b)));
    for (const node of [this.root, ...this.nodes([this.root])]) {
      node.children.sort((a, b) => order(a, b) * (descending ? -1 : 1));
    }
    this.table.tBodies[0].append(...this.nodes([this.root]).map((node) => node.row));
  }

  show(some = this.root.children, visible = true) {
    for (const node of some) {
      node.row.hidden = !visible;
      if (node.button) node.button.setAttribute("aria-expanded", String(node.open));
      this.show(node.children, visible && node.open);
    }
  }
}
