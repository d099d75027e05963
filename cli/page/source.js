// Where the page gets its data: from the program that serves it, or from the report it lies in.
"use strict";
const gradus = {};

{
  // Numbers as ranges, so that a thousand runs fit into an address: 0-9,12.
  const ranges = ids => {
    const sorted = [...ids].sort((a, b) => a - b), parts = [];
    for (let i = 0; i < sorted.length;) {
      let j = i;
      while (j + 1 < sorted.length && sorted[j + 1] === sorted[j] + 1) ++j;
      parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
      i = j + 1;
    }
    return parts.join(",");
  };

  const get = async (path, query, kind) => {
    const answer = await fetch(`${path}?${new URLSearchParams(query)}`);
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return kind === "bytes" ? answer.arrayBuffer() : answer.json();
  };

  // The form of /api/curves, see serve_api.cpp.
  const unpack = bytes => {
    const words = new Uint32Array(bytes, 0, Math.floor(bytes.byteLength / 4));
    const count = words[0], curves = new Map();
    let at = Math.ceil((4 + 12 * count) / 8) * 8;
    for (let i = 0; i < count; ++i) {
      const run = words[1 + 3 * i], points = words[2 + 3 * i], total = words[3 + 3 * i];
      const x = new Float64Array(bytes, at, points);
      const y = new Float64Array(bytes, at + 8 * points, points);
      at += 16 * points;
      curves.set(run, {x, y, total});
    }
    return curves;
  };

  // Objects whose keys are names of metrics and settings inherit nothing: one may be "constructor".
  const bare = object => object ? Object.setPrototypeOf(object, null) : object;
  const bareOverview = found => {
    bare(found.settings);
    for (const run of found.runs ?? []) bare(run.last);
    return found;
  };
  const bareStudies = studies => {
    for (const study of studies) for (const trial of study.trials) bare(trial.params);
    return studies;
  };

  const live = {
    isLive: true,
    overview: async since => bareOverview(await get("api/runs", {since})),
    run: id => get("api/run", {id}),
    studies: async () => bareStudies(await get("api/studies", {})),
    samples: (id, file, from, count) => get("api/samples", {id, file, from, count}),
    verify: (id, checkpoint, again) =>
      get("api/verify", {id, checkpoint, again: again ? 1 : 0}),
    media: (id, file) => `api/media?${new URLSearchParams({id, file})}`,
    curves: async (key, ids, ask) => {
      const query = {key, runs: ranges(ids), axis: ask.axis, points: ask.points};
      if (ask.from !== undefined) Object.assign(query, {from: ask.from, to: ask.to});
      if (ask.smoothing) query.smoothing = ask.smoothing;
      return unpack(await get("api/curves", query, "bytes"));
    },
  };

  // TensorBoard's moving average, as series.cpp has it.
  const smoothed = (y, weight) => {
    let sum = 0, total = 0;
    return y.map(value => {
      if (value === null || !Number.isFinite(value)) return NaN;
      sum = sum * weight + (1 - weight) * value;
      total = total * weight + (1 - weight);
      return sum / total;
    });
  };

  const embedded = report => ({
    isLive: false,
    overview: async () => bareOverview(report.overview),
    run: async id => report.details[id],
    studies: async () => bareStudies(report.studies ?? []),
    samples: async (id, file, from, count) => {
      const all = report.samples[`${id}/${file}`] ?? {error: "not in this report"};
      return all.error ? all : {...all, rows: all.rows.slice(from, from + count)};
    },
    verify: async () => ({state: "none"}),
    media: (id, file) => report.media[`${id}/${file}`] ?? "",
    curves: async (key, ids, ask) => {
      const found = new Map();
      for (const id of ids) {
        const curve = bare(report.curves)[key]?.[id];
        if (!curve) continue;
        const x = ask.axis === "step" ? curve.step
          : curve.time.map(time => ask.axis === "clock" ? time : time - curve.began);
        const y = ask.smoothing ? smoothed(curve.y, ask.smoothing)
          : curve.y.map(value => value ?? NaN);
        found.set(id, {x: Float64Array.from(x), y: Float64Array.from(y), total: curve.total});
      }
      return found;
    },
  });

  const report = document.getElementById("report");
  gradus.source = report ? embedded(JSON.parse(report.textContent)) : live;

  // Elements: make("div", {class: "x", onclick: f}, "text", child). Text is never read as HTML.
  gradus.make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "style") Object.assign(element.style, value);
      else if (value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children.filter(child => child !== undefined && child !== null));
    return element;
  };

  gradus.number = value => {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size >= 1e15 || size < 1e-4) return value.toExponential(2);
    if (size >= 1e9) return `${+(value / 1e9).toPrecision(4)}G`;
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
    if (size >= 1e5) return `${+(value / 1e3).toPrecision(4)}k`;
    return `${+value.toPrecision(4)}`;
  };

  gradus.duration = seconds => {
    const s = Math.max(0, Math.round(seconds)), two = n => String(n).padStart(2, "0");
    const days = Math.floor(s / 86400), hours = Math.floor(s / 3600) % 24;
    const rest = `${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
    return days ? `${days} d ${hours}:${rest}` : hours ? `${hours}:${rest}` : rest;
  };

  gradus.bytes = count => {
    const names = ["B", "kB", "MB", "GB", "TB"];
    let i = 0;
    while (count >= 1000 && i < names.length - 1) { count /= 1000; ++i; }
    return `${count.toPrecision(3)} ${names[i]}`;
  };
}
