// What the page knows: filled by the stream of events, read by the views.

const KEPT_ROUNDS = 60;
const KEPT_EVENTS = 500;

const KEPT_TREND = 150; // a sample of the totals every second: two and a half minutes

export const store = { devices: new Map(), events: [], totals: null, trend: [], live: false };
const listeners = new Set();

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(changed) {
  for (const each of listeners) each(changed);
}

function take(row) {
  const before = store.devices.get(row.device);
  const known = before && before.counted <= row.counted ? before : null; // else it has joined anew
  const fresh = row.rounds.slice(known ? Math.max(row.rounds.length - (row.counted - known.counted), 0) : 0);
  const rounds = known ? known.rounds.concat(fresh) : fresh;
  store.devices.set(row.device, { ...row, rounds: rounds.slice(-KEPT_ROUNDS) });
}

function count(totals) {
  store.totals = totals;
  const last = store.trend.at(-1);
  if (!last || totals.time - last.time >= 1) store.trend = store.trend.concat(totals).slice(-KEPT_TREND);
}

export function connect(show) {
  const source = new EventSource("/api/stream");
  source.addEventListener("snapshot", (event) => {
    const body = JSON.parse(event.data);
    store.devices = new Map();
    body.devices.forEach(take);
    store.events = body.events;
    count(body.totals);
    store.live = true;
    show("live", "live");
    tell(null);
  });
  source.addEventListener("delta", (event) => {
    const body = JSON.parse(event.data);
    body.devices.forEach(take);
    body.gone.forEach((name) => store.devices.delete(name));
    store.events = store.events.concat(body.events).slice(-KEPT_EVENTS);
    count(body.totals);
    tell(new Set(body.devices.map((row) => row.device)));
  });
  source.onerror = () => {
    store.live = false;
    show("lost", "server does not answer; trying again");
    if (source.readyState === EventSource.CLOSED) setTimeout(() => connect(show), 1000);
  };
  return source;
}
