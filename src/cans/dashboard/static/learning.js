// Learning: what the pools know, in units that people use, and whether the fleet gets better.
import { amount, clock, color, duration, h, many, ms, put } from "./dom.js";
import { timePlot } from "./plot.js";
import { store } from "./store.js";

const EVERY = 2000; // milliseconds
const KINDS = { front: "group of devices", link: "network", server: "server", back: "link and server", joint: "everything" };

export function learningView(main) {
  const saved = h("div", { class: "plot" });
  const latency = h("div", { class: "plot" });
  const total = h("span", { class: "note" });
  const load = h("p", { class: "note" });
  const pools = h("section", { "aria-label": "What is known" });
  const changes = h("ol", { class: "history", "aria-label": "Detected changes, newest first", tabindex: "0" });
  main.append(h("div", { class: "head" }, h("h1", {}, "Learning"), total), h("div", { class: "stack" },
    h("div", { class: "two" },
      h("section", { class: "card", "aria-label": "Latency of the fleet" }, h("h2", {}, "Mean latency of the fleet"), latency),
      h("section", { class: "card", "aria-label": "Saved time" }, h("h2", {}, "Time saved, in total"), saved)),
    pools,
    h("section", { class: "card", "aria-label": "Detected changes" }, h("h2", {}, "Detected changes"), changes), load));
  const plots = {};
  let over = false, timer = 0;

  async function refresh() {
    try {
      const answer = await fetch("/api/learning");
      if (answer.ok && !over) show(await answer.json());
    } catch { /* the stream tells that the server is away */ }
    if (!over) timer = setTimeout(refresh, EVERY);
  }

  function show(found) {
    put(total, `policy ${found.policy}; ${found.uploads.merged} uploads merged, ${found.uploads.refused} refused`);
    put(load, `The server: ${found.load.running} of ${found.load.workers} workers busy, ${found.load.waiting} requests waiting, median wait ${ms(found.load.queue_ms)}.`);
    const order = Object.keys(KINDS);
    const all = found.pools.sort((a, b) => order.indexOf(a.part) - order.indexOf(b.part) || a.name.localeCompare(b.name));
    pools.replaceChildren(h("h2", {}, "What is known"), h("div", { class: "pools" }, ...all.map(card)));
    if (!all.length) pools.replaceChildren(h("div", { class: "card empty" }, "Nothing is pooled yet."));
    const seen = store.events.filter((each) => each.kind === "change").slice(-30).reverse();
    changes.replaceChildren(...seen.map((each) => h("li", {}, h("time", {}, clock(each.time)), each.text)));
    if (!seen.length) changes.replaceChildren(h("li", {}, "No change of a link, a group or the server was detected."));
    const marks = seen.map((each) => each.time);
    draw(plots, "latency", latency, found.trend, [["mean latency", "front", (each) => each.latency_ms]], (tick) => `${tick} ms`, marks);
    draw(plots, "saved", saved, found.trend, [["against always local", "link", (each) => each.saved_local_s], ["against always offload", "server", (each) => each.saved_offload_s]], (tick) => duration(tick), marks);
  }

  refresh();
  return () => { over = true; clearTimeout(timer); for (const { plot } of Object.values(plots)) plot.destroy(); };
}

function card(pool) {
  const quantities = pool.quantities.map((each) => {
    const open = each.high === null;
    const top = (open ? each.value * 2 : each.high) * 1.1 || 1;
    const range = h("i"), dot = h("b");
    const low = each.low ?? 0, high = open ? top : each.high;
    range.style.left = `${(100 * low) / top}%`;
    range.style.width = `${(100 * (high - low)) / top}%`;
    dot.style.left = `calc(${(100 * each.value) / top}% - 2px)`;
    const text = `${amount(low)} to ${open ? "?" : amount(each.high)} ${each.unit}`;
    return h("div", { class: "quantity" }, h("span", { class: "sub" }, each.label), h("div", { class: "big" }, amount(each.value), h("small", {}, each.unit)),
      h("div", { class: "range", "aria-hidden": "true" }, range, dot), h("span", { class: "sub" }, text));
  });
  return h("article", { class: "card pool" }, h("span", { class: "pill tag" }, KINDS[pool.part] ?? pool.part), h("h3", {}, pool.name === "everyone" ? "this server" : pool.name), h("span", { class: "sub" }, pool.model), ...quantities,
    quantities.length ? null : h("p", { class: "note" }, "Too little is known to put it in units."),
    h("p", { class: "note" }, `${many(pool.observations, "observation")}, ${many(pool.uploads, "upload")}, last ${pool.age_s === null ? "before this server started" : `${duration(pool.age_s)} ago`}${pool.epoch ? `; started anew ${pool.epoch}×` : ""}`));
}

function draw(plots, name, node, trend, lines, tick, marks) {
  if (trend.length < 2) { node.replaceChildren(h("p", { class: "note" }, "A line needs a few seconds.")); return; }
  const data = [trend.map((each) => each.time), ...lines.map(([, , read]) => trend.map(read))];
  if (plots[name]) { plots[name].marks.splice(0, Infinity, ...marks); plots[name].plot.set(data); return; }
  const shown = [...marks];
  const plot = timePlot(node, data, {
    height: 220, side: 66, tick, legend: { show: lines.length > 1, live: false },
    scales: { y: { range: (_, low, high) => [Math.min(low, 0), Math.max(high * 1.08, 1)] } },
    hooks: { draw: [(drawn) => drawMarks(drawn, shown)] },
    series: [{}, ...lines.map(([label, part]) => ({ label, stroke: color(part), width: 2, points: { show: false }, spanGaps: true }))],
  });
  plots[name] = { plot, marks: shown };
}

/** A dashed line at each detected change. */
function drawMarks(plot, marks) {
  const paint = plot.ctx, { left, top, width, height } = plot.bbox;
  paint.save();
  paint.strokeStyle = color("wait");
  paint.setLineDash([5, 4]);
  for (const mark of marks) {
    const x = plot.valToPos(mark, "x", true);
    if (x < left || x > left + width) continue;
    paint.beginPath(); paint.moveTo(x, top); paint.lineTo(x, top + height); paint.stroke();
  }
  paint.restore();
}
