"use strict";
// What makes the page alive: values on the curves, tabs, cells of large matrices, the place in the navigation.
// Names come from files of other people: they reach the page through textContent only, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.querySelector(".tip");

/** A new element with text and attributes; the only way in which this script adds to the page. */
function make(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  if (text !== "") element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function showTip(event, lines) {
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.min(innerHeight - height - 4, Math.max(4, event.clientY - height / 2))}px`;
}

const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

// ------------------------------------------------------------------------------------------------------- charts

function nearestIndex(sorted, x) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < x) low = middle; else high = middle;
  }
  return x - sorted[low] < sorted[high] - x ? low : high;
}

function chart(figure, drawn) {
  const svg = figure.querySelector("svg"), cursor = svg.querySelector(".cursor");
  const [left, right] = drawn.plot, [low, high] = drawn.x;
  const hide = () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    if (at < left - 6 || at > right + 6) return hide();
    const wanted = low + (at - left) / (right - left) * (high - low);
    const longest = drawn.lines.reduce((a, b) => (a.x.length < b.x.length ? b : a));
    const x = longest.x[nearestIndex(longest.x, wanted)];
    const lines = [make("div", `${drawn.label} ${digits.format(x)}`)];
    for (const line of drawn.lines) {
      const place = nearestIndex(line.x, x);
      if (Math.abs(line.x[place] - x) > (high - low) / 20) continue;
      const row = make("div"), swatch = make("i");
      swatch.style.setProperty("--c", `var(--s${line.colour})`);
      row.append(swatch, make("span", `${line.name} ${digits.format(line.y[place])}`));
      lines.push(row);
    }
    const where = left + (x - low) / (high - low) * (right - left);
    cursor.setAttribute("x1", where);
    cursor.setAttribute("x2", where);
    cursor.setAttribute("visibility", "visible");
    showTip(event, lines);
  });
  svg.addEventListener("pointerleave", hide);
}

document.querySelectorAll("figure.chart").forEach((figure, i) => chart(figure, data.charts[i]));

// --------------------------------------------------------------------------------------------------------- tabs

for (const list of document.querySelectorAll("[role=tablist]")) {
  const tabs = [...list.querySelectorAll("[role=tab]")];
  const select = (selected, focus) => {
    for (const tab of tabs) {
      const on = tab === selected;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !on;
    }
    if (focus) selected.focus();
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) select(tabs[(i + step + tabs.length) % tabs.length], true);
    });
  });
  select(tabs[0]);
}

// ----------------------------------------------------------------------------------------------- large matrices

for (const image of document.querySelectorAll("img.heat")) {
  const { classes, values } = data.matrices[image.dataset.matrix];
  const readout = image.closest("figure").querySelector(".readout");
  image.addEventListener("pointermove", (event) => {
    const box = image.getBoundingClientRect(), n = classes.length;
    const column = Math.min(n - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * n)));
    const row = Math.min(n - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * n)));
    readout.textContent = `${classes[row]} → ${classes[column]}: ${values[row][column]} %`;
    showTip(event, [make("div", readout.textContent)]);
  });
  image.addEventListener("pointerleave", () => { tip.hidden = true; });
}

// -------------------------------------------------------------------------------------------- navigation, print

if ("IntersectionObserver" in window) {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -75% 0px" });
  document.querySelectorAll("main > section").forEach((section) => observer.observe(section));
}
addEventListener("beforeprint", () => document.querySelectorAll("details[data-print]").forEach((d) => { d.open = true; }));
