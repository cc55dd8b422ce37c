
// ---------------------------------------------------------------------------------------------------------- map
// Points are drawn on one canvas and marks (what is pointed at, the selected point) on another above it, so that a hover
// draws a ring and never ten thousand points. A grid over the plane finds the nearest point among a few.

const NONE = 0xffffffff, CELLS = 128;

function unpack(text, Kind) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}

/** Thumbnails in sheets. Sheets are decoded when the page is up; what was asked for before is drawn when they come. */
const atlas = {
  side: data.atlas.side,
  perSheet: data.atlas.columns ** 2,
  sheets: data.atlas.sheets.map((source) => { const image = new Image(); image.src = source; return image; }),
  draw(context, tile, x, y, size) {
    const sheet = this.sheets[Math.floor(tile / this.perSheet)], place = tile % this.perSheet;
    if (!sheet?.complete || !sheet.naturalWidth) return;
    const column = place % data.atlas.columns, row = Math.floor(place / data.atlas.columns);
    context.drawImage(sheet, column * this.side, row * this.side, this.side, this.side, x, y, size, size);
  },
  ready() { return Promise.all(this.sheets.map((sheet) => sheet.decode().catch(() => {}))); },
};

/** A canvas with one thumbnail. */
function thumbnail(tile, size) {
  const canvas = make("canvas", "", { width: size * 2, height: size * 2, "aria-hidden": "true" });
  canvas.style.width = canvas.style.height = `${size}px`;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = atlas.side >= 64;
  atlas.draw(context, tile, 0, 0, size * 2);
  return canvas;
}

/** Colours of groups: ten that all people can tell apart, or as many as there are groups, from around the circle. */
function palette(size) {
  const style = getComputedStyle(document.documentElement);
  if (size <= 10) return Array.from({ length: size }, (_, i) => style.getPropertyValue(`--c${i}`).trim());
  return Array.from({ length: size }, (_, i) => `hsl(${(i * 137.508) % 360} ${[72, 50][i % 2]}% ${[46, 60, 70][i % 3]}%)`);
}

const maps = [];

