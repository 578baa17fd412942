// Why jobs fail: errors that are alike as one line, and the way to the jobs behind it.

import { h, text } from "../dom.js";
import * as format from "../format.js";
import { heading, link, panel, table } from "./parts.js";

/** What stands for the parts in which like errors differ. */
const FOLDED = /#|<hex>|<path>|<text>/;
const WORDS_MAX = 10;
/** What the search of the list would not take for a word to be found. */
const isWord = (word) => /\p{L}/u.test(word) && !/^-|^[a-z]+:./i.test(word);

/** The list of the failed jobs in which all words stand that are common to these errors. */
export function failedPath(error) {
  const words = [...new Set(error.split(FOLDED).join(" ").split(/\s+/).filter(isWord))].slice(0, WORDS_MAX);
  return `/jobs?state=failed${words.length ? `&q=${encodeURIComponent(words.join(" "))}` : ""}`;
}

/** Columns of a table of failures, as an overview tells them. */
export const failureColumns = [
  { head: "Error", kind: "wide", paint: (cell, { error, cut }) => link(cell, failedPath(error), cut ? `${error}…` : error || "no reason was told") },
  { head: "Jobs", kind: "number", text: ({ count }) => format.count(count) },
  { head: "Newest", kind: "time", paint: paintNewest },
];

function paintNewest(cell, { newest_key: key, newest_at: at }) {
  link(cell, format.jobPath(key), format.ago(at));
  cell.firstChild.title = `${key}\n${format.instant(at)}`;
}

export function mount(root, { model }) {
  const grid = table("Failures by error", failureColumns, ({ error }) => error);
  const sum = h("span", { class: "dim" });
  root.append(heading("Failures", sum), panel("By error", grid.element),
    h("p", { class: "dim remark" }, "Numbers, paths and quoted texts are left out, so that like errors count as one. # stands for a number, … for what a list has no room for."));
  const paint = () => {
    const { overview } = model;
    const found = overview?.failures ?? [];
    const told = found.reduce((all, { count }) => all + count, 0);
    const failed = overview?.jobs.failed ?? 0;
    text(sum, overview ? `${format.counted(failed, "failed job")} kept${told < failed ? `, ${format.count(told)} of them in the ${found.length} errors shown` : ""}` : "");
    grid.show(found, overview ? "No job is kept that failed." : "Nothing was heard yet.");
  };
  paint();
  return { update: (changed) => (changed.overview || changed.tick) && paint() };
}
