/* The pictures: lines and marks beside the list, and the whole history above it. */
const ROW = 26;
const PAD = 12;
const WIDEST = 190;

function palette() {
  const style = getComputedStyle(root);
  const names = [...VERDICTS, "rule", "dim", "ink", "paper", "focus"];
  const colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  colours.at_risk_already = colours.at_risk;
  return colours;
}

function fitCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/* Verdicts differ in shape as well as in colour. */
function mark(pen, verdict, x, y, size, colours) {
  pen.fillStyle = pen.strokeStyle = colours[verdict];
  pen.beginPath();
  if (verdict === "kept" || verdict === "gone") pen.arc(x, y, size, 0, 7);
  else if (verdict === "expires") {
    pen.moveTo(x - size, y - size); pen.lineTo(x + size, y + size);
    pen.moveTo(x + size, y - size); pen.lineTo(x - size, y + size);
  } else if (verdict.startsWith("at_risk")) {
    pen.moveTo(x, y - size * 1.4); pen.lineTo(x + size * 1.4, y); pen.lineTo(x, y + size * 1.4);
    pen.lineTo(x - size * 1.4, y); pen.closePath();
  } else {
    pen.moveTo(x, y - size * 1.2); pen.lineTo(x + size * 1.2, y + size); pen.lineTo(x - size * 1.2, y + size);
    pen.closePath();
  }
  if (verdict === "expires") { pen.lineWidth = Math.max(1, size / 1.7); pen.stroke(); }
  else if (verdict === "gone" || verdict === "at_risk_already") {
    pen.lineWidth = Math.max(1, size / 2.5);
    const inside = pen.fillStyle; pen.fillStyle = colours.paper; pen.fill(); pen.fillStyle = inside; pen.stroke();
  } else pen.fill();
}

/* The width of the lanes: many lanes are closer together, and the last ones overlap. */
function laneScale(lanes, room) {
  const widest = Math.min(WIDEST, room / 4);
  const step = Math.max(3, Math.min(11, widest / lanes));
  return { step, width: 2 * PAD + Math.min(widest, (lanes - 1) * step), x: (lane) => PAD + Math.min(widest, lane * step) };
}

/* Lines and marks of the rows in sight. `place` has the place of each row in the list, -1 where it is left out;
   `nearest` the row itself or the nearest main ancestor that is in the list, -1 for none. */
function drawLanes(canvas, graph, { shown, place, nearest }, top, height, colours) {
  const lanes = laneScale(graph.given.lanes, canvas.parentElement.clientWidth);
  const heavy = lanes.step > 8 ? 1.5 : 1;
  canvas.style.width = `${lanes.width}px`;
  canvas.style.height = `${height}px`;
  const pen = fitCanvas(canvas, lanes.width, height);
  const first = Math.floor(top / ROW) - 1;
  const last = Math.ceil((top + height) / ROW) + 1;
  const yOf = (n) => n * ROW + ROW / 2 - top;
  for (let n = 0; n < shown.length && n <= last; n += 1) {
    const row = shown[n];
    graph.rows.parents[row].forEach((parent, k) => {
      const end = parent >= 0 ? nearest[parent] : -1;
      const m = end >= 0 ? place[end] : n + 1;
      if (m < first || (k > 0 && end !== parent)) return;
      const from = lanes.x(graph.rows.lane[row]);
      const to = end >= 0 ? lanes.x(graph.rows.lane[end]) : from;
      pen.strokeStyle = k === 0 ? colours.dim : colours.rule;
      pen.lineWidth = k === 0 ? heavy : 1;
      pen.setLineDash(end < 0 || end !== parent ? [2, 3] : []);
      pen.beginPath();
      pen.moveTo(from, yOf(n));
      if (k === 0) { pen.lineTo(from, yOf(m) - ROW * 0.7); pen.lineTo(to, yOf(m)); }
      else { pen.lineTo(to, yOf(n) + ROW * 0.7); pen.lineTo(to, yOf(m)); }
      pen.stroke();
    });
  }
  pen.setLineDash([]);
  for (let n = Math.max(0, first); n < shown.length && n <= last; n += 1) {
    mark(pen, graph.verdict(shown[n]), lanes.x(graph.rows.lane[shown[n]]), yOf(n), 4.2, colours);
  }
  return lanes.width;
}

