// Icons as DOM: one path each, drawn in the colour of the text. States differ by shape, not only by colour.

const PATHS = {
  queued: "M8 3.2a4.8 4.8 0 1 1 0 9.6 4.8 4.8 0 0 1 0-9.6",
  placed: "M8 3.2a4.8 4.8 0 1 1 0 9.6 4.8 4.8 0 0 1 0-9.6M8 5.5V8l1.8 1.4",
  running: "M5 3.4 12.6 8 5 12.6Z",
  completed: "M3.2 8.4 6.6 11.8 13 4.8",
  failed: "M4.2 4.2l7.6 7.6M11.8 4.2l-7.6 7.6",
  cancelled: "M8 3.2a4.8 4.8 0 1 1 0 9.6 4.8 4.8 0 0 1 0-9.6M4.7 11.3l6.6-6.6",
  gone: "M3.5 8h9",
  overview: "M2.5 9.5h3v4h-3zM6.5 5.5h3v8h-3zM10.5 2.5h3v11h-3z",
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  nodes: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.1M5 11h.1",
  failures: "M8 2.5 14 13H2ZM8 6.5v3M8 11.3h.1",
  groups: "M3 3v10M3 8h6M9 8l4-4M9 8l4 4",
  streams: "M2 5c2-2 4-2 6 0s4 2 6 0M2 10.5c2-2 4-2 6 0s4 2 6 0",
  theme: "M8 2.8a5.2 5.2 0 1 1 0 10.4zM8 2.8a5.2 5.2 0 1 0 0 10.4",
  help: "M6 6a2 2 0 1 1 2.8 1.9C8.2 8.2 8 8.6 8 9.3M8 11.8h.1",
  logout: "M6 3H3v10h3M7 8h6M10.5 5.5 13 8l-2.5 2.5",
  back: "M9.5 3.5 5 8l4.5 4.5",
  copy: "M5.5 5.5h7v7h-7zM10.5 5.5v-2h-7v7h2",
  close: "M4.2 4.2l7.6 7.6M11.8 4.2l-7.6 7.6",
};

const SVG = "http://www.w3.org/2000/svg";

/** An icon that says nothing to a screen reader: text stands beside it. */
export function icon(name) {
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("viewBox", "0 0 16 16");
  made.setAttribute("class", "icon");
  made.setAttribute("aria-hidden", "true");
  made.append(document.createElementNS(SVG, "path"));
  return reshape(made, name);
}

/** Turn an icon into another one. */
export function reshape(svg, name) {
  if (svg.dataset.icon === name) return svg;
  svg.dataset.icon = name;
  svg.firstChild.setAttribute("d", PATHS[name] ?? PATHS.gone);
  return svg;
}

/** Which icon a record's state has: a job that has its node but has not started is `placed`. */
export const stateIcon = (record) => (record.state === "queued" && record.node ? "placed" : record.state);
