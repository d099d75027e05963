// The colours of runs: one each, or by the value of a setting.
"use strict";
{
  // Told apart also by people who see few colours; a lighter set for the dark page.
  const light = ["#2563c9", "#d1571f", "#1a8f5a", "#8a3ab9", "#b8860b", "#c22f6b", "#0f8b8d",
    "#6b5b3e", "#5566dd", "#7a9a01"];
  const dark = ["#79a8f5", "#f59b5f", "#5fcf94", "#c48df0", "#e3c14e", "#f280ae", "#58cfd0",
    "#c9b48a", "#a3adff", "#bfd64f"];

  gradus.isDark = () => document.documentElement.classList.contains("dark");
  gradus.palette = index => (gradus.isDark() ? dark : light)[index % 10];

  // From blue to orange, for numbers in order.
  gradus.scaleColour = share => {
    const hue = 230 - 205 * share;
    return `hsl(${hue} 75% ${gradus.isDark() ? 65 : 45}%)`;
  };

  const statusColours = {running: 2, finished: 0, interrupted: 4, failed: 1, lost: 5, unknown: 7};

  // Returns {of(run) → colour, legend: [{label, colour}]}.
  gradus.colouring = (by, app) => {
    if (by === "run")
      return {of: run => gradus.palette(run.id), legend: []};
    if (by === "status")
      return {
        of: run => gradus.palette(statusColours[run.status] ?? 7),
        legend: Object.keys(statusColours)
          .filter(status => app.runs.some(run => run.status === status))
          .map(status => ({label: status, colour: gradus.palette(statusColours[status])})),
      };
    const values = app.settings[by] ?? [];
    const distinct = [...new Set(values.filter(value => value !== null && value !== undefined))];
    const numbers = distinct.map(Number);
    const isNumeric = distinct.length > 0 && numbers.every(Number.isFinite);
    if (isNumeric) distinct.sort((a, b) => a - b);
    else distinct.sort();
    const colours = new Map(distinct.map((value, i) => [value,
      isNumeric && distinct.length > 2
        ? gradus.scaleColour(i / (distinct.length - 1)) : gradus.palette(i)]));
    const grey = gradus.isDark() ? "#6a7380" : "#9aa3ad";
    return {
      of: run => colours.get(values[run.id]) ?? grey,
      legend: distinct.slice(0, 40).map(value => ({label: value, colour: colours.get(value)})),
    };
  };
}