/* The whole history, with the newest commits on the right. Rare verdicts are drawn last and slightly larger. */
class Overview {
  constructor(canvas) {
    this.canvas = canvas;
  }

  x(graph, row) {
    return PAD + (this.width - 2 * PAD) * (1 - (graph.length > 1 ? row / (graph.length - 1) : 0));
  }

  y(graph, lane) {
    const room = this.height - 40;
    return 12 + Math.min(room, lane * Math.min(14, room / Math.max(1, graph.given.lanes - 1)));
  }

  draw(graph, colours, place) {
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    const pen = fitCanvas(this.canvas, this.width, this.height);
    pen.strokeStyle = colours.rule;
    pen.lineWidth = 1;
    pen.beginPath();
    graph.rows.parents.forEach((parents, row) => {
      if (!(parents[0] >= 0)) return;
      pen.moveTo(this.x(graph, row), this.y(graph, graph.rows.lane[row]));
      pen.lineTo(this.x(graph, parents[0]), this.y(graph, graph.rows.lane[parents[0]]));
    });
    pen.stroke();
    const size = graph.length > 2000 ? 1.6 : graph.length > 300 ? 2.4 : 4;
    for (const verdict of ["gone", "kept", "at_risk_already", "expires", "released", "at_risk"]) {
      const larger = CHANGES.has(verdict) ? size * 1.4 : size;
      for (let row = graph.length - 1; row >= 0; row -= 1) {
        if (graph.verdict(row) !== verdict) continue;
        pen.globalAlpha = place[row] < 0 ? 0.15 : 1;
        mark(pen, verdict, this.x(graph, row), this.y(graph, graph.rows.lane[row]), larger, colours);
      }
    }
    pen.globalAlpha = 1;
    this.dates(pen, graph, colours);
    this.drawn = Object.assign(document.createElement("canvas"), { width: this.canvas.width, height: this.canvas.height });
    this.drawn.getContext("2d").drawImage(this.canvas, 0, 0);
  }

  dates(pen, graph, colours) {
    pen.fillStyle = colours.dim;
    pen.font = "12px system-ui, sans-serif";
    const many = Math.max(2, Math.floor(this.width / 180));
    for (let n = 0; n < many && graph.length; n += 1) {
      const row = Math.round((graph.length - 1) * n / (many - 1));
      pen.textAlign = n === 0 ? "right" : n === many - 1 ? "left" : "center";
      pen.fillText(dateOf(graph.rows.at[row]), this.x(graph, row) + (n === 0 ? PAD / 2 : n === many - 1 ? -PAD / 2 : 0), this.height - 8);
    }
  }

  /* Draws the visible rows and the selected row over the existing picture. */
  showWindow(graph, from, to, chosen, colours) {
    if (!this.drawn) return;
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    pen.drawImage(this.drawn, 0, 0, this.width, this.height);
    const right = this.x(graph, from) + 2;
    const left = this.x(graph, to) - 2;
    pen.strokeStyle = colours.focus;
    pen.lineWidth = 2;
    pen.strokeRect(left, 2, Math.max(5, right - left), this.height - 24);
    if (chosen < 0) return;
    pen.beginPath();
    pen.arc(this.x(graph, chosen), this.y(graph, graph.rows.lane[chosen]), 7, 0, 7);
    pen.strokeStyle = colours.ink;
    pen.stroke();
  }

  /* Returns the row nearest to a point of the picture. */
  rowAt(graph, x, y) {
    const step = (this.width - 2 * PAD) / Math.max(1, graph.length - 1);
    const middle = Math.round((this.width - PAD - x) / step);
    const reach = Math.ceil(10 / Math.max(step, 0.01));
    let best = -1;
    let least = Infinity;
    for (let row = Math.max(0, middle - reach); row <= Math.min(graph.length - 1, middle + reach); row += 1) {
      const dx = this.x(graph, row) - x;
      const dy = this.y(graph, graph.rows.lane[row]) - y;
      const far = dx * dx + dy * dy - (CHANGES.has(graph.verdict(row)) ? 9 : 0);
      if (far < least) { least = far; best = row; }
    }
    return best;
  }
}
