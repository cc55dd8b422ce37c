"use strict";
/* The page of a collection: a map of images, search by click, a lasso, albums, near-duplicates and outliers. */
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const N = data.files.length, atlas = data.atlas, perSheet = atlas.columns * atlas.columns;
const count = data.tiles.reduce((most, number) => Math.max(most, number + 1), 0);
const canvas = $("stage"), pen = canvas.getContext("2d");
const sheets = atlas.sheets.map((src) => { const image = new Image(); image.src = src; return image; });
const state = { method: Object.keys(data.maps)[0], colour: "", mode: "look", zoom: 1, x: 0, y: 0, selected: null, query: -1, path: null };

/* Thumbnails in the page take their picture from the atlas: one style rule for each sheet. */
const rules = document.createElement("style");
rules.textContent = atlas.sheets.map((src, i) => `.sheet${i} { background-image: url(${src}); }`).join("\n");
document.head.append(rules);

function sizeText(i) {
  const [w, h] = data.sizes[i];
  return w ? `${w} × ${h}` : "";
}

function tile(i, side = 64) {
  const number = data.tiles[i], sheet = Math.floor(number / perSheet), place = number % perSheet;
  const rows = Math.ceil(Math.min(perSheet, count - sheet * perSheet) / atlas.columns);
  const button = document.createElement("button");
  button.type = "button";
  button.className = `tile sheet${sheet}${side > 64 ? " large" : ""}`;
  button.dataset.i = i;
  button.title = data.files[i];
  button.setAttribute("aria-label", `Search with ${data.files[i]}`);
  const column = place % atlas.columns, row = Math.floor(place / atlas.columns);
  button.style.backgroundSize = `${atlas.columns * 100}% ${rows * 100}%`;
  button.style.backgroundPosition = `${column / (atlas.columns - 1) * 100}% ${rows > 1 ? row / (rows - 1) * 100 : 0}%`;
  return button;
}

function tiles(box, numbers, side) {
  box.replaceChildren(...numbers.map((i) => tile(i, side)));
}

/* The map. */
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colourOf = (group) => css(`--c${group}`) || "#888";
function box() { return { width: canvas.clientWidth, height: canvas.clientHeight }; }
function tileSide(zoom = state.zoom) {
  const { width, height } = box();
  return Math.max(8, Math.min(96, Math.sqrt(width * height / N) * 0.75 * Math.sqrt(zoom) * (zoom > 1 ? 1.3 : 1)));
}
/* Positions on the screen: the map fills the frame, but is at most 1.6 times as wide as high. */
function placement() {
  const { width, height } = box(), margin = 1.3 * tileSide(1), map = data.maps[state.method];
  const across = Math.min(width - margin, 1.6 * (height - margin)), down = height - margin;
  return (i) => [
    width / 2 + ((map[i][0] - 0.5) * across + state.x) * state.zoom,
    height / 2 + ((map[i][1] - 0.5) * down + state.y) * state.zoom,
  ];
}

function draw() {
  const { width, height } = box(), ratio = window.devicePixelRatio || 1, side = tileSide();
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const groups = state.colour ? data.groups[state.colour] : null, hit = css("--hit"), position = placement();
  const colours = groups ? groups.names.map((_, g) => colourOf(g)) : [];
  const picture = (i, side, frame, edge) => {
    const [x, y] = position(i);
    if (x < -side || y < -side || x > width + side || y > height + side) return;
    const number = data.tiles[i], place = number % perSheet;
    if (frame) {
      pen.fillStyle = frame;
      pen.fillRect(x - side / 2 - edge, y - side / 2 - edge, side + 2 * edge, side + 2 * edge);
    }
    pen.drawImage(sheets[Math.floor(number / perSheet)], (place % atlas.columns) * atlas.side,
      Math.floor(place / atlas.columns) * atlas.side, atlas.side, atlas.side, x - side / 2, y - side / 2, side, side);
  };
  /* What is selected lies on top, and is larger if it is little; the rest is a faint background. */
  const few = state.selected && state.selected.size <= 40, edge = Math.max(1.5, side / 10);
  pen.globalAlpha = state.selected ? 0.22 : 1;
  for (let i = 0; i < N; i++) {
    if (!state.selected || !state.selected.has(i)) picture(i, side, groups && !state.selected && colours[groups.of[i]], edge);
  }
  pen.globalAlpha = 1;
  for (const i of state.selected || []) picture(i, few ? Math.max(side, 34) : side, groups ? colours[groups.of[i]] : hit, few ? 3 : edge);
  if (state.query >= 0) picture(state.query, Math.max(side, 48), hit, 5);
  if (state.path) {
    pen.strokeStyle = hit;
    pen.lineWidth = 2;
    pen.beginPath();
    state.path.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.stroke();
  }
}
let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

