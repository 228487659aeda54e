// Device: the network as a strip with the cut, every choice's prediction, latency and choices over time.
import { STATES, clock, color, h, legend, many, ms, put, s } from "./dom.js";
import { timePlot } from "./plot.js";
import { onChange, store } from "./store.js";

const AT_MOST_EVERY = 700; // milliseconds between two fetches

export function deviceView(main, name) {
  const title = h("h1", {}, name);
  const state = h("span", { class: "pill" });
  const tags = h("span", { class: "note" });
  const why = h("p");
  const strip = h("div", { class: "strip", role: "img" });
  const left = h("span"), right = h("span");
  const choices = h("div");
  const latency = h("div", { class: "plot" });
  const history = h("ol", { class: "history", "aria-label": "History of choices, newest first", tabindex: "0" });
  const body = h("div", { class: "stack" },
    h("section", { class: "card why", "aria-label": "Why this now" }, h("h2", {}, "Why this now"), why),
    h("section", { class: "card", "aria-label": "The network" }, h("h2", {}, "The network and its cut"), strip, h("div", { class: "ends" }, left, right)),
    h("div", { class: "two" },
      h("section", { class: "card", "aria-label": "Expected latency" }, h("h2", {}, "Expected latency of every choice"), choices),
      h("section", { class: "card", "aria-label": "History of choices" }, h("h2", {}, "History of choices"), history)),
    h("section", { class: "card", "aria-label": "Latency over time" }, h("div", { class: "bar" }, h("h2", {}, "Latency of the last inferences"), h("span", { class: "grow" }), legend()), latency));
  main.append(h("p", {}, h("a", { href: "#/fleet" }, "← Fleet")), h("div", { class: "head" }, title, state, tags), body);
  let busy = false, again = false, over = false, plot = null;

  async function refresh(changed) {
    if (changed && !changed.has(name)) return;
    if (!store.devices.has(name)) { if (store.live) put(why, "This device is not known here (any more)."); return; }
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(`/api/device?name=${encodeURIComponent(name)}`);
      if (over) return;
      if (answer.ok) show(await answer.json());
    } catch { /* the stream tells that the server is away */ } finally {
      setTimeout(() => { busy = false; if (again && !over) { again = false; refresh(null); } }, AT_MOST_EVERY);
    }
  }

  function show(device) {
    state.className = `pill ${device.state}`;
    put(state, STATES[device.state] ?? device.state);
    put(tags, `${device.type} on ${device.network} · ${device.model} · server ${device.server} · ${many(device.inferences, "inference")} · ${many(device.fallbacks, "fallback")} · ${many(device.uploads, "upload")}`);
    put(why, sentence(device));
    drawStrip(device);
    choices.replaceChildren(drawChoices(device, choices.clientWidth));
    history.replaceChildren(...device.changes.slice(-40).reverse().map((each) => h("li", {}, h("time", {}, clock(each.time)),
      each.codec ? `${each.point_name} (point ${each.point}), ${each.codec}` : "all on the device")));
    if (!device.changes.length) history.replaceChildren(h("li", {}, "No choice is known yet."));
    plot = drawLatency(latency, device.rounds, plot);
  }

  function drawStrip(device) {
    const cut = device.choice ? device.choice.point : -1;
    const nodes = [];
    device.work.slice(1).forEach((share, i) => {
      const point = i + 1;
      if (point - 1 === cut) nodes.push(h("div", { class: "cut" }));
      const block = h("div", { class: point <= cut ? "here" : "there", title: device.points[point] });
      block.style.flexGrow = String(100 * Math.max(share - device.work[i], 0.004));
      nodes.push(block);
    });
    if (cut === device.points.length - 1) nodes.push(h("div", { class: "cut" }));
    strip.replaceChildren(...nodes);
    const where = cut < 0 ? "no choice yet" : cut === device.points.length - 1 ? "everything on the device" : `cut at ${device.points[cut]}`;
    strip.setAttribute("aria-label", `${device.points.length} partition points, ${where}`);
    put(left, cut > 0 ? `on the device: up to ${device.points[cut]}` : "on the device: nothing but the input");
    put(right, cut >= 0 && cut < device.points.length - 1 ? `on the server: ${device.points[cut + 1]} and on` : "on the server: nothing");
  }

  refresh(null);
  const stop = onChange(refresh);
  return () => { over = true; stop(); plot?.destroy(); };
}

