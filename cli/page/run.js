// One run: facts, settings, the machine, samples, checkpoints, what it said.
"use strict";
{
  const make = gradus.make;
  const kRows = 25;
  const kParts = ["overview", "curves", "system", "samples", "checkpoints", "log"];

  const timeText = seconds => seconds > 0 ? new Date(seconds * 1000).toLocaleString() : "";

  class RunView {
    constructor(app) {
      this.app = app;
      this.element = document.getElementById("run");
      this.part = "overview";
      this.charts = [];
    }

    hasPart(name) { return kParts.includes(name); }

    async open(id, part) {
      if (part) this.part = part;
      if (this.id !== id) { this.charts = []; this.sample = null; this.from = 0; }
      this.id = id;
      await this.refresh();
    }

    // Called when the run has changed, too.
    async refresh() {
      const id = this.id;
      if (id === undefined || this.element.hidden) return;
      let details;
      try {
        details = await gradus.source.run(id);
      } catch (error) {
        this.element.replaceChildren(make("p", {class: "note"}, "There is no such run."));
        return;
      }
      if (id !== this.id) return;
      this.details = details;
      this.draw();
    }

    draw() {
      const run = this.app.runs[this.id];
      if (!run) return;
      const tabs = make("div", {class: "subtabs", role: "tablist"}, ...kParts.map(part =>
        make("button", {role: "tab", "aria-selected": String(part === this.part), onclick: () => {
          this.part = part;
          this.app.keepAddress();
          this.draw();
        }}, part)));
      const content = {overview: () => this.overview(run), curves: () => this.plots(run, false),
        system: () => this.plots(run, true), samples: () => this.samples(),
        checkpoints: () => this.checkpoints(), log: () => this.log()}[this.part]();
      const hadFocus = this.element.contains(document.activeElement) &&
        document.activeElement.getAttribute("role") === "tab";
      this.element.replaceChildren(make("h2", {}, run.name), this.facts(run), tabs, content);
      if (hadFocus) this.element.querySelector("[role=tab][aria-selected=true]").focus();
    }

    facts(run) {
      const facts = [["status", make("b", {class: `status-${run.status}`}, run.status)]];
      const add = (name, text) => facts.push([name, make("b", {}, text)]);
      if (run.reason) add("reason", run.reason);
      add("step", run.max_steps > 0
        ? `${run.step} / ${run.max_steps} (${Math.floor(100 * run.step / run.max_steps)} %)`
        : `${run.step}`);
      if (run.epoch > 0) add("epoch", run.epoch.toFixed(2));
      if (run.session_began > 0) {
        const until = run.status === "running" ? this.app.now : run.last_sign;
        add("time passed", gradus.duration(until - run.session_began));
      }
      if (run.status === "running" && run.rate > 0 && run.max_steps > run.step)
        add("time left", gradus.duration((run.max_steps - run.step) / run.rate));
      if (run.rate > 0) add("steps per second", gradus.number(run.rate));
      for (const key of ["loss", "eval_loss"])
        if (run.last[key] !== undefined) add(key, gradus.number(run.last[key]));
      if (run.best !== null) add("best", gradus.number(run.best));
      if (run.parameters > 0) add("parameters", gradus.number(run.parameters));
      return make("div", {class: "facts"}, ...facts.map(([name, value]) =>
        make("div", {class: "fact"}, make("small", {}, name), value)));
    }

    overview() {
      const {settings, model, folder, host, pid} = this.details;
      const search = make("input", {type: "search", placeholder: "Filter settings",
        "aria-label": "Filter settings"});
      const table = make("table", {});
      const fill = () => {
        const rows = [];
        for (const [title, values] of [["run", {folder, host, pid: pid || ""}],
          ["settings", settings], ["model", model]])
          for (const [name, value] of Object.entries(values ?? {}))
            if (value !== "" && value !== null && value !== undefined &&
                `${name} ${value}`.toLowerCase().includes(search.value.toLowerCase()))
              rows.push(make("tr", {}, make("td", {class: "note"}, title), make("td", {}, name),
                make("td", {title: String(value)}, String(value))));
        table.replaceChildren(make("tbody", {}, ...rows));
      };
      search.addEventListener("input", fill);
      fill();
      return make("div", {}, search, make("div", {class: "scroll"}, table));
    }

    plots(run, isSystem) {
      const keys = this.app.keys.filter(key => key.startsWith("system/") === isSystem &&
        (isSystem || run.last[key] !== undefined));
      if (isSystem && this.app.keys.includes("steps_per_second")) keys.unshift("steps_per_second");
      const name = isSystem ? "system" : "curves";
      if (this.shownCharts !== `${run.id}/${name}/${keys}`) {
        this.shownCharts = `${run.id}/${name}/${keys}`;
        this.charts = keys.map(key => new gradus.Chart({key, app: this.app, isSystem,
          label: key.replace("system/", ""), ids: () => [run.id],
          axis: isSystem ? () => "elapsed" : undefined}));
      }
      this.charts.forEach(chart => chart.refresh());
      if (keys.length === 0) return make("p", {class: "note"}, isSystem
        ? "This run has no metrics of the machine: they are in run_log.jsonl, every ten seconds."
        : "nothing yet");
      return make("div", {class: "grid"}, ...this.charts.map(chart => chart.element));
    }

    samples() {
      const files = this.details.samples;
      if (files.length === 0) return make("p", {class: "note"},
        "No samples: generated_predictions.txt, predictions, completions (--log_completions), " +
        "images and sound of the run folder appear here.");
      const tables = files.filter(file => file.kind === "table");
      const media = files.filter(file => file.kind !== "table").slice(0, 120);
      const place = make("div", {});
      if (tables.length > 0) {
        this.sample ??= tables[0].name;
        const choose = make("select", {"aria-label": "File of samples", onchange: event => {
          this.sample = event.target.value;
          this.from = 0;
          this.fillSamples(place);
        }}, ...tables.map(file => make("option", {value: file.name}, file.name)));
        choose.value = this.sample;
        place.append(choose, make("div", {class: "rows"}));
        this.fillSamples(place);
      }
      place.append(make("div", {class: "gallery"}, ...media.map(file => {
        const address = gradus.source.media(this.id, file.name);
        return make("figure", {}, file.kind === "image"
          ? make("img", {src: address, alt: file.name, loading: "lazy"})
          : make("audio", {src: address, controls: "", preload: "none"}),
        make("figcaption", {}, file.name));
      })));
      return place;
    }

    async fillSamples(place) {
      const found = await gradus.source.samples(this.id, this.sample, this.from ?? 0, kRows)
        .catch(error => ({error: `The file cannot be read: ${error.message}`}));
      const rows = place.querySelector(".rows");
      if (found.error) { rows.replaceChildren(make("p", {class: "note"}, found.error)); return; }
      const from = this.from ?? 0, go = by => {
        this.from = Math.max(0, Math.min(from + by, found.total - 1));
        this.fillSamples(place);
      };
      const cell = value => typeof value === "number" ? gradus.number(value)
        : typeof value === "string" ? value : value === null ? "" : JSON.stringify(value);
      rows.replaceChildren(
        make("div", {class: "tools"},
          make("button", {onclick: () => go(-kRows), disabled: from === 0 || undefined},
            "‹ before"),
          make("span", {class: "note"},
            found.total === 0 ? "no rows"
              : `${from + 1}–${Math.min(from + kRows, found.total)} of ${found.total}`),
          make("button", {onclick: () => go(kRows),
            disabled: from + kRows >= found.total || undefined}, "next ›")),
        make("div", {class: "scroll"}, make("table", {class: "sample"},
          make("thead", {}, make("tr", {}, ...found.columns.map(name => make("th", {}, name)))),
          make("tbody", {}, ...found.rows.map(row => make("tr", {}, ...row.map(value =>
            make("td", {class: typeof value === "number" ? "number" : ""}, cell(value)))))))));
    }

    checkpoints() {
      const {checkpoints, best_checkpoint: best} = this.details;
      if (checkpoints.length === 0) return make("p", {class: "note"}, "no checkpoints");
      return make("div", {class: "scroll"}, make("table", {},
        make("thead", {}, make("tr", {}, ...["checkpoint", "step", "size", "", "files"]
          .map(name => make("th", {}, name)))),
        make("tbody", {}, ...checkpoints.map(each => {
          const result = make("td", {}, this.verified?.[`${this.id}/${each.name}`] ?? "");
          const button = gradus.source.isLive ? make("button", {onclick: () =>
            this.verify(each.name, result)}, "Verify") : "";
          return make("tr", {}, make("td", {}, each.name),
            make("td", {class: "number"}, String(each.step)),
            make("td", {class: "number"}, gradus.bytes(each.bytes)),
            make("td", {}, each.name === best ? "best" : ""),
            make("td", {}, button, " ", result));
        }))));
    }

    async verify(name, place) {
      this.verified ??= {};
      const id = this.id;
      for (let again = true;; again = false) {
        const found = await gradus.source.verify(id, name, again).catch(error =>
          ({state: "done", complete: false, problems: [`it cannot be read: ${error.message}`]}));
        if (found.state === "done") {
          const text =
            found.complete ? `complete, ${found.files} files` : found.problems.join("; ");
          this.verified[`${id}/${name}`] = text;
          place.textContent = text;
          place.className = found.complete ? "status-running" : "status-failed";
          return;
        }
        place.textContent = found.state === "waiting" ? "waits for another" : "reading …";
        await new Promise(done => setTimeout(done, 300));
      }
    }

    log() {
      const lines = this.details.lines.slice(-300).reverse().map(({time, level, text}) => {
        let shown = text;
        if (!level) {
          try {
            const entry = JSON.parse(text.replace(/: (NaN|-?Infinity)\b/g, ": null"));
            shown = Object.entries(entry).filter(([key]) => key !== "time")
              .map(([key, value]) => `${key} ${typeof value === "number"
                ? gradus.number(value) : value}`).join("  ");
          } catch (error) { /* shown as it is */ }
        }
        return make("div", {class: level ? `level-${level}` : ""},
          `${timeText(time)}  ${level && level !== "info" ? level + ": " : ""}${shown}`);
      });
      return make("div", {class: "lines"}, ...lines);
    }
  }
  gradus.RunView = RunView;
}