function at(x, y) {
  const position = placement();
  let best = -1, least = (Math.max(tileSide(), 14) * 0.75) ** 2;
  for (let i = 0; i < N; i++) {
    const [a, b] = position(i), d = (a - x) ** 2 + (b - y) ** 2;
    if (d <= least) { least = d; best = i; }
  }
  return best;
}
function inside(path, x, y) {
  let odd = false;
  for (let i = 0, j = path.length - 1; i < path.length; j = i++) {
    const [a, b] = path[i], [c, d] = path[j];
    if ((b > y) !== (d > y) && x < (c - a) * (y - b) / (d - b) + a) odd = !odd;
  }
  return odd;
}

/* The panel: a search or a selection. */
const START = $("panel-note").textContent;
let listed = [];
function panel(title, note, numbers, names = numbers) {
  $("panel-title").textContent = title;
  $("panel-note").textContent = note;
  listed = names;
  $("actions").hidden = !names.length;
  $("done").textContent = "";
  tiles($("panel-images"), numbers.slice(0, 120));
}
function search(i) {
  const near = data.neighbours[i];
  state.selected = new Set([i, ...near]);
  state.query = i;
  const facts = [data.dates[i], sizeText(i)].filter(Boolean).join(", ");
  const note = near.length ? `The image, then the ${near.length} most similar ones, the nearest first:` : "";
  panel(data.files[i], [facts, note].filter(Boolean).join(". "), [i, ...near]);
  $("panel-images").firstChild.classList.add("large");
  redraw();
}
function select(numbers, title) {
  state.selected = numbers.length ? new Set(numbers) : null;
  state.query = -1;
  const note = numbers.length > 120 ? "The first 120 are shown here; the file names are those of all." : "";
  if (numbers.length) panel(title, note, numbers);
  else panel("Nothing is selected", START, []);
  redraw();
}
function names() { return listed.map((i) => data.files[i]).join("\n") + "\n"; }
function fallbackCopy(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
$("copy").addEventListener("click", async () => {
  let done = true;
  try { await navigator.clipboard.writeText(names()); } catch { done = fallbackCopy(names()); }
  $("done").textContent = done ? `${listed.length} name${listed.length === 1 ? "" : "s"} copied` : "The browser does not allow copying; save the names instead.";
});
$("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([names()], { type: "text/plain" }));
  link.download = "selection.txt";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  $("done").textContent = "Saved as selection.txt";
});
function clear() { $("find").value = ""; select([], ""); }
$("clear").addEventListener("click", clear);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });
$("find").addEventListener("input", () => {
  const text = $("find").value.trim();
  const found = (file) => file.toLowerCase().includes(text.toLowerCase());
  const numbers = text ? data.files.flatMap((file, i) => (found(file) ? [i] : [])) : [];
  select(numbers, `${numbers.length} file name${numbers.length === 1 ? "" : "s"} with “${text}”`);
  if (text && !numbers.length) panel("No file name contains this text", START, []);
});