function sentence(device) {
  if (!device.choice) return "It has joined and not yet told of an inference.";
  const what = device.choice.codec ? `It cuts at ${device.choice.point_name} and sends ${device.choice.codec}` : "It runs everything itself";
  const because = device.why ? `${what}: ${device.why}.` : `${what}.`;
  if (device.local_ms === null) return because;
  return `${because} Everything on the device would take about ${ms(device.local_ms)}, sending the input about ${ms(device.offload_ms)}.`;
}

/** Drawn as wide as it is shown, so that its words are as large as the others; twice as wide as tall. */
function drawChoices(device, room) {
  const known = device.choices.filter((each) => each.predicted_ms !== null);
  if (!known.length) return h("p", { class: "note" }, "This device has not told what it expects, or its policy expects nothing.");
  const width = Math.max(room, 260), height = Math.max(width / 2, 200), at = { left: 48, right: 12, top: 10, bottom: 22 };
  const codecs = [...new Set(known.map((each) => each.codec))];
  const points = device.points.length;
  const tops = known.map((each) => each.predicted_ms + Math.min(each.width_ms, each.predicted_ms)).sort((a, b) => a - b);
  const top = Math.max(tops[Math.floor(tops.length * 0.9)] ?? tops.at(-1), (device.latency_ms ?? 0) * 1.3, 1) * 1.08;
  const x = (point, lane) => at.left + ((point + 0.5) / points) * (width - at.left - at.right) + (lane - (codecs.length - 1) / 2) * 4;
  const y = (value) => at.top + (1 - Math.min(Math.max(value, 0), top) / top) * (height - at.top - at.bottom);
  const svg = s("svg", { class: "choices", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `expected latency of ${known.length} choices; the present one ${device.choice ? ms(device.choices[device.choice.row].predicted_ms) : "is not known"}` });
  const step = niceStep(top / 4);
  for (let value = 0; value <= top; value += step) {
    svg.append(s("line", { class: "grid", x1: at.left, x2: width - at.right, y1: y(value), y2: y(value) }), s("text", { x: at.left - 6, y: y(value) + 4, "text-anchor": "end" }, String(Number(value.toPrecision(3)))));
  }
  const every = Math.ceil((points * 28) / (width - at.left - at.right));
  for (let point = 0; point < points; point += every) svg.append(s("text", { x: x(point, (codecs.length - 1) / 2), y: height - 4, "text-anchor": "middle" }, String(point)));
  for (const each of known) {
    const lane = codecs.indexOf(each.codec), cx = x(each.point, lane);
    const style = `c${each.codec === "" ? 4 : lane % 4}`;
    svg.append(s("line", { class: `range ${style}`, x1: cx, x2: cx, y1: y(each.predicted_ms - each.width_ms), y2: y(each.predicted_ms + each.width_ms) }));
    const dot = s("circle", { class: style, cx, cy: y(each.predicted_ms), r: 3 }, s("title", {}, `${each.point_name} ${each.codec}: ${ms(each.predicted_ms)} ± ${ms(each.width_ms)}`));
    svg.append(dot);
    if (device.choice && each.row === device.choice.row) svg.append(s("circle", { class: "now", cx, cy: y(each.predicted_ms), r: 8 }));
  }
  const names = codecs.map((codec, lane) => h("span", {}, codecDot(codec === "" ? 4 : lane % 4), codec || "local"));
  return h("div", {}, h("p", { class: "note" }, "Milliseconds by partition point; 0 sends the input, the last one runs all on the device."), svg, h("div", { class: "legend" }, ...names, h("span", {}, "◯ the present choice")));
}

/** 1, 2 or 5 times a power of ten, at least as large. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find((each) => each * power >= least) * power;
}

function codecDot(number) {
  return s("svg", { width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" }, s("circle", { class: `c${number}`, cx: 6, cy: 6, r: 4 }));
}

function drawLatency(node, rounds, before) {
  if (rounds.length < 2) { before?.destroy(); node.replaceChildren(h("p", { class: "note" }, "Not enough inferences yet.")); return null; }
  const times = rounds.map((round) => round[0]);
  const stacked = [4, 3, 2, 1].map((last) => rounds.map((round) => { let sum = 0; for (let i = 1; i <= last; i += 1) sum += round[i]; return sum; }));
  const data = [times, ...stacked];
  if (before) { before.set(data); return before; }
  const parts = ["server", "link", "wait", "front"];
  return timePlot(node, data, {
    height: 240, side: 58, tick: (value) => `${value} ms`, legend: { show: false },
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.05, 1)] } },
    series: [{}, ...parts.map((part) => ({ label: part, stroke: color(part), fill: color(part), width: 0, points: { show: false } }))],
  });
}
