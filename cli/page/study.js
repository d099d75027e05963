// The studies of hyperparameter searches: the best value so far, all parameters side by side, and a
// table with a row a trial.
"use strict";
{
  const make = gradus.make;
  const kMostRows = 1000;

  class Studies {
    constructor(app) {
      this.app = app;
      this.element = document.getElementById("search-view");
      this.tab = document.querySelector("[data-tab=search-view]");
      this.tab.hidden = true;
      this.all = [];
      this.at = 0;
      this.version = 0;
      this.sortBy = "trial";
      this.isDown = true;
    }

    // `version` counts the changes of all studies.
    async follow(version) {
      if (version === this.version || this.isLoading) return;
      this.isLoading = true;
      try {
        this.all = await gradus.source.studies();
        this.version = version;
      } catch (error) {
        this.app.say(error.message);  // it is asked for again
      }
      this.isLoading = false;
      this.tab.hidden = this.all.length === 0;
      this.draw();
    }

    draw() {
      if (this.element.hidden) return;
      const study = this.all[this.at] ?? this.all[0];
      if (!study) {
        this.element.replaceChildren(make("p", {class: "note"},
          "No study: `gradus sweep` and hyperparameter_search with a storage leave one."));
        return;
      }
      const choose = make("select", {"aria-label": "Study", onchange: event => {
        this.at = Number(event.target.value);
        this.app.keepAddress();
        this.draw();
      }}, ...this.all.map((each, i) => make("option", {value: i}, `${each.name} (${each.file})`)));
      choose.value = String(this.all.indexOf(study));
      const scrolled = document.getElementById("main").scrollTop;
      const best = make("div", {}), parallel = make("div", {}), table = make("div", {});
      const tools = this.all.length > 1
        ? [make("div", {class: "tools"}, make("label", {}, "Study ", choose))] : [];
      this.element.replaceChildren(make("h2", {}, study.name), ...tools, this.facts(study), best,
        parallel, table);
      this.drawBest(study, best);
      this.drawParallel(study, parallel);
      this.drawTable(study, table);
      document.getElementById("main").scrollTop = scrolled;
    }

    facts(study) {
      const counts = {};
      for (const {state} of study.trials) counts[state] = (counts[state] ?? 0) + 1;
      const best = study.trials.find(trial => trial.number === study.best);
      const facts = [["trials", String(study.trials.length)],
        ...Object.entries(counts).map(([state, count]) => [state, String(count)]),
        ["best " + study.metric, best ? gradus.number(best.value) : "–"],
        ["best trial", best ? String(best.number) : "–"],
        ...Object.entries(best?.params ?? {}).map(([name, value]) => [name, Studies.text(value)])];
      return make("div", {class: "facts"}, ...facts.map(([name, value]) =>
        make("div", {class: "fact"}, make("small", {}, name), make("b", {}, value))));
    }

    static text(value) {
      return typeof value === "number" ? gradus.number(value)
        : typeof value === "string" ? value : JSON.stringify(value ?? null);
    }

    // What is known of a trial, also of one that is under way.
    static value(trial) { return trial.value ?? trial.newest; }

    static title(study, trial) {
      return `trial ${trial.number}: ${trial.state}, ${study.metric} ${
        gradus.number(Studies.value(trial))}\n` + Object.entries(trial.params)
        .map(([name, value]) => `${name} ${Studies.text(value)}`).join("\n");
    }

    open(trial) { if (trial.run !== null) this.app.openRun(trial.run); }

    // A dot a trial, and the best value up to it as a line.
    drawBest(study, place) {
      const svg = gradus.svg, isLess = study.direction === "minimize";
      const shown = study.trials.filter(trial => Number.isFinite(Studies.value(trial) ?? NaN));
      if (shown.length === 0) {
        place.append(make("p", {class: "note"}, "No trial has a value yet."));
        return;
      }
      const x = gradus.Compare.scale(study.trials.map(trial => trial.number), false);
      const y = gradus.Compare.scale(shown.map(Studies.value), false);
      const width = Math.max(280, this.element.clientWidth - 50), height = 260;
      const [left, right, top, bottom] = [64, 20, 14, 30];
      const px = at => left + (0.02 + 0.96 * at) * (width - left - right);
      const py = at => height - bottom - (0.04 + 0.92 * at) * (height - top - bottom);
      const picture = svg("svg", {width, height, role: "img", "aria-label":
        `${study.metric} of each trial and the best so far`});
      const label = (where, text, anchor) => svg("text", {...where, "text-anchor": anchor,
        fill: "var(--faint)", "font-size": 11}, text);
      const first = study.trials[0].number, last = study.trials[study.trials.length - 1].number;
      for (const at of new Set([0, 0.25, 0.5, 0.75, 1].map(share =>
        Math.round(first + share * (last - first)))))
        picture.append(label({x: px(x.of(at)), y: height - bottom + 18}, String(at), "middle"));
      for (const tick of y.ticks) picture.append(
        svg("line", {x1: left, x2: width - right, y1: py(tick.at), y2: py(tick.at),
          stroke: "var(--grid)"}),
        label({x: left - 8, y: py(tick.at) + 4}, tick.text, "end"));
      let best = null, path = "", end = 0;
      for (const trial of study.trials) {
        end = px(x.of(trial.number));
        if (trial.state === "complete" && trial.value !== null &&
            (best === null || (isLess ? trial.value < best : trial.value > best))) {
          best = trial.value;
          path += path ? `H${end}V${py(y.of(best))}` : `M${end} ${py(y.of(best))}`;
        }
      }
      if (path) picture.append(svg("path", {d: `${path}H${end}`, fill: "none", class: "best-so-far",
        stroke: "var(--accent)", "stroke-width": 2}));
      for (const trial of shown) {
        const isComplete = trial.state === "complete", isBest = trial.number === study.best;
        const dot = svg("circle", {cx: px(x.of(trial.number)), cy: py(y.of(Studies.value(trial))),
          r: isBest ? 6 : 4, fill: isComplete ? "var(--accent)" : "none", "fill-opacity": 0.6,
          stroke: isComplete ? "var(--accent)" : "var(--faint)", tabindex: 0},
        svg("title", {}, Studies.title(study, trial)));
        dot.addEventListener("click", () => this.open(trial));
        dot.addEventListener("keydown", event => { if (event.key === "Enter") this.open(trial); });
        picture.append(dot);
      }
      place.append(make("div", {class: "card"}, make("h3", {}, "Best so far",
        make("span", {class: "value"}, best === null ? "" : gradus.number(best))), picture));
    }

    drawParallel(study, place) {
      const rows = study.trials.filter(trial => trial.value !== null)
        .sort((a, b) => (a.number === study.best) - (b.number === study.best));  // it is on top
      if (study.parameters.length === 0 || rows.length === 0) return;
      const axes = [...study.parameters.slice(0, 11).map(({name, log}) => ({name, isLog: log,
        value: trial => Studies.plain(trial.params[name])})),
      {name: study.metric, value: trial => trial.value}];
      place.append(make("div", {class: "card"}, make("h3", {}, "Parameters"),
        gradus.parallel(this.element, axes, rows, {label: "All parameters and the value",
          text: trial => Studies.title(study, trial), open: trial => this.open(trial),
          style: trial => trial.number === study.best ? "best" : trial.state,
          isMost: study.direction === "maximize"})));
    }

    // A value of a category may be true, null or a text; on an axis it is a text.
    static plain(value) {
      return value === undefined || typeof value === "number" ? value ?? null : Studies.text(value);
    }

    drawTable(study, place) {
      const columns = [
        {name: "trial", value: trial => trial.number, text: trial => String(trial.number)},
        {name: "state", value: trial => trial.state, text: trial => trial.state},
        {name: study.metric, value: Studies.value, isNumber: true,
          text: trial => gradus.number(Studies.value(trial))},
        {name: "step", value: trial => trial.step, isNumber: true,
          text: trial => trial.step === null ? "" : String(trial.step)},
        ...study.parameters.map(({name}) => ({name, value: trial => trial.params[name],
          text: trial => name in trial.params ? Studies.text(trial.params[name]) : ""})),
      ];
      const by = columns.find(column => column.name === this.sortBy) ?? columns[0];
      const sorted = [...study.trials].sort((a, b) => {
        const [x, y] = [by.value(a) ?? null, by.value(b) ?? null];
        if (x === y) return a.number - b.number;
        if (x === null || y === null) return x === null ? 1 : -1;
        return (x < y ? -1 : 1) * (this.isDown ? -1 : 1);
      });
      place.append(make("div", {class: "scroll"}, make("table", {},
        make("thead", {}, make("tr", {}, ...columns.map(column => make("th", {scope: "col"},
          make("button", {onclick: () => {
            this.isDown = this.sortBy === column.name ? !this.isDown : false;
            this.sortBy = column.name;
            this.draw();
          }}, column.name + (by === column ? (this.isDown ? " ↓" : " ↑") : "")))))),
        make("tbody", {}, ...sorted.slice(0, kMostRows).map(trial => make("tr", {
          class: trial.number === study.best ? "best" : "", onclick: () => this.open(trial)},
        ...columns.map(column => make("td", {class: column.isNumber ? "number" : ""},
          column.text(trial)))))))));
    }
  }
  gradus.Studies = Studies;
}
