/* Colours, sorting, and what the address of the page asks for (#theme=dark&repository=…&commit=…). */
const wanted = new URLSearchParams(location.hash.slice(1));
const root = document.documentElement;
const changed = [];
const make = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};
const byId = (id) => document.getElementById(id);

function setTheme(name) {
  if (name === "light" || name === "dark") root.dataset.theme = name;
  else delete root.dataset.theme;
  for (const redraw of changed) redraw();
}

function startTheme() {
  const choice = byId("theme");
  const asked = wanted.get("theme");
  if (asked === "light" || asked === "dark") choice.value = asked;
  choice.addEventListener("change", () => setTheme(choice.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(choice.value));
  setTheme(choice.value);
}

function sortBy(table, column, button) {
  const header = button.closest("th");
  const descending = header.getAttribute("aria-sort") !== "descending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const key = (row) => {
    const cell = row.cells[column];
    return cell.dataset.sort === undefined ? cell.textContent : cell.dataset.sort;
  };
  const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
  const numbers = rows.every(([value]) => value !== "" && !Number.isNaN(Number(value)));
  rows.sort(([a], [b]) => (numbers ? a - b : a.localeCompare(b)) * (descending ? -1 : 1));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

/* A box that scrolls can be reached by the keyboard, and says what it is. */
function startScrolling() {
  const look = () => {
    for (const box of document.querySelectorAll(".scroll")) {
      const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
      const words = { tabindex: "0", role: "region", "aria-label": box.querySelector("caption").textContent };
      for (const [name, value] of Object.entries(words)) {
        if (scrolls) box.setAttribute(name, value);
        else box.removeAttribute(name);
      }
    }
  };
  addEventListener("resize", look);
  document.addEventListener("toggle", look, true);
  look();
}

function startSorting() {
  for (const table of document.querySelectorAll('table[data-sortable]')) {
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      const button = make("button", { type: "button", title: "Sort by this column" }, ...header.childNodes);
      button.addEventListener("click", () => sortBy(table, column, button));
      header.append(button);
    });
  }
}
