// Events: what happened, newest first, by kind.
import { clock, h, put } from "./dom.js";
import { onChange, store } from "./store.js";

const KINDS = ["join", "leave", "choice", "change", "refusal", "fallback", "overload", "model"];
const off = new Set();
let text = "";

export function eventsView(main) {
  const list = h("ol", { class: "events", "aria-label": "Events, newest first" });
  const shown = h("span", { class: "note", role: "status" });
  const chips = KINDS.map((kind) => h("button", { type: "button", "aria-pressed": String(!off.has(kind)),
    onclick: (event) => {
      off.has(kind) ? off.delete(kind) : off.add(kind);
      event.target.setAttribute("aria-pressed", String(!off.has(kind)));
      refresh();
    } }, kind));
  const search = h("input", { type: "search", placeholder: "Filter events …", "aria-label": "Filter events", value: text,
    oninput: (event) => { text = event.target.value; refresh(); } });
  main.append(h("div", { class: "head" }, h("h1", {}, "Events"), shown),
    h("div", { class: "bar" }, search, h("div", { class: "chips", role: "group", "aria-label": "Kinds of events" }, ...chips)), h("div", { class: "card tablewrap" }, list));
  let last = "";

  function refresh() {
    const wanted = text.toLowerCase();
    const found = store.events.filter((each) => !off.has(each.kind) && `${each.device} ${each.text}`.toLowerCase().includes(wanted)).slice(-200).reverse();
    const key = `${found.length} ${found[0]?.number} ${found.at(-1)?.number}`;
    put(shown, `${found.length} shown`);
    if (key === last) return;
    last = key;
    list.replaceChildren(...found.map((each) => h("li", {}, h("time", {}, clock(each.time)), h("span", { class: `pill ${each.kind}` }, each.kind),
      h("span", { class: "text" }, each.device ? h("a", { href: `#/device/${encodeURIComponent(each.device)}` }, each.device) : "fleet", ` ${each.text}`))));
    if (!found.length) list.replaceChildren(h("li", { class: "empty" }, "Nothing yet."));
  }
  refresh();
  return onChange(refresh);
}
