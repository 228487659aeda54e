// Lines over time with uPlot: the axes of the page's colours, as wide as what they stand in.
import { color } from "./dom.js";

/** A plot that fills `node`; `destroy()` it when its view is left. */
export function timePlot(node, data, { height, tick, side, ...options }) {
  node.replaceChildren();
  const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 } };
  const plot = new uPlot({
    width: node.clientWidth || 500, height, cursor: { y: false },
    axes: [axis, { ...axis, size: side, values: (_, ticks) => ticks.map(tick) }],
    ...options,
  }, data, node);
  const watch = new ResizeObserver(() => {
    if (node.clientWidth && node.clientWidth !== plot.width) plot.setSize({ width: node.clientWidth, height });
  });
  watch.observe(node);
  return {
    set(next) { plot.setData(next); },
    destroy() { watch.disconnect(); plot.destroy(); },
  };
}
