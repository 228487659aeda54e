// Fleet: a row per device. Rows are made once and brought up to date; only what changed is drawn.
import { STATES, amount, color, duration, h, legend, ms, put, s } from "./dom.js";
import { onChange, store } from "./store.js";

const COLUMNS = [
  ["device", "Device", (row) => row.device],
  ["network", "Network, server", (row) => `${row.network} ${row.server}`],
  ["model", "Model", (row) => row.model],
  ["where", "Cut", (row) => (row.choice ? row.choice.row : -1)],
  ["latency", "Latency", (row) => row.latency_ms ?? Infinity],
  ["against", "Compared with", (row) => gain(row) ?? Infinity],
  ["state", "State", (row) => row.state],
  ["inferences", "Inferences", (row) => row.inferences],
];
let sort = { column: "device", down: false };
let filter = { text: "", state: "" };

function gain(row) {
  if (row.latency_ms === null || row.local_ms === null) return null;
  return row.latency_ms / Math.min(row.local_ms, row.offload_ms);
}

export function fleetView(main) {
  const rows = new Map();
  const kpis = makeKpis();
  const body = h("tbody");
  const search = h("input", { type: "search", placeholder: "Filter: name, network, cut …", "aria-label": "Filter devices", value: filter.text,
    oninput: (event) => { filter.text = event.target.value; arrange(); } });
  const states = h("select", { "aria-label": "Show devices in state", onchange: (event) => { filter.state = event.target.value; arrange(); } },
    h("option", { value: "" }, "all states"), ...Object.entries(STATES).map(([value, word]) => h("option", { value, selected: value === filter.state }, word)));
  const shown = h("span", { class: "note", role: "status", id: "shown" });
  const heads = COLUMNS.map(([key, word]) => h("th", { scope: "col", "data-key": key },
    h("button", { type: "button", onclick: () => { sort = { column: key, down: sort.column === key && !sort.down }; arrange(); } }, word)));
  const empty = h("div", { class: "card empty" }, h("p", {}, "No device has joined yet."),
    h("p", {}, "On a device: ", h("code", {}, "cans device --server THIS-HOST:7070")));
  const table = h("div", { class: "card tablewrap" }, h("table", { class: "fleet" },
    h("caption", { class: "hidden" }, "Devices of the fleet"), h("thead", {}, h("tr", {}, ...heads)), body));
  main.append(h("h1", { class: "hidden" }, "Fleet"), kpis.node, h("div", { class: "bar" }, search, states, shown, h("span", { class: "grow" }), legend()), table, empty);

  function visible(row) {
    if (filter.state && row.state !== filter.state) return false;
    const where = row.choice ? `${row.choice.point_name} ${row.choice.codec}` : "";
    const text = `${row.device} ${row.type} ${row.network} ${row.server} ${row.model} ${row.state} ${where}`.toLowerCase();
    return filter.text.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  function arrange() {
    const value = COLUMNS.find(([key]) => key === sort.column)[2];
    const order = [...store.devices.values()].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const found = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
      return (sort.down ? -found : found) || a.device.localeCompare(b.device, undefined, { numeric: true });
    });
    let count = 0;
    const nodes = order.map((row) => {
      const { node } = rows.get(row.device);
      node.hidden = !visible(row);
      count += !node.hidden;
      return node;
    });
    const same = nodes.length === body.children.length && nodes.every((node, i) => node === body.children[i]);
    if (!same) body.replaceChildren(...nodes);
    for (const head of heads) {
      const mine = head.dataset.key === sort.column;
      head.setAttribute("aria-sort", mine ? (sort.down ? "descending" : "ascending") : "none");
    }
    put(shown, `${count} of ${order.length} devices`);
    table.hidden = !order.length;
    empty.hidden = order.length > 0 || !store.live;
  }

  function refresh(changed) {
    for (const name of rows.keys()) if (!store.devices.has(name)) rows.delete(name);
    for (const [name, row] of store.devices) {
      if (!rows.has(name)) rows.set(name, makeRow(name));
      else if (changed && !changed.has(name)) continue;
      rows.get(name).update(row);
    }
    kpis.update();
    arrange();
  }

  refresh(null);
  return onChange(refresh);
}

function makeKpis() {
  const cells = [
    ["devices", "Devices", (t) => [t.devices, inStates(t.states)]],
    ["latency", "Mean latency", (t) => [ms(t.latency_ms), "last 20 s"], (t) => t.latency_ms],
    ["rate", "Inferences/s", (t) => [amount(t.per_second), ""], (t) => t.per_second],
    ["saved", "Saved over always local", (t) => [duration(t.saved_local_s), "in total"]],
    ["saved2", "Saved over always offload", (t) => [duration(t.saved_offload_s), "in total"]],
  ].map(([key, word, read, line]) => {
    const value = document.createTextNode("–");
    const small = h("small");
    const trend = line ? s("svg", { class: "trend", viewBox: "0 0 100 26", preserveAspectRatio: "none", "aria-hidden": "true" }) : null;
    return { node: h("div", { class: "kpi", "data-kpi": key }, h("dt", {}, word), h("dd", {}, value, small), trend), value, small, read, line, trend };
  });
  return {
    node: h("dl", { class: "kpis" }, ...cells.map((cell) => cell.node)),
    update() {
      if (!store.totals) return;
      for (const cell of cells) {
        const [text, more] = cell.read(store.totals);
        if (cell.value.data !== String(text)) cell.value.data = String(text);
        put(cell.small, more);
        if (cell.trend) drawTrend(cell.trend, store.trend.map(cell.line));
      }
    },
  };
}

