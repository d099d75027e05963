// The page: what is chosen, what is shown, and keeping it up to date.
"use strict";
{
  const make = gradus.make, byId = id => document.getElementById(id);
  const kFirstRuns = 20;

  const app = {
    runs: [], keys: [], settings: {}, version: 0, now: 0,
    selected: new Set(), atRun: undefined, filter: "", tab: "curves",
    axis: "step", smoothing: 0, isLog: false, cutsOutliers: false, dragMoves: false,
    charts: new Map(),
  };
  gradus.app = app;

  const tabs = [["curves", "Curves"], ["table", "Runs"], ["compare", "Compare"], ["run", "Run"],
    ["search-view", "Search"]];
  byId("tabs").append(...tabs.map(([name, label], i) => make("button", {role: "tab",
    "data-tab": name, title: `${label} (${i + 1})`, onclick: () => app.show(name)}, label)));

  app.say = text => { byId("summary").textContent = text; };
  app.colourOf = id => app.runs[id] ? app.colours.of(app.runs[id]) : "gray";

  app.show = name => {
    app.tab = name;
    for (const [each] of tabs) byId(each).hidden = each !== name;
    for (const button of byId("tabs").children)
      button.setAttribute("aria-selected", String(button.dataset.tab === name));
    if (name === "table") app.table.update();
    if (name === "compare") app.compare.update();
    if (name === "search-view") app.studies.draw();
    if (name === "run") app.runView.open(app.runView.id ?? app.list.shown?.[0]?.id ?? 0);
    byId("main").scrollTop = 0;
    app.keepAddress();
  };

  app.openRun = id => {
    app.runView.id = id;
    byId("side").classList.remove("open");
    app.show("run");
  };

  app.toggle = id => {
    app.selected.has(id) ? app.selected.delete(id) : app.selected.add(id);
    app.onSelection();
  };

  app.onSelection = () => {
    app.wasChosen = true;
    byId("chosen").textContent = `${app.selected.size} / ${app.runs.length}`;
    app.list.draw();
    app.charts.forEach(chart => chart.refresh());
    app.compare.update();
    app.keepAddress();
  };

  // A run that the mouse or the keys point at is drawn on top.
  app.pointAt = id => {
    if (app.atRun === id) return;
    app.atRun = id;
    cancelAnimationFrame(app.pointing);
    app.pointing = requestAnimationFrame(() => app.charts.forEach(chart => {
      if (chart.isVisible && chart.plot) chart.draw();
    }));
  };

  app.setView = (view, from) => {
    for (const chart of app.charts.values()) if (chart !== from) chart.setView(view);
    if (from) from.setView(view);
    app.runView.charts.forEach(chart => { if (chart !== from) chart.setView(null); });
  };

  app.setColours = () => {
    const by = byId("colour").value || "run";
    app.colours = gradus.colouring(by, app);
    byId("legend").replaceChildren(...app.colours.legend.map(({label, colour}) =>
      make("span", {}, make("span", {class: "dot", style: {background: colour}}), label)));
  };

  // Charts by kind; those that few people look at are folded.
  const groups = [
    ["Training", key => !/^(eval_|system\/|train_|test_)/.test(key) && !isSpeed(key), true],
    ["Evaluation", key => /^(eval_|test_)/.test(key) && !isSpeed(key), true],
    ["Speed and totals", key => !key.startsWith("system/") &&
      (isSpeed(key) || key.startsWith("train_")), false],
    ["System", key => key.startsWith("system/"), false],
  ];
  const isSpeed = key => /(_runtime|_per_second|_time)$/.test(key) && key !== "steps_per_second" ||
    key === "total_flos" || key === "num_input_tokens_seen";

  app.layCharts = () => {
    const words = byId("metrics").value.toLowerCase();
    const wanted = app.keys.filter(key => key.toLowerCase().includes(words));
    const signature = wanted.join("\n");
    if (signature === app.laid) return;
    app.laid = signature;
    for (const key of wanted)
      if (!app.charts.has(key))
        app.charts.set(key, new gradus.Chart({key, app, ids: () => [...app.selected],
          label: key.replace("system/", ""), isSystem: key.startsWith("system/")}));
    byId("charts").replaceChildren(...groups.flatMap(([title, belongs, isOpen]) => {
      const keys = wanted.filter(belongs);
      if (keys.length === 0) return [];
      const before = app.folded?.[title];
      return [make("details", {class: "group", open: (before ?? isOpen) ? "" : undefined,
        ontoggle: event => { (app.folded ??= {})[title] = event.target.open; }},
      make("summary", {}, title, " ", make("span", {class: "count"}, `${keys.length}`)),
      make("div", {class: "grid"}, ...keys.map(key => app.charts.get(key).element)))];
    }));
    app.charts.forEach(chart => chart.refresh());
  };

  app.update = found => {
    // Another server has other numbers for the runs. The address names what is shown.
    if (app.began !== undefined && found.began !== undefined && app.began !== found.began) {
      location.reload();
      return;
    }
    app.began = found.began ?? app.began;
    app.now = found.now;
    app.version = found.version;
    app.studies.follow(found.studies ?? 0);
    if (!found.runs) return;
    for (const run of found.runs) app.runs[run.id] = run;
    app.keys = found.keys;
    app.settings = found.settings;
    byId("root").textContent = found.root;
    byId("root").title = found.root;
    const counts = {};
    for (const run of app.runs) counts[run.status] = (counts[run.status] ?? 0) + 1;
    const points = app.runs.reduce((sum, run) => sum + run.points, 0);
    app.say(`${app.runs.length} run${app.runs.length === 1 ? "" : "s"}` +
      Object.entries(counts).filter(([status]) => status !== "unknown")
        .map(([status, count]) => ` · ${count} ${status}`).join("") +
      ` · ${gradus.number(points)} points` + (found.complete ? "" : " · still reading"));
    const colour = byId("colour"), before = colour.value || "run";
    const names = ["run", "status", ...Object.keys(app.settings).sort()];
    if ([...colour.options].map(option => option.value).join() !== names.join()) {
      colour.replaceChildren(...names.map(name => make("option", {value: name}, name)));
      colour.value = names.includes(before) ? before : "run";
    }
    app.setColours();
    app.list.update();
    if (!app.wasChosen) {
      const newest = app.list.shown.slice(0, kFirstRuns).map(run => run.id);
      const isSame = newest.length === app.selected.size &&
        newest.every(id => app.selected.has(id));
      if (!isSame) app.selected = new Set(newest);
      byId("chosen").textContent = `${app.selected.size} / ${app.runs.length}`;
      app.list.draw();
    }
    app.layCharts();
    if (found.runs.some(run => app.selected.has(run.id)))
      app.charts.forEach(chart => chart.refresh());
    app.table.update();
    app.compare.update();
    if (app.tab === "run" && found.runs.some(run => run.id === app.runView.id)) {
      const isBusy = app.runView.element.contains(document.activeElement) &&
        /^(INPUT|SELECT|AUDIO)$/.test(document.activeElement.tagName);
      if (!isBusy && app.runView.part !== "samples") app.runView.refresh();
    }
  };

  // The address says what is shown, so that it can be sent to somebody.
  app.keepAddress = () => {
    const words = new URLSearchParams();
    if (app.tab !== "curves") words.set("view", app.tab);
    if (app.tab === "run") {
      words.set("run", app.runs[app.runView.id]?.name ?? "");
      words.set("part", app.runView.part);
    }
    if (app.tab === "search-view" && app.studies.at > 0) words.set("study", app.studies.at);
    if (app.filter) words.set("filter", app.filter);
    if (app.axis !== "step") words.set("axis", app.axis);
    if (app.isLog) words.set("log", "1");
    if (app.smoothing) words.set("smoothing", app.smoothing);
    if (byId("colour").value && byId("colour").value !== "run")
      words.set("colour", byId("colour").value);
    if (app.wasChosen && app.selected.size <= 50)
      for (const id of app.selected) if (app.runs[id]) words.append("runs", app.runs[id].name);
    history.replaceState(null, "", "#" + words);
  };

  // Called when the runs are known.
  const readAddress = () => {
    const words = new URLSearchParams(location.hash.slice(1));
    const idOf = name => app.runs.find(run => run.name === name)?.id;
    app.filter = byId("search").value = words.get("filter") ?? "";
    app.axis = byId("axis").value = words.get("axis") ?? "step";
    app.isLog = byId("log").checked = words.get("log") === "1";
    app.smoothing = Number(byId("smoothing").value = words.get("smoothing") ?? "0");
    showSmoothing();
    const chosen = words.getAll("runs").map(idOf).filter(id => id !== undefined);
    if (chosen.length > 0) {
      app.selected = new Set(chosen);
      app.wasChosen = true;
    }
    if (words.has("run")) app.runView.id = idOf(words.get("run"));
    if (app.runView.hasPart(words.get("part"))) app.runView.part = words.get("part");
    if (words.has("study")) app.studies.at = Number(words.get("study"));
    return words;
  };

  const showSmoothing = () => {
    byId("smoothing-value").textContent = app.smoothing ? app.smoothing.toFixed(2) : "off";
  };
  const redraw = isNewAxis => {
    app.charts.forEach(chart => chart.refresh(isNewAxis));
    app.runView.charts.forEach(chart => chart.refresh(isNewAxis));
    app.keepAddress();
  };

  const setTheme = isDark => {
    document.documentElement.classList.toggle("dark", isDark);
    if (!app.colours) return;
    app.setColours();
    app.list.draw();
    app.charts.forEach(chart => chart.draw());
    app.runView.charts.forEach(chart => chart.draw());
    app.compare.update();
    app.studies.draw();
  };

  const bind = () => {
    byId("search").addEventListener("input", event => {
      app.filter = event.target.value;
      app.list.update();
      app.table.update();
      app.keepAddress();
    });
    byId("all").onclick = () => {
      app.list.shown.forEach(run => app.selected.add(run.id));
      app.onSelection();
    };
    byId("none").onclick = () => { app.selected.clear(); app.onSelection(); };
    byId("newest").onclick = () => {
      app.selected = new Set(app.list.shown.slice(0, kFirstRuns).map(run => run.id));
      app.onSelection();
    };
    byId("colour").onchange = () => {
      app.setColours();
      app.list.draw();
      app.charts.forEach(chart => chart.draw());
      app.compare.update();
      app.keepAddress();
    };
    byId("axis").onchange = event => { app.axis = event.target.value; redraw(true); };
    byId("smoothing").oninput = event => {
      app.smoothing = Number(event.target.value);
      showSmoothing();
      redraw(false);
    };
    byId("log").onchange = event => { app.isLog = event.target.checked; redraw(false); };
    byId("outliers").onchange = event => {
      app.cutsOutliers = event.target.checked;
      redraw(false);
    };
    byId("pan").onchange = event => {
      app.dragMoves = event.target.checked;
      document.body.classList.toggle("moving", app.dragMoves);
    };
    byId("metrics").oninput = () => app.layCharts();
    byId("reset").onclick = () => app.setView(null);
    byId("menu").onclick = () => {
      const isOpen = byId("side").classList.toggle("open");
      byId("menu").setAttribute("aria-expanded", String(isOpen));
    };
    byId("main").addEventListener("pointerdown", () => byId("side").classList.remove("open"));
    byId("theme").onclick = () => {
      const isDark = !gradus.isDark();
      localStorage.setItem("gradus-theme", isDark ? "dark" : "light");
      setTheme(isDark);
    };
    byId("help").onclick = () => byId("keys").showModal();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", event => {
      if (!localStorage.getItem("gradus-theme")) setTheme(event.matches);
    });
  };

  const keys = [
    ["1 2 3 4 5", "curves, runs, compare, one run, search"], ["/", "filter runs"],
    ["j k", "next and previous run; it is drawn on top"], ["x", "show or hide it"],
    ["Enter", "open it"], ["l", "logarithmic scale"], ["s", "smoothing on and off"],
    ["a", "next axis"], ["p", "drag moves, or zooms"], ["r", "whole curves"],
    ["t", "light or dark"],
    ["← → + − 0", "move and zoom the chart that has the focus (Tab)"], ["?", "this list"],
  ];
  byId("keys").append(make("h2", {}, "Keys"), make("table", {}, make("tbody", {},
    ...keys.map(([key, text]) => make("tr", {}, make("td", {}, make("kbd", {}, key)),
      make("td", {}, text))))),
  make("p", {class: "note"}, "Drag in a chart to zoom, shift-drag to move, double-click for all."),
  make("form", {method: "dialog"}, make("button", {}, "Close")));

  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    const {tagName, type} = event.target;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(tagName) && type !== "checkbox") {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const click = id => () => byId(id).click();
    const actions = {
      "1": () => app.show("curves"), "2": () => app.show("table"), "3": () => app.show("compare"),
      "4": () => app.show("run"), "/": () => byId("search").focus(),
      "5": () => { if (app.studies.all.length) app.show("search-view"); },
      j: () => app.list.move(app.atRun === undefined ? 0 : 1), k: () => app.list.move(-1),
      x: () => { if (app.atRun !== undefined) app.toggle(app.atRun); },
      l: click("log"), p: click("pan"), r: click("reset"), t: click("theme"),
      s: () => {
        app.smoothing = app.smoothing ? 0 : 0.8;
        byId("smoothing").value = app.smoothing;
        showSmoothing();
        redraw(false);
      },
      a: () => {
        const names = ["step", "elapsed", "clock"];
        app.axis = byId("axis").value = names[(names.indexOf(app.axis) + 1) % 3];
        redraw(true);
      },
      "?": click("help"),
    };
    if (event.key === "Enter" && event.target === document.body && app.atRun !== undefined)
      actions.Enter = () => app.openRun(app.atRun);
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });

  const follow = async () => {
    let failures = 0;
    for (;;) {
      try {
        app.update(await gradus.source.overview(app.version));
        failures = 0;
      } catch (error) {
        if (++failures > 1) app.say("gradus serve does not answer; trying again");
      }
      if (!gradus.source.isLive) return;
      const pause = document.hidden ? 10000 : Math.min(1000 * 2 ** failures, 15000);
      await new Promise(done => setTimeout(done, pause));
    }
  };

  // The address names runs, which are not known before the first answer.
  const firstOverview = async () => {
    for (;;) {
      try {
        return await gradus.source.overview(0);
      } catch {
        app.say("gradus serve does not answer; trying again");
        await new Promise(done => setTimeout(done, 1000));
      }
    }
  };

  const start = async () => {
    const kept = localStorage.getItem("gradus-theme");
    setTheme(kept ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
    app.list = new gradus.RunList(app);
    app.table = new gradus.RunTable(app);
    app.compare = new gradus.Compare(app);
    app.runView = new gradus.RunView(app);
    app.studies = new gradus.Studies(app);
    app.colours = gradus.colouring("run", app);
    bind();
    const first = await firstOverview();
    for (const run of first.runs ?? []) app.runs[run.id] = run;
    const words = readAddress();
    app.update(first);
    if (words.get("colour")) {
      byId("colour").value = words.get("colour");
      byId("colour").onchange();
    }
    const view = words.get("view");
    app.show(tabs.some(([name]) => name === view) ? view : "curves");
    follow();
  };
  start();
}
