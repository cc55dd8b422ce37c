
// ----------------------------------------------------------------------------------------- map: pointer and keys

EmbeddingMap.prototype.zoom = function (factor, px = this.width / 2, py = this.height / 2) {
  const scale = Math.min(this.least * 60, Math.max(this.least, this.view.scale * factor)), ratio = scale / this.view.scale;
  if (scale === this.least) return this.showAll();
  this.view = { scale, x: px - (px - this.view.x) * ratio, y: py - (py - this.view.y) * ratio };
  this.point(-1);
  this.soon();
};

EmbeddingMap.prototype.pan = function (dx, dy) {
  // At least a corner of the map stays on the screen.
  const { scale } = this.view, keep = 60;
  this.view.x = Math.min(this.width - keep, Math.max(keep - scale, this.view.x + dx));
  this.view.y = Math.min(this.height - keep, Math.max(keep - scale, this.view.y + dy));
  this.point(-1);
  this.soon();
};

/** Draw at most once per frame, however many events come. */
EmbeddingMap.prototype.soon = function () {
  this.waiting ??= requestAnimationFrame(() => { this.waiting = undefined; this.draw(); });
};

/** The nearest visible point to the right, left, above or below the current one. */
EmbeddingMap.prototype.step = function (dx, dy) {
  const from = this.over >= 0 ? this.over : this.selected;
  if (from < 0) return this.nearest(this.width / 2, this.height / 2, 1e5);
  let best = from, least = Infinity;
  for (let i = 0; i < this.n; i++) {
    const x = this.x[i] - this.x[from], y = this.y[i] - this.y[from];
    const ahead = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (i === from || ahead <= 0 || aside > ahead || !this.shown(i)) continue;
    const cost = ahead + 2 * aside;
    if (cost < least) { least = cost; best = i; }
  }
  return best;
};

EmbeddingMap.prototype.key = function (event) {
  const arrows = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const arrow = arrows[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (arrow && event.shiftKey) this.pan(-60 * arrow[0], -60 * arrow[1]);
  else if (arrow) {
    const i = this.step(...arrow);
    if (i >= 0) this.reveal(i);
    this.point(i);
    this.say(i);
  } else if (event.key === "Enter" || event.key === " ") this.choose(this.over);
  else if (event.key === "+" || event.key === "=") this.zoom(1.5);
  else if (event.key === "-") this.zoom(1 / 1.5);
  else if (event.key === "0") this.showAll();
  else if (event.key === "Escape") { this.point(-1); this.choose(-1); }
  else return;
  event.preventDefault();
};

/** Screen readers hear what the keys point at: the canvas's label changes with it. */
EmbeddingMap.prototype.say = function (i) {
  this.marks.setAttribute("aria-label", i < 0 ? "Map" : `${this.text(i).trim()}. Enter shows its nearest images.`);
};

EmbeddingMap.prototype.listen = function () {
  const marks = this.marks, down = new Map();
  let moved = 0, apart = 0;
  const at = (event) => {
    const box = marks.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  marks.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    down.set(event.pointerId, at(event));
    marks.setPointerCapture(event.pointerId);
    moved = 0;
    apart = 0;
  });
  marks.addEventListener("pointermove", (event) => {
    const [x, y] = at(event), before = down.get(event.pointerId);
    if (!before) return this.point(this.nearest(x, y, 16));
    down.set(event.pointerId, [x, y]);
    if (down.size === 2) {
      const [[ax, ay], [bx, by]] = down.values(), distance = Math.hypot(ax - bx, ay - by);
      if (apart) this.zoom(distance / apart, (ax + bx) / 2, (ay + by) / 2);
      apart = distance;
      moved = 99;
      return;
    }
    moved += Math.hypot(x - before[0], y - before[1]);
    if (moved < 5) return;
    marks.classList.add("moving");
    this.pan(x - before[0], y - before[1]);
  });
  const up = (event) => {
    const there = down.delete(event.pointerId);
    marks.classList.remove("moving");
    if (!there || event.type === "pointercancel" || moved >= 5) return;
    const i = this.nearest(...at(event), event.pointerType === "touch" ? 26 : 16);
    this.point(event.pointerType === "touch" ? -1 : i);
    this.choose(i);
  };
  marks.addEventListener("pointerup", up);
  marks.addEventListener("pointercancel", up);
  marks.addEventListener("pointerleave", () => { if (!down.size) this.point(-1); });
  marks.addEventListener("blur", () => this.point(-1));
  marks.addEventListener("wheel", (event) => {
    // Scrolling the page stays scrolling the page: the wheel zooms once the map was clicked, or with Ctrl.
    if (document.activeElement !== marks && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), ...at(event));
  }, { passive: false });
  marks.addEventListener("keydown", (event) => this.key(event));
  for (const button of this.root.querySelectorAll("[data-do]")) {
    button.addEventListener("click", () => ({ in: () => this.zoom(1.6), out: () => this.zoom(1 / 1.6), all: () => this.showAll() })[button.dataset.do]());
  }
  this.find("[name=colour]").addEventListener("change", (event) => this.colourBy(event.target.value));
  this.find("[name=show]").addEventListener("change", () => this.draw());
  const search = this.find("[name=find]");
  search.addEventListener("input", () => { this.query = search.value.trim().toLowerCase(); this.soon(); });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !this.query) return;
    for (let k = 1; k <= this.n; k++) {
      const i = (this.selected + k) % this.n;
      if (this.shown(i)) { this.reveal(i); this.point(i); this.choose(i); break; }
    }
  });
};

for (const root of document.querySelectorAll("[data-map]")) maps.push(new EmbeddingMap(root, data.maps[root.dataset.map]));
atlas.ready().then(() => {
  for (const map of maps) if (map.width) map.draw();
  document.documentElement.dataset.ready = "true";
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const map of maps) map.draw(); });