/** "7 offloading, 1 local": the states that any device is in. */
function inStates(states) {
  return Object.keys(STATES).filter((state) => states[state]).map((state) => `${states[state]} ${STATES[state]}`).join(", ");
}

/** A line of the last minutes, from zero: does it get better? */
function drawTrend(svg, values) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return svg.replaceChildren();
  const top = Math.max(...known) * 1.05 || 1;
  const points = known.map((value, i) => `${((100 * i) / (known.length - 1)).toFixed(1)},${(26 - (24 * value) / top).toFixed(1)}`);
  svg.replaceChildren(s("polygon", { points: `0,26 ${points.join(" ")} 100,26` }), s("polyline", { points: points.join(" ") }));
}

function makeRow(name) {
  const link = h("a", { href: `#/device/${encodeURIComponent(name)}` }, name);
  const type = h("span", { class: "sub" });
  const network = h("span"), server = h("span", { class: "sub" });
  const model = h("span");
  const where = h("b");
  const codec = h("span", { class: "sub" });
  const here = h("i");
  const track = h("div", { class: "track", "aria-hidden": "true" }, here);
  const canvas = h("canvas", { width: 336, height: 72, role: "img" });
  const latency = h("b");
  const local = h("div"), offload = h("div");
  const state = h("span");
  const inferences = h("span");
  const node = h("tr", { "data-device": name },
    h("td", { class: "name" }, link, type), h("td", { class: "path" }, network, server), h("td", { class: "model" }, model), h("td", { class: "where" }, where, codec, track),
    h("td", { class: "c-latency" }, h("div", { class: "spark" }, canvas, latency)), h("td", { class: "against" }, local, offload),
    h("td", { class: "c-state" }, state), h("td", { class: "num" }, inferences, h("span", { class: "unit" }, " inferences")));
  return {
    node,
    update(row) {
      put(type, row.type);
      put(network, row.network);
      put(server, row.server);
      put(model, row.model);
      const isLocal = row.state === "local" || row.state === "breaker";
      put(where, row.choice ? (isLocal ? "all on device" : row.choice.point_name) : "–");
      put(codec, row.choice && row.choice.codec ? `point ${row.choice.point}, ${row.choice.codec}` : "");
      track.classList.toggle("local", isLocal);
      track.classList.toggle("none", !row.choice);
      here.style.width = row.cut_share !== null ? `${100 * row.cut_share}%` : "0";
      put(latency, ms(row.latency_ms));
      against(local, "local", row.local_ms, row.latency_ms);
      against(offload, "offload", row.offload_ms, row.latency_ms);
      state.className = `pill ${row.state}`;
      put(state, STATES[row.state] ?? row.state);
      put(inferences, amount(row.inferences));
      const last = row.rounds.at(-1);
      canvas.setAttribute("aria-label", last
        ? `latency of ${name}: ${ms(last[5])}, front-end ${ms(last[1])}, waiting ${ms(last[2])}, link ${ms(last[3])}, server ${ms(last[4])}`
        : `no latency of ${name} is known yet`);
      requestAnimationFrame(() => sparkline(canvas, row.rounds));
    },
  };
}

function against(node, word, estimate, latency) {
  if (estimate === null || latency === null) return put(node, `${word} –`);
  const share = Math.round((latency / estimate - 1) * 100);
  const text = `${word} ${ms(estimate)}`;
  const better = share <= 0;
  const delta = share === 0 ? "±0 %" : `${better ? "−" : "+"}${Math.abs(share)} %`;
  if (node.dataset.shown === text + delta) return;
  node.dataset.shown = text + delta;
  node.replaceChildren(`${text} `, h("span", { class: better ? "up" : "down" }, delta));
}

const BARS = 48;
function sparkline(canvas, rounds) {
  const paint = canvas.getContext("2d");
  const { width, height } = canvas;
  paint.clearRect(0, 0, width, height);
  const seen = rounds.slice(-BARS);
  const sorted = seen.map((round) => round[5]).sort((a, b) => a - b);
  const middle = sorted[Math.floor(sorted.length / 2)] ?? 1; // a few slow ones must not flatten the rest
  const top = Math.max(Math.min((sorted[Math.floor(sorted.length * 0.95)] ?? 1) * 1.1, middle * 2.2), 0.01);
  const colors = ["front", "wait", "link", "server"].map(color);
  const step = width / BARS;
  seen.forEach((round, i) => {
    const x = width - (seen.length - i) * step;
    let y = height;
    for (let part = 0; part < 4; part += 1) {
      const tall = Math.min((round[part + 1] / top) * height, y);
      paint.fillStyle = colors[part];
      paint.fillRect(x, y - tall, Math.max(step - 1.5, 1), tall);
      y -= tall;
    }
    if (round[6]) { paint.fillStyle = color("bad"); paint.fillRect(x, height - 4, Math.max(step - 1.5, 1), 4); }
  });
}
