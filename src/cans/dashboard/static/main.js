// Routing, keys and the theme. Each view is a function that fills <main> and returns how to leave it.
import { connect } from "./store.js";
import { fleetView } from "./fleet.js";
import { deviceView } from "./device.js";
import { learningView } from "./learning.js";
import { eventsView } from "./events.js";

const main = document.getElementById("main");
const VIEWS = { fleet: fleetView, learning: learningView, events: eventsView };
let leave = () => {};

function route() {
  const [name, argument] = location.hash.replace(/^#\//, "").split("/", 2);
  const view = name === "device" ? deviceView : VIEWS[name] ?? fleetView;
  const shown = view === fleetView ? "fleet" : name;
  leave();
  main.replaceChildren();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === (shown === "device" ? "fleet" : shown)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave = view(main, decoded(argument ?? ""));
}

/** A name as it was before it went into the address; an address that somebody mistyped stays as it is. */
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function showLink(state, text) {
  document.getElementById("link").className = `link ${state}`;
  document.getElementById("link-text").textContent = text;
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("cans-theme", root.dataset.theme); } catch { /* not kept */ }
  route();
}

function move(step) {
  const rows = [...document.querySelectorAll("tbody tr:not([hidden]) .name a")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  rows[Math.min(Math.max(at + step, 0), rows.length - 1)].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (location.hash.startsWith("#/device/")) location.hash = "#/fleet";
    return;
  }
  if (typing) return;
  const keys = { f: "#/fleet", l: "#/learning", e: "#/events" };
  if (keys[event.key]) location.hash = keys[event.key];
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "/") {
    const search = main.querySelector("input[type=search]");
    if (search) { search.focus(); event.preventDefault(); }
  }
});
document.getElementById("theme").addEventListener("click", switchTheme);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); }); // "#main" is no view
addEventListener("hashchange", () => { route(); main.focus({ preventScroll: true }); scrollTo(0, 0); });
route();
connect(showLink);
