// Runs by a setting: its value across, a metric upwards; below all differing settings side by side.
"use strict";
{
  const make = gradus.make;
  const svg = (tag, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  class Compare {
    constructor(app) {
      this.app = app;
      this.x = document.getElementById("compare-x");
      this.y = document.getElementById("compare-y");
      this.logX = document.getElementById("compare-log-x");
      this.logY = document.getElementById("compare-log-y");
      this.x.addEventListener("change", () => {
        this.logX.checked = Compare.isScale(this.x.value);
      });
      for (const control of [this.x, this.y, this.logX, this.logY])
        control.addEventListener("change", () => this.update());
    }

    // Settings that people vary by factors.
    static isScale(name) { return /rate|decay|eps|beta|alpha/.test(name); }

    static fill(select, names) {
      if ([...select.options].map(option => option.value).join() === names.join()) return;
      const before = select.value;
      select.replaceChildren(...names.map(name => make("option", {value: name}, name)));
      if (names.includes(before)) select.value = before;
    }

    update() {
      if (document.getElementById("compare").hidden) return;
      const app = this.app;
      const metrics = app.keys.filter(key => !key.startsWith("system/"));
      const isFirst = this.x.options.length === 0;
      Compare.fill(this.x, Object.keys(app.settings).sort());
      if (isFirst) this.logX.checked = Compare.isScale(this.x.value);
      Compare.fill(this.y, metrics.includes("eval_loss")
        ? ["eval_loss", ...metrics.filter(key => key !== "eval_loss")] : metrics);
      const runs = app.runs.filter(run => app.selected.has(run.id));
      this.drawScatter(runs);
      this.drawParallel(runs);
    }

    // Where values lie from 0 to 1, and what is written at the axis.
    static scale(values, isLog) {
      const numbers = values.map(value => value === null || value === "" ? NaN : Number(value));
      const isNumeric = numbers.some(Number.isFinite) &&
        values.every((value, i) => value === null || value === undefined ||
          Number.isFinite(numbers[i]));
      if (!isNumeric) {
        const distinct = [...new Set(values.filter(value => value !== null && value !== undefined))]
          .sort();
        const place = value => distinct.length < 2 ? 0.5 : distinct.indexOf(value) /
          (distinct.length - 1);
        return {of: value => distinct.includes(value) ? place(value) : NaN,
          ticks: distinct.slice(0, 12).map(value => ({text: value, at: place(value)}))};
      }
      const usesLog = isLog && numbers.every(value => !Number.isFinite(value) || value > 0);
      const turned = value => usesLog ? Math.log10(value) : value;
      const finite = numbers.filter(Number.isFinite).map(turned);
      const least = Math.min(...finite), most = Math.max(...finite), width = most - least;
      const of = value => width > 0 ? (turned(Number(value)) - least) / width : 0.5;
      const ticks = width > 0 ? [0, 0.25, 0.5, 0.75, 1].map(at => {
        const value = least + at * width;
        return {at, text: gradus.number(usesLog ? 10 ** value : value)};
      }) : [{at: 0.5, text: gradus.number(finite[0])}];
      return {of: value => value === null || value === undefined || value === "" ? NaN : of(value),
        ticks};
    }

    drawScatter(runs) {
      const place = document.getElementById("scatter"), app = this.app;
      const name = this.x.value, metric = this.y.value;
      if (!name || !metric) {
        place.replaceChildren(make("p", {class: "note"},
          "These runs do not differ in any setting, or have no metrics yet."));
        return;
      }
      const points = runs.filter(run => (run.last[metric] ?? null) !== null);
      const x = Compare.scale(points.map(run => app.settings[name][run.id]), this.logX.checked);
      const y = Compare.scale(points.map(run => run.last[metric]), this.logY.checked);
      const width = Math.max(280, place.clientWidth), height = 340;
      const [left, right, top, bottom] = [64, 20, 14, 44];
      const px = at => left + (0.03 + 0.94 * at) * (width - left - right);
      const py = at => height - bottom - (0.04 + 0.92 * at) * (height - top - bottom);
      const picture = svg("svg", {width, height, role: "img",
        "aria-label": `${metric} by ${name}`});
      for (const tick of x.ticks) picture.append(
        svg("line", {x1: px(tick.at), x2: px(tick.at), y1: top, y2: height - bottom,
          stroke: "var(--grid)"}),
        svg("text", {x: px(tick.at), y: height - bottom + 16, "text-anchor": "middle",
          fill: "var(--faint)", "font-size": 11}, tick.text));
      for (const tick of y.ticks) picture.append(
        svg("line", {x1: left, x2: width - right, y1: py(tick.at), y2: py(tick.at),
          stroke: "var(--grid)"}),
        svg("text", {x: left - 8, y: py(tick.at) + 4, "text-anchor": "end", fill: "var(--faint)",
          "font-size": 11}, tick.text));
      picture.append(svg("text", {x: (left + width - right) / 2, y: height - 8,
        "text-anchor": "middle", fill: "var(--text)", "font-size": 12}, name));
      for (const run of points) {
        const at = x.of(app.settings[name][run.id]);
        if (!Number.isFinite(at)) continue;
        const dot = svg("circle", {cx: px(at), cy: py(y.of(run.last[metric])), r: 5,
          fill: app.colourOf(run.id), "fill-opacity": 0.8, tabindex: 0},
        svg("title", {}, `${run.name}\n${name} ${app.settings[name][run.id]}\n${metric} ${
          gradus.number(run.last[metric])}`));
        dot.addEventListener("click", () => app.openRun(run.id));
        picture.append(dot);
      }
      place.replaceChildren(make("div", {class: "card"},
        make("h3", {}, `${metric} by ${name}`,
          make("span", {class: "value"}, `${points.length} runs`)), picture));
    }

    drawParallel(runs) {
      const place = document.getElementById("parallel"), app = this.app, metric = this.y.value;
      const names = Object.keys(app.settings).sort().slice(0, 9);
      if (names.length < 2 || !metric) { place.replaceChildren(); return; }
      const points = runs.filter(run => run.last[metric] !== undefined && run.last[metric] !== null)
        .slice(0, 1000);
      const axes = names.map(name => ({name, isLog: Compare.isScale(name),
        value: run => app.settings[name][run.id]}));
      axes.push({name: metric, value: run => run.last[metric]});
      place.replaceChildren(make("div", {class: "card"}, make("h3", {}, "All differing settings"),
        gradus.parallel(place, axes, points, {label: "All differing settings and the metric",
          text: run => `${run.name}: ${metric} ${gradus.number(run.last[metric])}`,
          open: run => app.openRun(run.id)})));
    }
  }
  gradus.Compare = Compare;

  // Rows as lines across upright axes; the last axis gives the colour. `axes`: name, value(row),
  // isLog. `options`: label, text(row), open(row), style(row), isMost: large values are good ones.
  gradus.parallel = (place, axes, rows, options) => {
    for (const axis of axes) axis.scale = Compare.scale(rows.map(axis.value), axis.isLog);
    const width = Math.max(280, place.clientWidth), height = 360, top = 34, bottom = 26;
    const px = i => 50 + i * (width - 110) / (axes.length - 1);
    const py = at => height - bottom - at * (height - top - bottom);
    const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", class: "parallel",
      "aria-label": options.label});
    const last = axes[axes.length - 1];
    for (const row of rows) {
      const steps = axes.map((axis, i) => [px(i), py(axis.scale.of(axis.value(row)))]);
      if (steps.some(([, y]) => !Number.isFinite(y))) continue;
      const share = last.scale.of(last.value(row));
      const path = svg("path", {d: "M" + steps.map(step => step.join(" ")).join("L"),
        class: options.style?.(row) ?? "",
        stroke: gradus.scaleColour(options.isMost ? share : 1 - share)},
      svg("title", {}, options.text(row)));
      path.addEventListener("click", () => options.open(row));
      picture.append(path);
    }
    axes.forEach((axis, i) => {
      picture.append(svg("line", {x1: px(i), x2: px(i), y1: top, y2: height - bottom,
        stroke: "var(--faint)"}),
      svg("text", {x: px(i), y: 16, "text-anchor": "middle", "font-weight": 600},
        axis.name.length > 16 ? axis.name.slice(0, 15) + "…" : axis.name));
      for (const tick of axis.scale.ticks)
        picture.append(svg("text", {x: px(i) + 5, y: py(tick.at) + 4}, tick.text));
    });
    return picture;
  };
  gradus.svg = svg;
}