class EmbeddingMap {
  constructor(root, source) {
    this.root = root;
    this.source = source;
    this.n = source.n;
    const xy = unpack(source.xy, Uint16Array);
    this.x = Float32Array.from({ length: this.n }, (_, i) => xy[2 * i] / 65535);
    this.y = Float32Array.from({ length: this.n }, (_, i) => 1 - xy[2 * i + 1] / 65535);
    for (const name of ["tiles", "numbers", "labels", "neighbours"]) this[name] = unpack(source[name], Uint32Array);
    this.super = source.super ? unpack(source.super, Uint32Array) : null;
    this.more = source.more;
    for (const group of Object.values(this.more)) group.numbers = unpack(group.of, Uint32Array);
    this.degree = this.neighbours.length / this.n;
    this.find = (selector) => root.querySelector(selector);
    this.dots = this.find(".dots");
    this.marks = this.find(".marks");
    this.card = this.find(".map-card");
    this.view = { scale: 1, x: 0, y: 0 };
    this.over = this.selected = -1;
    this.only = new Set();
    this.query = "";
    this.buildGrid();
    this.colourBy(this.find("[name=colour]").value);
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.find(".map-stage"));
  }

  // -- finding points

  buildGrid() {
    const cell = (i) => Math.min(CELLS - 1, Math.floor(this.y[i] * CELLS)) * CELLS + Math.min(CELLS - 1, Math.floor(this.x[i] * CELLS));
    this.start = new Uint32Array(CELLS * CELLS + 1);
    for (let i = 0; i < this.n; i++) this.start[cell(i) + 1]++;
    for (let c = 0; c < CELLS * CELLS; c++) this.start[c + 1] += this.start[c];
    const next = this.start.slice();
    this.order = new Uint32Array(this.n);
    for (let i = 0; i < this.n; i++) this.order[next[cell(i)]++] = i;
  }

  /** The visible point nearest to a place on the screen, at most `reach` pixels away, or -1. */
  nearest(px, py, reach) {
    if (this.mosaic) {
      const place = this.mosaic.get(this.cellOf(px, py));
      if (place !== undefined) return place;
    }
    const x = (px - this.view.x) / this.view.scale, y = (py - this.view.y) / this.view.scale, r = reach / this.view.scale;
    const clamp = (v) => Math.min(CELLS - 1, Math.max(0, Math.floor(v * CELLS)));
    let best = -1, least = r * r;
    for (let row = clamp(y - r); row <= clamp(y + r); row++) {
      const from = this.start[row * CELLS + clamp(x - r)], to = this.start[row * CELLS + clamp(x + r) + 1];
      for (let k = from; k < to; k++) {
        const i = this.order[k], d = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
        if (d <= least && this.shown(i)) { least = d; best = i; }
      }
    }
    return best;
  }

  shown(i) {
    if (this.only.size && !this.only.has(this.group[i])) return false;
    return !this.query || this.text(i).toLowerCase().includes(this.query);
  }

  kind(i) { return this.source.classes[this.labels[i]] ?? ""; }
  name(i) { return this.source.names ? this.source.names[i] : `image ${this.numbers[i]}`; }
  text(i) { return `${this.kind(i)} ${this.name(i)}`; }

  // -- drawing

  resize() {
    const { clientWidth: width, clientHeight: height } = this.find(".map-stage");
    if (!width) return;
    const ratio = Math.min(2, devicePixelRatio || 1), before = this.width;
    this.width = width;
    this.height = height;
    for (const canvas of [this.dots, this.marks]) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    if (before === undefined || this.view.scale === this.least) this.showAll(); else this.draw();
  }

  showAll() {
    this.least = Math.min(this.width, this.height) - 36;
    this.view = { scale: this.least, x: (this.width - this.least) / 2, y: (this.height - this.least) / 2 };
    this.draw();
  }

  sx(i) { return this.x[i] * this.view.scale + this.view.x; }
  sy(i) { return this.y[i] * this.view.scale + this.view.y; }

  draw() {
    this.marks.classList.toggle("zoomed", this.view.scale > this.least * 1.01);
    const context = this.dots.getContext("2d");
    context.clearRect(0, 0, this.width, this.height);
    this.mosaic = null;
    if (this.find("[name=show]").value === "images") this.drawImages(context); else this.drawDots(context);
    this.drawMarks();
  }

  drawDots(context) {
    const zoom = this.view.scale / this.least, crowd = Math.sqrt(4000 / Math.max(this.n, 400));
    const radius = Math.min(7, Math.max(1.6, 2.5 * crowd * Math.sqrt(zoom)));
    const size = Math.ceil(radius * 2 + 2), dots = this.colours.map((colour) => this.dot(colour, radius, size));
    const filtered = this.only.size || this.query;
    for (const pass of filtered ? [false, true] : [true]) {
      context.globalAlpha = pass ? 0.85 : 0.1;
      for (let i = 0; i < this.n; i++) {
        const x = this.sx(i), y = this.sy(i);
        if (x < -size || y < -size || x > this.width + size || y > this.height + size) continue;
        if (filtered && this.shown(i) !== pass) continue;
        context.drawImage(dots[this.group[i]], x - size / 2, y - size / 2, size, size);
      }
    }
    context.globalAlpha = 1;
  }

  dot(colour, radius, size) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = size * 2;
    const context = canvas.getContext("2d");
    context.fillStyle = colour;
    context.arc(size, size, radius * 2, 0, 7);
    context.fill();
    return canvas;
  }

  /** Images on a lattice that is fixed to the map: each cell shows the image nearest to its middle. */
  drawImages(context) {
    const size = Math.max(20, Math.min(40, this.width / 30));
    const cell = this.cell = size / (this.least * 2 ** (Math.floor(Math.log2(this.view.scale / this.least) * 2) / 2));
    const nearest = new Map(), distance = new Map();
    for (let i = 0; i < this.n; i++) {
      if (!this.shown(i)) continue;
      const x = this.sx(i), y = this.sy(i);
      if (x < -size || y < -size || x > this.width + size || y > this.height + size) continue;
      const column = Math.floor(this.x[i] / cell), row = Math.floor(this.y[i] / cell), key = column * 100003 + row;
      const d = (this.x[i] / cell - column - 0.5) ** 2 + (this.y[i] / cell - row - 0.5) ** 2;
      if (!(d >= distance.get(key))) { distance.set(key, d); nearest.set(key, i); }
    }
    const side = cell * this.view.scale;
    context.imageSmoothingEnabled = atlas.side >= 48;
    for (const i of nearest.values()) {
      const x = Math.floor(this.x[i] / cell) * side + this.view.x, y = Math.floor(this.y[i] / cell) * side + this.view.y;
      context.fillStyle = this.colours[this.group[i]];
      if (this.colours.length > 1) context.fillRect(x + 0.5, y + 0.5, side - 1, side - 1);
      const frame = this.colours.length > 1 ? 2.5 : 0.5;
      atlas.draw(context, this.tiles[i], x + frame, y + frame, side - 2 * frame);
    }
    this.mosaic = nearest;
  }

  cellOf(px, py) {
    const x = (px - this.view.x) / this.view.scale, y = (py - this.view.y) / this.view.scale;
    return Math.floor(x / this.cell) * 100003 + Math.floor(y / this.cell);
  }

  drawMarks() {
    const context = this.marks.getContext("2d"), ink = getComputedStyle(this.root).color;
    context.clearRect(0, 0, this.width, this.height);
    context.strokeStyle = ink;
    const ring = (i, radius, width) => {
      context.lineWidth = width;
      context.beginPath();
      context.arc(this.sx(i), this.sy(i), radius, 0, 7);
      context.stroke();
    };
    if (this.selected >= 0) {
      context.globalAlpha = 0.65;
      context.lineWidth = 1.2;
      for (const j of this.near(this.selected)) {
        context.beginPath();
        context.moveTo(this.sx(this.selected), this.sy(this.selected));
        context.lineTo(this.sx(j), this.sy(j));
        context.stroke();
      }
      context.globalAlpha = 1;
      for (const j of this.near(this.selected)) ring(j, 5, 1.5);
      ring(this.selected, 9, 3);
    }
    if (this.over >= 0) ring(this.over, 7, 2);
  }

  // -- pointing and choosing

  near(i) {
    return Array.from(this.neighbours.subarray(i * this.degree, (i + 1) * this.degree)).filter((j) => j !== NONE);
  }

  point(i) {
    this.over = i;
    this.card.hidden = i < 0;
    this.drawMarks();
    if (i < 0) return;
    const [canvas, first, second] = this.card.children, context = canvas.getContext("2d");
    context.imageSmoothingEnabled = atlas.side >= 64;
    context.clearRect(0, 0, 96, 96);
    atlas.draw(context, this.tiles[i], 0, 0, 96);
    first.textContent = this.kind(i) || this.name(i);
    second.textContent = this.kind(i) ? this.name(i) : "";
    const x = this.sx(i), y = this.sy(i), width = this.card.offsetWidth, height = this.card.offsetHeight;
    this.card.style.left = `${Math.max(4, x + 14 + width > this.width ? x - width - 14 : x + 14)}px`;
    this.card.style.top = `${Math.max(4, Math.min(this.height - height - 4, y - height / 2))}px`;
  }

  choose(i, alone) {
    this.selected = i;
    const box = this.find(".selected");
    if (i < 0) box.replaceChildren(make("p", "Select a point to see its nearest images.", { class: "small" }));
    else this.describe(box, i);
    this.drawMarks();
    if (alone) return;
    // The same images in another run's map: the same image is selected there too.
    for (const map of maps) if (map !== this && map.source.stem === this.source.stem && map.n === this.n) map.choose(i, true);
  }

  describe(box, i) {
    const head = make("div", "", { class: "selected-head" }), caption = make("div");
    caption.append(make("h4", this.kind(i) || this.name(i)), make("p", this.kind(i) ? this.name(i) : "", { class: "small" }));
    head.append(thumbnail(this.tiles[i], 80), caption);
    const near = this.near(i), list = make("div", "", { class: "selected-near" });
    let hits = 0;
    for (const j of near) {
      const same = this.kind(i) && this.labels[i] === this.labels[j];
      hits += same ? 1 : 0;
      const label = `${this.kind(i) ? (same ? "same class: " : "another class: ") : ""}${this.text(j).trim()}`;
      const button = make("button", "", { type: "button", "aria-label": label, title: label });
      if (this.kind(i)) button.className = same ? "hit" : "miss";
      button.append(thumbnail(this.tiles[j], 48));
      button.addEventListener("click", () => { this.reveal(j); this.choose(j); });
      button.addEventListener("pointerenter", () => this.point(j));
      button.addEventListener("pointerleave", () => this.point(-1));
      list.append(button);
    }
    const title = this.kind(i) ? `Nearest images: ${hits} of ${near.length} of the same class` : "Nearest images";
    box.replaceChildren(head, make("h4", near.length ? title : "No neighbours were saved"), list);
  }

  /** Move the map so that a point is on the screen. */
  reveal(i) {
    const x = this.sx(i), y = this.sy(i);
    if (x > 10 && y > 10 && x < this.width - 10 && y < this.height - 10) return;
    this.view.x += this.width / 2 - x;
    this.view.y += this.height / 2 - y;
    this.draw();
  }

  // -- colours and groups

  colourBy(what) {
    const more = this.more[what];
    const names = more ? more.names : what === "class" ? this.source.classes : what === "super" ? this.source.superNames : [];
    const numbers = more ? more.numbers : what === "class" ? this.labels : what === "super" ? this.super : null;
    const grey = getComputedStyle(document.documentElement).getPropertyValue(names.length ? "--c8" : "--c0").trim();
    this.colours = [...palette(names.length), grey];
    this.group = Uint32Array.from({ length: this.n }, (_, i) => Math.min(numbers ? numbers[i] : NONE, names.length));
    this.only.clear();
    const counts = new Uint32Array(names.length + 1);
    for (const g of this.group) counts[g]++;
    this.find(".legend").replaceChildren(...names.map((name, g) => this.legendItem(name, g, counts[g])));
    if (this.width) this.draw();
  }

  legendItem(name, g, count) {
    const item = make("li"), button = make("button", "", { type: "button", "aria-pressed": "false", title: `${count} images` });
    const swatch = make("i");
    swatch.style.setProperty("--c", this.colours[g]);
    button.append(swatch, make("bdi", name));
    button.addEventListener("click", () => {
      if (!this.only.delete(g)) this.only.add(g);
      button.setAttribute("aria-pressed", this.only.has(g));
      this.draw();
    });
    item.append(button);
    return item;
  }
}
