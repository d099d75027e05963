// A metric of many runs as curves. uPlot does axes, grid, cursor and selection; the curves
// themselves are drawn here, because each run has steps of its own.
"use strict";
{
  const kBudget = 40000;  // points of a chart in all
  const kMostPerRun = 1600, kLeastPerRun = 24;
  const kPiece = 50;  // points of a line that are drawn at once
  const kWidestPicture = 8192;  // pixels; browsers refuse much wider ones

  const tip = gradus.make("div", {id: "tip", hidden: ""});
  document.body.append(tip);

  // The first index with x[index] >= at.
  const lowerBound = (x, at) => {
    let low = 0, high = x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] < at) low = middle + 1; else high = middle;
    }
    return low;
  };

  const clockText = seconds => {
    const date = new Date(seconds * 1000), two = n => String(n).padStart(2, "0");
    return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  };

  class Chart {
    // `options`: key, app, and ids() → the runs to draw; axis() when it is not the page's.
    constructor(options) {
      Object.assign(this, options);
      this.curves = new Map();
      this.raw = new Map();
      this.view = null;    // [from, to] of the axis, or null for all
      this.loaded = null;  // what `curves` covers
      this.asked = 0;
      this.value = gradus.make("span", {class: "value"});
      const enlarge = gradus.make("button", {
        "aria-label": `Enlarge ${this.key}`, title: "Larger", onclick: () => {
          this.element.classList.toggle("wide");
          this.resize();
        },
      }, "⤢");
      this.plotElement = gradus.make("div", {class: "plot", tabindex: "0", role: "img",
        "aria-label": `Curves of ${this.key}`});
      this.empty = gradus.make("div", {class: "empty", hidden: ""}, "no points");
      this.element = gradus.make("div", {class: "card"},
        gradus.make("h3", {}, this.label ?? this.key, this.value, enlarge), this.plotElement,
        this.empty);
      this.plotElement.addEventListener("keydown", event => this.onKey(event));
      new ResizeObserver(() => this.resize()).observe(this.plotElement);
      this.isVisible = false;
      new IntersectionObserver(entries => {
        this.isVisible = entries.at(-1).isIntersecting;
        if (this.isVisible && this.isStale) this.load();
        if (this.isVisible && this.isDirty) this.draw();
      }, {rootMargin: "200px"}).observe(this.element);
    }

    get axisName() { return this.axis?.() ?? this.app.axis; }
    get isLog() { return this.app.isLog; }

    // Data or settings have changed: fetch again, at once if it can be seen.
    refresh(isNewAxis = false) {
      if (isNewAxis) { this.view = null; this.loaded = null; this.curves = new Map(); }
      this.isStale = true;
      if (this.isVisible) this.load();
    }

    async load() {
      if (this.isLoading) { this.isStale = true; return; }
      this.isLoading = true;
      this.isStale = false;
      const ids = this.ids();
      const ask = {axis: this.axisName,
        points: Math.round(Math.min(kMostPerRun, Math.max(kLeastPerRun, kBudget / ids.length)))};
      if (this.view) {
        const width = this.view[1] - this.view[0];  // as much again on either side, for moving
        ask.from = this.view[0] - width;
        ask.to = this.view[1] + width;
        ask.points = Math.round(ask.points * 1.5);
      }
      const smoothing = this.app.smoothing;
      try {
        const before = this.view;
        if (smoothing && !this.isSystem) {
          this.curves = await gradus.source.curves(this.key, ids, {...ask, smoothing});
          this.raw = ids.length <= 12 ? await gradus.source.curves(this.key, ids, ask) : new Map();
        } else {
          this.curves = await gradus.source.curves(this.key, ids, ask);
          this.raw = new Map();
        }
        this.loaded = before ? [ask.from, ask.to] : [-Infinity, Infinity];
        this.empty.hidden = this.curves.size > 0;
        this.draw();
        if (this.curves.size > 0 && !gradus.firstPicture) gradus.firstPicture = performance.now();
      } catch (error) {
        this.app.say(error.message);
      }
      this.isLoading = false;
      if (this.isStale) this.load();
    }

    wholeRange() {
      let least = Infinity, most = -Infinity;
      for (const {x} of this.curves.values()) {
        if (x.length === 0) continue;
        least = Math.min(least, x[0]);
        most = Math.max(most, x[x.length - 1]);
      }
      if (least > most) return [0, 1];
      return least === most ? [least - 1, most + 1] : [least, most];
    }

    // The values that can be seen.
    valueRange([from, to]) {
      let least = Infinity, most = -Infinity;
      const all = this.app.cutsOutliers ? [] : null;
      for (const {x, y} of this.curves.values()) {
        const end = Math.min(x.length, lowerBound(x, to) + 1);
        for (let i = Math.max(0, lowerBound(x, from) - 1); i < end; ++i) {
          const value = y[i];
          if (!Number.isFinite(value) || (this.isLog && value <= 0)) continue;
          if (value < least) least = value;
          if (value > most) most = value;
          all?.push(value);
        }
      }
      if (all && all.length > 20) {
        all.sort((a, b) => a - b);
        least = all[Math.floor(all.length * 0.01)];
        most = all[Math.ceil(all.length * 0.98) - 1];
      }
      if (least > most) return this.isLog ? [0.1, 1] : [0, 1];
      if (this.isLog) return least === most ? [least / 2, most * 2] : [least / 1.05, most * 1.05];
      const room = (most - least) * 0.05 || Math.abs(most) * 0.1 || 1;
      return [least - room, most + room];
    }

    make() {
      const style = getComputedStyle(document.documentElement);
      const colour = name => style.getPropertyValue(name).trim();
      const axis = {stroke: colour("--faint"), font: "11px system-ui, sans-serif",
        grid: {stroke: colour("--grid"), width: 1}, ticks: {stroke: colour("--grid"), size: 4}};
      const isClock = this.axisName === "clock", isElapsed = this.axisName === "elapsed";
      this.made = [this.isLog, this.axisName, gradus.isDark()].join();
      this.plot?.destroy();
      this.held = null;
      this.isMoving = false;
      this.plot = new uPlot({
        width: Math.max(100, this.plotElement.clientWidth),
        height: Math.max(100, this.plotElement.clientHeight),
        legend: {show: false},
        scales: {x: {time: isClock, auto: false}, y: {auto: false, distr: this.isLog ? 3 : 1}},
        series: [{}, {paths: () => null, points: {show: false}}],
        axes: [
          {...axis, size: 28, values: isElapsed
            ? (_, ticks) => ticks.map(gradus.duration)
            : isClock ? undefined : (_, ticks) => ticks.map(gradus.number)},
          {...axis, size: 54, values: (_, ticks) =>
            ticks.map(tick => tick === null ? "" : gradus.number(tick))},
        ],
        cursor: {drag: {x: true, y: false, setScale: false}, points: {show: false},
          bind: {dblclick: () => () => { this.app.setView(null); return null; }}},
        hooks: {
          draw: [plot => this.drawCurves(plot)],
          setSelect: [plot => this.zoomToSelection(plot)],
          setCursor: [plot => this.showTip(plot)],
        },
      }, [[0, 1], [0, 1]], this.plotElement);
      this.bindMoving(this.plot.over);
    }

    draw() {
      if (!this.isVisible) { this.isDirty = true; return; }
      this.isDirty = false;
      const made = [this.isLog, this.axisName, gradus.isDark()].join();
      if (!this.plot || this.made !== made) this.make();
      const [from, to] = this.view ?? this.wholeRange();
      const [low, high] = this.held ?? this.valueRange([from, to]);
      this.plot.batch(() => {  // as one picture: uPlot draws at the end of a batch
        this.plot.redraw(false, true);
        this.plot.setScale("x", {min: from, max: to});
        this.plot.setScale("y", {min: low, max: high});
      });
      if (this.curves.size === 1) {
        const {y} = this.curves.values().next().value;
        this.value.textContent = gradus.number(y[y.length - 1]);
      } else {
        this.value.textContent = this.curves.size ? `${this.curves.size} runs` : "";
      }
    }

    drawCurves(plot) {
      const {ctx, bbox, scales: {x, y}} = plot;
      if (!this.held) this.picture = null;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      if (this.held) this.drawPicture(ctx, bbox, x, y);
      else this.strokeCurves({ctx, bbox, x, y});
      ctx.restore();
    }

    // While a chart is moved its curves are a picture, which is drawn once and then only shifted: a
    // frame costs the same with a thousand runs. It reaches further than the chart on either side.
    drawPicture(ctx, bbox, x, y) {
      const width = x.max - x.min;
      let picture = this.picture;
      const serves = picture && picture.curves === this.curves &&
        picture.atRun === this.app.atRun &&
        picture.x.min <= x.min && picture.x.max >= x.max && picture.y.min === y.min &&
        picture.y.max === y.max && picture.bbox.height === bbox.height &&
        width > picture.width / 2;  // fingers zoom, too
      if (!serves) {
        const room = width * Math.min(1, (kWidestPicture / bbox.width - 1) / 2);
        const from = x.min - room, to = x.max + room;
        const size = Math.ceil(bbox.width * (to - from) / width);
        picture = {canvas: new OffscreenCanvas(size, bbox.height), curves: this.curves,
          atRun: this.app.atRun, x: {min: from, max: to}, y: {min: y.min, max: y.max}, width,
          bbox: {left: 0, top: 0, width: size, height: bbox.height}};
        this.strokeCurves({...picture, ctx: picture.canvas.getContext("2d")});
        this.picture = picture;
      }
      const perX = picture.bbox.width / (picture.x.max - picture.x.min);
      ctx.drawImage(picture.canvas, (x.min - picture.x.min) * perX, 0, width * perX, bbox.height,
        bbox.left, bbox.top, bbox.width, bbox.height);
    }

    // `place`: the context, its rectangle and the ranges of both axes.
    strokeCurves(place) {
      place.ctx.lineJoin = "bevel";
      const ratio = devicePixelRatio || 1, many = this.curves.size > 30;
      for (const [id, curve] of this.raw) this.strokeCurve(place, id, curve, 0.28, ratio);
      for (const [id, curve] of this.curves)
        if (id !== this.app.atRun)
          this.strokeCurve(place, id, curve, many ? 0.55 : 0.95, (many ? 1 : 1.5) * ratio);
      const at = this.curves.get(this.app.atRun);
      if (at) this.strokeCurve(place, this.app.atRun, at, 1, 2.6 * ratio);
    }

    strokeCurve({ctx, bbox, x: across, y: up}, id, {x, y}, alpha, width) {
      const isLog = this.isLog;
      const begin = Math.max(0, lowerBound(x, across.min) - 1);
      const end = Math.min(x.length, lowerBound(x, across.max) + 1);
      const low = isLog ? Math.log10(up.min) : up.min;
      const high = isLog ? Math.log10(up.max) : up.max;
      const perX = bbox.width / (across.max - across.min), perY = bbox.height / (high - low);
      const bottom = bbox.top + bbox.height;
      ctx.strokeStyle = ctx.fillStyle = this.app.colourOf(id);
      ctx.globalAlpha = alpha;
      ctx.lineWidth = width;
      ctx.beginPath();
      let isDrawing = false, drawn = 0;
      for (let i = begin; i < end; ++i) {
        const value = isLog ? Math.log10(y[i]) : y[i];
        if (!Number.isFinite(value)) { isDrawing = false; continue; }
        const px = bbox.left + (x[i] - across.min) * perX, py = bottom - (value - low) * perY;
        if (isDrawing) ctx.lineTo(px, py); else ctx.moveTo(px, py);
        isDrawing = true;
        if (++drawn % kPiece !== 0) continue;
        ctx.stroke();  // short paths are drawn much faster than one long one
        ctx.beginPath();
        ctx.moveTo(px, py);
      }
      ctx.stroke();
      if (drawn > 0 && drawn <= 40 && this.curves.size <= 30) {  // few points are shown as such
        for (let i = begin; i < end; ++i) {
          const value = isLog ? Math.log10(y[i]) : y[i];
          if (!Number.isFinite(value)) continue;
          ctx.beginPath();
          ctx.arc(bbox.left + (x[i] - across.min) * perX, bottom - (value - low) * perY,
            width * 1.5, 0, 7);
          ctx.fill();
        }
      }
    }

    zoomToSelection(plot) {
      const {left, width} = plot.select;
      if (width < 6 || this.isMoving) return;
      const view = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
      plot.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
      this.app.setView(view, this);
    }

    // Shows another part: at once with what is there, then exactly.
    setView(view) {
      this.view = view;
      this.draw();
      const width = view ? view[1] - view[0] : 0;
      const isCovered = view && this.loaded && this.loaded[0] <= view[0] &&
        this.loaded[1] >= view[1] && this.loaded[1] - this.loaded[0] <= width * 4;
      if (isCovered) return;
      clearTimeout(this.later);
      this.later = setTimeout(() => this.refresh(), 120);
    }

    moveBy(share) {
      const [from, to] = this.view ?? this.wholeRange(), by = (to - from) * share;
      this.setView([from + by, to + by]);
    }

    zoomBy(factor, share = 0.5) {
      const [from, to] = this.view ?? this.wholeRange(), at = from + (to - from) * share;
      this.app.setView([at - (at - from) * factor, at + (to - at) * factor], this);
    }

    onKey(event) {
      const actions = {
        ArrowLeft: () => this.moveBy(-0.15), ArrowRight: () => this.moveBy(0.15),
        "+": () => this.zoomBy(0.6), "=": () => this.zoomBy(0.6), "-": () => this.zoomBy(1 / 0.6),
        "0": () => this.app.setView(null), Enter: () => {
          this.element.classList.toggle("wide");
          this.resize();
        },
      };
      const action = actions[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action();
    }

    // Moving with the mouse (shift, middle button, or "drag moves") and with fingers.
    bindMoving(over) {
      let start = null;
      const fingers = new Map();
      const range = () => this.view ?? this.wholeRange();
      const hold = () => {  // the values' axis rests while the chart moves
        const {min, max} = this.plot.scales.y;
        this.isMoving = true;
        this.held = [min, max];
      };
      over.addEventListener("pointerdown", event => {
        if (event.pointerType === "touch") {
          fingers.set(event.pointerId, event);
          start = {range: range(), fingers: [...fingers.values()]};
          hold();
          return;
        }
        if (!(this.app.dragMoves || event.shiftKey || event.button === 1)) return;
        event.preventDefault();
        event.stopImmediatePropagation();
        over.setPointerCapture(event.pointerId);
        start = {x: event.clientX, range: range()};
        hold();
      }, true);
      over.addEventListener("mousedown", event => {  // uPlot's selection
        if (this.isMoving) event.stopImmediatePropagation();
      }, true);
      over.addEventListener("pointermove", event => {
        if (!start) return;
        const [from, to] = start.range, width = over.clientWidth;
        if (event.pointerType === "touch") {
          fingers.set(event.pointerId, event);
          const now = [...fingers.values()], before = start.fingers;
          if (now.length !== before.length) return;
          const left = over.getBoundingClientRect().left;
          const middle = list => list.reduce((sum, e) => sum + e.clientX - left, 0) / list.length;
          const spread = list => list.length < 2 ? 1
            : Math.max(20, Math.abs(list[0].clientX - list[1].clientX));
          const factor = spread(before) / spread(now);
          const at = from + (to - from) * middle(before) / width;
          const newWidth = (to - from) * factor;
          const newFrom = at - newWidth * middle(now) / width;
          this.next = [newFrom, newFrom + newWidth];
        } else {
          const by = (start.x - event.clientX) / width * (to - from);
          this.next = [from + by, to + by];
        }
        if (!this.frame) this.frame = requestAnimationFrame(() => {
          this.frame = 0;
          this.setView(this.next);
        });
      });
      const end = event => {
        fingers.delete(event.pointerId);
        if (!start) return;
        start = fingers.size ? {range: range(), fingers: [...fingers.values()]} : null;
        if (start) return;
        cancelAnimationFrame(this.frame);
        this.frame = 0;
        this.held = null;
        setTimeout(() => { this.isMoving = false; });
        const view = this.next ?? this.view;
        this.next = null;
        if (view) this.app.setView(view, this); else this.draw();
      };
      over.addEventListener("pointerup", end);
      over.addEventListener("pointercancel", end);
      over.addEventListener("wheel", event => {
        if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.plotElement) return;
        event.preventDefault();
        const share = event.offsetX / over.clientWidth;
        this.zoomBy(event.deltaY > 0 ? 1.25 : 0.8, share);
      }, {passive: false});
      over.addEventListener("mouseleave", () => { tip.hidden = true; });
    }

    // The curves nearest to the cursor.
    showTip(plot) {
      const {left, top} = plot.cursor;
      if (left < 0 || top < 0 || this.curves.size === 0 || this.isMoving) {
        tip.hidden = true;
        return;
      }
      const at = plot.posToVal(left, "x"), found = [];
      for (const [id, {x, y}] of this.curves) {
        if (x.length === 0) continue;
        let i = Math.min(lowerBound(x, at), x.length - 1);
        if (i > 0 && at - x[i - 1] < x[i] - at) --i;
        if (!Number.isFinite(y[i])) continue;
        found.push({id, x: x[i], y: y[i], far: Math.abs(plot.valToPos(y[i], "y") - top)});
      }
      if (found.length === 0) { tip.hidden = true; return; }
      found.sort((a, b) => a.far - b.far);
      const nearest = found[0];
      const place = this.axisName === "step" ? `step ${nearest.x}`
        : this.axisName === "clock" ? clockText(nearest.x) : gradus.duration(nearest.x);
      tip.replaceChildren(gradus.make("div", {class: "note"}, place),
        ...found.slice(0, 8).sort((a, b) => b.y - a.y).map(({id, y}) => gradus.make("div", {},
          gradus.make("span", {class: "dot", style: {background: this.app.colourOf(id)}}),
          gradus.make("span", {}, this.app.runs[id]?.name ?? ""),
          gradus.make("b", {}, gradus.number(y)))));
      tip.hidden = false;
      const box = plot.over.getBoundingClientRect();
      const x = box.left + left, y = box.top + top;
      const fits = x + 14 + tip.offsetWidth <= innerWidth;
      tip.style.left = `${fits ? x + 14 : x - 14 - tip.offsetWidth}px`;
      tip.style.top = `${Math.min(y + 14, innerHeight - tip.offsetHeight - 6)}px`;
    }

    resize() {
      const width = this.plotElement.clientWidth, height = this.plotElement.clientHeight;
      if (!this.plot || width < 20 || (this.plot.width === width && this.plot.height === height))
        return;
      this.plot.setSize({width, height});
      this.draw();
    }
  }
  gradus.Chart = Chart;
}
