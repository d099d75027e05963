// The list of runs at the side and the table of runs. Both show a thousand runs without effort: the
// list draws only what can be seen, the table changes only cells that have changed.
"use strict";
{
  const kRow = 42;
  const make = gradus.make;

  // "status=failed lr=0.1 baseline": all words must fit.
  gradus.passes = (run, words, app) => words.every(word => {
    const [name, value] = word.split("=");
    if (value === undefined)
      return run.name.toLowerCase().includes(word) || run.status.startsWith(word);
    if (name === "status") return run.status.startsWith(value);
    const settings = Object.keys(app.settings).filter(key => key.toLowerCase().includes(name));
    return settings.some(key => String(app.settings[key][run.id] ?? "").toLowerCase() === value);
  });

  class RunList {
    constructor(app) {
      this.app = app;
      this.element = document.getElementById("runs");
      this.inner = make("div", {class: "inner"});
      this.element.append(this.inner);
      this.at = 0;
      this.element.addEventListener("scroll", () => this.draw());
      new ResizeObserver(() => this.draw()).observe(this.element);
      this.element.addEventListener("keydown", event => {
        const by = {ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10}[event.key];
        if (by) { event.preventDefault(); this.move(by); }
        if (event.key === " " || event.key === "Enter") {
          event.preventDefault();
          const run = this.shown[this.at];
          if (run) event.key === " " ? app.toggle(run.id) : app.openRun(run.id);
        }
      });
    }

    update() {
      const words = this.app.filter.toLowerCase().split(/\s+/).filter(Boolean);
      const order = {running: 0};
      this.shown = this.app.runs.filter(run => gradus.passes(run, words, this.app))
        .sort((a, b) => (order[a.status] ?? 1) - (order[b.status] ?? 1) ||
          b.last_sign - a.last_sign || a.id - b.id);
      this.at = Math.max(0, Math.min(this.at, this.shown.length - 1));
      this.inner.style.height = `${this.shown.length * kRow}px`;
      this.draw();
    }

    move(by) {
      this.at = Math.max(0, Math.min(this.at + by, this.shown.length - 1));
      const top = this.at * kRow, {scrollTop, clientHeight} = this.element;
      if (top < scrollTop) this.element.scrollTop = top;
      if (top + kRow > scrollTop + clientHeight) this.element.scrollTop = top + kRow - clientHeight;
      this.app.pointAt(this.shown[this.at]?.id);
      this.draw();
    }

    draw() {
      if (!this.shown) return;
      const {scrollTop, clientHeight} = this.element;
      const first = Math.max(0, Math.floor(scrollTop / kRow) - 3);
      const last = Math.min(this.shown.length, Math.ceil((scrollTop + clientHeight) / kRow) + 3);
      const items = [];
      for (let i = first; i < last; ++i) items.push(this.item(this.shown[i], i));
      this.inner.replaceChildren(...items);
    }

    item(run, index) {
      const app = this.app, isOn = app.selected.has(run.id), colour = app.colourOf(run.id);
      const share = run.max_steps > 0 ? ` ${Math.round(100 * run.step / run.max_steps)} %` : "";
      const loss = run.last.eval_loss ?? run.last.loss;
      const note = [run.status + share, loss !== undefined ? `loss ${gradus.number(loss)}` : ""];
      const element = make("div", {
        class: `item${index === this.at && app.atRun === run.id ? " at" : ""}`, role: "option",
        "aria-selected": String(isOn), title: run.name,
        style: {top: `${index * kRow}px`},
        onclick: () => { this.at = index; app.toggle(run.id); },
        onmouseenter: () => app.pointAt(run.id), onmouseleave: () => app.pointAt(undefined),
      },
      make("span", {class: "dot",
        style: {background: isOn ? colour : "transparent", borderColor: colour}}),
      make("span", {class: "name"}, run.name),
      make("button", {class: "open", tabindex: "-1", "aria-label": `Open ${run.name}`,
        title: "Details", onclick: event => {
          event.stopPropagation();
          app.openRun(run.id);
        }}, "›"),
      make("span", {class: `note status-${run.status}`}, note.filter(Boolean).join(" · ")));
      return element;
    }
  }
  gradus.RunList = RunList;

  const kMetrics = 6;

  class RunTable {
    constructor(app) {
      this.app = app;
      this.head = document.querySelector("#table thead");
      this.body = document.querySelector("#table tbody");
      this.rows = new Map();
      this.sortBy = null;
      this.isDown = false;
    }

    columns() {
      const app = this.app;
      const metrics = app.keys.filter(key => !/^(system\/|learning_rate$|grad_norm$)/.test(key) &&
        !/(_runtime|_per_second|_time)$/.test(key)).slice(0, kMetrics);
      return [
        {name: "run", value: run => run.name, text: run => run.name},
        {name: "status", value: run => run.status, text: run => run.status,
          style: run => `status-${run.status}`},
        {name: "step", value: run => run.step, isNumber: true, text: run =>
          run.max_steps > 0 ? `${run.step} / ${run.max_steps}` : `${run.step}`},
        ...Object.keys(app.settings).sort().map(name => ({name, isSetting: true,
          value: run => {
            const value = app.settings[name][run.id];
            return value !== null && value !== "" && Number.isFinite(Number(value))
              ? Number(value) : value;
          },
          text: run => app.settings[name][run.id] ?? ""})),
        ...metrics.map(key => ({name: key, value: run => run.last[key], isNumber: true,
          text: run => run.last[key] === undefined ? "" : gradus.number(run.last[key])})),
      ];
    }

    update() {
      if (document.getElementById("table").hidden) return;
      const columns = this.columns(), names = columns.map(column => column.name).join("\n");
      if (names !== this.names) {
        this.names = names;
        this.rows.clear();
        this.body.replaceChildren();
        this.head.replaceChildren(make("tr", {}, ...columns.map(column => make("th", {scope: "col"},
          make("button", {title: column.isSetting ? "setting" : "metric", onclick: () => {
            this.isDown = this.sortBy === column.name ? !this.isDown : false;
            this.sortBy = column.name;
            this.update();
          }})))));
      }
      [...this.head.querySelectorAll("button")].forEach((button, i) => {
        button.textContent = columns[i].name +
          (this.sortBy === columns[i].name ? (this.isDown ? " ↓" : " ↑") : "");
      });
      const words = this.app.filter.toLowerCase().split(/\s+/).filter(Boolean);
      const shown = this.app.runs.filter(run => gradus.passes(run, words, this.app));
      const by = columns.find(column => column.name === this.sortBy);
      if (by) shown.sort((a, b) => {
        const [x, y] = [by.value(a), by.value(b)];
        if (x === y) return a.id - b.id;
        if (x === undefined || x === null) return 1;
        if (y === undefined || y === null) return -1;
        return (x < y ? -1 : 1) * (this.isDown ? -1 : 1);
      });
      const elements = shown.map(run => this.row(run, columns));
      const now = [...this.body.children];
      if (elements.length !== now.length || elements.some((element, i) => element !== now[i]))
        this.body.replaceChildren(...elements);
    }

    row(run, columns) {
      let row = this.rows.get(run.id);
      if (!row) {
        row = make("tr", {onclick: () => this.app.openRun(run.id)}, ...columns.map(column =>
          make("td", {class: column.isNumber ? "number" : column.isSetting ? "setting" : ""})));
        const address = "#" + new URLSearchParams({view: "run", run: run.name});
        row.firstChild.append(make("a", {href: address,
          onclick: event => event.preventDefault()}));
        this.rows.set(run.id, row);
      }
      columns.forEach((column, i) => {
        const cell = i === 0 ? row.firstChild.firstChild : row.children[i];
        const text = column.text(run);
        if (cell.textContent !== text) cell.textContent = text;
        if (column.style && cell.className !== column.style(run))
          cell.className = column.style(run);
      });
      return row;
    }
  }
  gradus.RunTable = RunTable;
}