/* Mouse and touch: a click searches, a drag pans or draws the lasso, two fingers or the wheel zoom. */
let drag = null, apart = 0;
const fingers = new Map();
const point = (event) => { const b = canvas.getBoundingClientRect(); return [event.clientX - b.left, event.clientY - b.top]; };
canvas.addEventListener("pointerdown", (event) => {
  const [x, y] = point(event);
  fingers.set(event.pointerId, [x, y]);
  hover(-1);
  apart = 0;
  if (fingers.size > 1) { drag = null; state.path = null; return; }
  drag = { x, y, fromX: state.x, fromY: state.y, moved: false };
  if (state.mode === "lasso") state.path = [[x, y]];
  try { canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone */ }
});
canvas.addEventListener("pointermove", (event) => {
  const [x, y] = point(event);
  if (fingers.has(event.pointerId)) fingers.set(event.pointerId, [x, y]);
  if (fingers.size === 2) {
    const [[ax, ay], [bx, by]] = fingers.values(), distance = Math.hypot(ax - bx, ay - by);
    if (apart) zoom(distance / apart, (ax + bx) / 2, (ay + by) / 2);
    apart = distance;
    return;
  }
  if (!drag) { if (event.pointerType !== "touch") hover(at(x, y)); return; }
  if (Math.hypot(x - drag.x, y - drag.y) > 4) drag.moved = true;
  if (state.mode === "lasso") state.path.push([x, y]);
  else if (drag.moved) { state.x = drag.fromX + (x - drag.x) / state.zoom; state.y = drag.fromY + (y - drag.y) / state.zoom; }
  redraw();
});
function release(event) {
  fingers.delete(event.pointerId);
  if (!drag) return;
  const [x, y] = point(event), moved = drag.moved, path = state.path;
  drag = null;
  state.path = null;
  if (!moved) {
    const i = at(x, y);
    if (i >= 0) search(i); else select([], "");
  } else if (path) {
    const numbers = [], position = placement();
    for (let i = 0; i < N; i++) if (inside(path, ...position(i))) numbers.push(i);
    select(numbers, `${numbers.length} image${numbers.length === 1 ? "" : "s"} selected`);
  }
  redraw();
}
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", (event) => { fingers.delete(event.pointerId); drag = null; state.path = null; redraw(); });
canvas.addEventListener("pointerleave", () => hover(-1));
/* The image under the mouse, larger, with its name. */
function hover(i) {
  const card = $("card");
  card.hidden = i < 0;
  if (i < 0) return;
  const [x, y] = placement()(i), { width, height } = box(), name = document.createElement("span");
  name.textContent = data.files[i];
  card.replaceChildren(tile(i, 128), name);
  card.style.left = `${canvas.offsetLeft + (x + 170 > width ? x - 20 - card.offsetWidth : x + 20)}px`;
  card.style.top = `${canvas.offsetTop + Math.max(0, Math.min(height - card.offsetHeight, y - 70))}px`;
}
/* Zoom around a point, which stays where it is. */
function zoom(factor, px = box().width / 2, py = box().height / 2) {
  const { width, height } = box(), before = state.zoom;
  state.zoom = Math.min(40, Math.max(1, before * factor));
  state.x += (px - width / 2) * (1 / state.zoom - 1 / before);
  state.y += (py - height / 2) * (1 / state.zoom - 1 / before);
  if (state.zoom === 1) state.x = state.y = 0;
  canvas.classList.toggle("zoomed", state.zoom > 1);
  hover(-1);
  redraw();
}
canvas.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.shiftKey && state.zoom === 1 && event.deltaY > 0) return;
  event.preventDefault();
  zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, ...point(event));
}, { passive: false });
$("in").addEventListener("click", () => zoom(1.5));
$("out").addEventListener("click", () => zoom(1 / 1.5));
$("reset").addEventListener("click", () => { zoom(1 / state.zoom); clear(); });
for (const mode of ["look", "lasso"]) {
  $(mode).addEventListener("click", () => {
    state.mode = mode;
    canvas.classList.toggle("drawing", mode === "lasso");
    for (const other of ["look", "lasso"]) $(other).setAttribute("aria-pressed", String(other === mode));
  });
}

