// Small helpers. Text from devices only ever becomes text nodes: nothing here parses HTML.

/** An element with attributes and children; strings become text. */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((each) => each !== null && each !== undefined));
  return node;
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Change text only when it differs, so that a screen reader and a selection are left alone. */
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 9995) return `${(value / 1000).toFixed(1)} s`;
  return value >= 100 ? `${value.toFixed(0)} ms` : `${value.toFixed(1)} ms`;
}

export function amount(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  if (value >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(value >= 10 ? 1 : 2);
}

/** "1 upload", "2 uploads" */
export function many(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

export function duration(seconds) {
  const value = Math.abs(seconds);
  const sign = seconds <= -0.05 ? "−" : ""; // no minus before nothing
  if (value < 90) return `${sign}${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 5400) return `${sign}${(value / 60).toFixed(1)} min`;
  return `${sign}${(value / 3600).toFixed(1)} h`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export const STATES = { offloading: "offloading", local: "local", breaker: "breaker open", gone: "gone", new: "new" };
export const PARTS = [["front", "front-end"], ["wait", "waiting"], ["link", "link"], ["server", "server"]];

export function legend() {
  return h("div", { class: "legend" }, ...PARTS.map(([part, word]) =>
    h("span", {}, h("i", { class: part === "link" ? "linkpart" : part }), word)));
}