/* Choices and the legend. */
for (const method of Object.keys(data.maps)) $("method").append(new Option(method, method));
for (const kind of Object.keys(data.groups)) $("colour").append(new Option(kind, kind));
function legend() {
  const groups = state.colour ? data.groups[state.colour] : { names: [], of: [] };
  $("legend").replaceChildren(...groups.names.map((name, g) => {
    const numbers = groups.of.flatMap((other, i) => (other === g ? [i] : []));
    const button = document.createElement("button"), dot = document.createElement("i");
    button.type = "button";
    dot.style.setProperty("--c", colourOf(g));
    button.append(dot, `${name} (${numbers.length})`);
    button.addEventListener("click", () => select(numbers, `${name}: ${numbers.length} images`));
    return button;
  }));
}
$("method").addEventListener("change", (event) => { state.method = event.target.value; redraw(); });
$("colour").addEventListener("change", (event) => { state.colour = event.target.value; legend(); redraw(); });

/* Albums, near-duplicates, outliers. */
function heading(text, action) {
  const h = document.createElement("h3"), button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.addEventListener("click", action);
  h.append(button);
  return h;
}
/* The sub-folder that most images of an album come from. */
function mostly(members) {
  const { names, of } = data.groups.folder, counts = new Map();
  for (const i of members) counts.set(of[i], (counts.get(of[i]) || 0) + 1);
  const [group, most] = [...counts].reduce((a, b) => (b[1] > a[1] ? b : a));
  return names.length > 1 && most > 0.6 * members.length ? `${most === members.length ? "all" : "mostly"} ${names[group]}` : "";
}
$("album-list").append(...data.albums.map((members, k) => {
  const album = document.createElement("div"), right = document.createElement("div"), rest = document.createElement("div");
  album.className = "album";
  rest.className = "tiles";
  tiles(rest, members.slice(1, 9));
  const about = document.createElement("p");
  about.textContent = mostly(members);
  right.append(heading(`Album ${k + 1}: ${members.length} image${members.length === 1 ? "" : "s"}`, () => {
    select(members, `Album ${k + 1}: ${members.length} images`);
    $("map").scrollIntoView();
  }), about, rest);
  album.append(tile(members[0], 128), right);
  return album;
}));
function nothing(list, text) { if (!list.childElementCount) list.textContent = text; }
$("duplicate-list").append(...data.duplicates.map((group) => {
  const row = document.createElement("div"), pictures = document.createElement("div"), files = document.createElement("ol");
  row.className = "row";
  pictures.className = "tiles";
  tiles(pictures, group.members.slice(0, 12));
  files.append(...group.members.map((i) => {
    const item = document.createElement("li"), facts = document.createElement("small");
    facts.textContent = ` ${sizeText(i)}`;
    item.append(data.files[i], facts);
    return item;
  }));
  row.append(heading(group.exact ? "Exact copies" : "Near-duplicates", () => select(group.members, `${group.members.length} near-duplicates`)), pictures, files);
  return row;
}));
nothing($("duplicate-list"), "None were found.");
const copies = data.duplicates.flatMap((group) => group.members.slice(1));
$("copies").hidden = !copies.length;
$("copies").addEventListener("click", () => {
  select(copies, `${copies.length} cop${copies.length === 1 ? "y" : "ies"} of a larger file`);
  $("map").scrollIntoView();
});
tiles($("outlier-list"), data.outliers, 128);
document.querySelector("main").addEventListener("click", (event) => {
  const button = event.target.closest("button.tile");
  if (!button) return;
  search(Number(button.dataset.i));
  if (!$("panel").contains(button)) $("map").scrollIntoView();
});

new ResizeObserver(redraw).observe(canvas);
Promise.all(sheets.map((image) => image.decode().catch(() => null))).then(() => {
  draw();
  document.documentElement.dataset.ready = "true";
});
