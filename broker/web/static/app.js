// The shell: one page, its views by location, and what they share.
//
// A view is a module that exports
//   mount(root, context) -> {update?(changed), unmount?(), keys?, located?(location)}
// and is named in VIEWS below; it is fetched when it is first looked at. `root` is its own empty element below <main>.
//   update(changed)  at most once a frame, only while mounted. `changed` holds what changed since the last call:
//                    jobs (true; then `keys` is the Set of their keys, or null where the whole list was replaced),
//                    doubt, overview, nodes, groups, connection, and tick (each second, for ages).
//   unmount()        ends timers and requests of its own; the elements are taken away by the shell.
//   keys             {j: ["next job", function]}: keys that act while the view is shown; `?` lists them.
//   located(l)       told instead of a new mount where only the query of its location changed.
// `context` holds
//   model     jobs (Map: key -> record), doubt (Set of keys shown `running?`), overview, nodes, groups (as the stream told
//             them last, null before), live (false: what is shown may be old), listedAt (null: no list yet), liveAt, listTrouble,
//             whole (false: only the newest are held; `total` says how many there are), subscribe(told) -> end,
//             refresh() -> whether it was listed anew. Views read it and never write it.
//   api       get(path, options), post(path, body), response(path, options), jobRoute(key, verb), Problem (status, rule,
//             detail; its `message` is the one line to show). A 401 goes to the login page by itself.
//   navigate(path, {replace})   h, text, attribute, fill (dom.js)   format (format.js)   icon(name) (icons.js)
//   stateMark(record, doubt) -> the element that every page shows a state by; stateMark.paint(element, record, doubt)
//   ask({title, body, verb, danger, options}) -> Promise of null or {name: bool} (dialog.js)   toast(text, {bad})
//   params    the part of the path behind the view's own: a job's key
// Figures that grow old while nothing is live carry the class `figure`: the shell greys them. What somebody else
// wrote reaches the page by text nodes alone.

import * as api from "./api.js";
import { ask, toast } from "./dialog.js";
import * as dom from "./dom.js";
import * as format from "./format.js";
import { icon } from "./icons.js";
import { keyboard } from "./keys.js";
import { Live } from "./live.js";
import { router } from "./router.js";
import { shell } from "./shell.js";
import { stateMark } from "./mark.js";

export const VIEWS = [
  { name: "overview", path: "/", title: "Overview", key: "o", load: () => import("./views/overview.js") },
  { name: "jobs", path: "/jobs", title: "Jobs", key: "j", load: () => import("./jobs.js") },
  { name: "nodes", path: "/nodes", title: "Nodes", key: "n", load: () => import("./views/nodes.js") },
  { name: "failures", path: "/failures", title: "Failures", key: "f", load: () => import("./views/failures.js") },
  { name: "groups", path: "/groups", title: "Groups", key: "u", load: () => import("./views/groups.js") },
  { name: "streams", path: "/streams", title: "Streams", key: "s", load: () => import("./views/streams.js") },
  { name: "job", path: "/jobs/", parent: "jobs", title: "Job", load: () => import("./job.js") },
];

const main = document.getElementById("main");
const model = new Live();
let shown = { view: null, mounted: null };
let asked = 0;

const navigate = router((location) => show(location));
const context = { ...dom, model, api, format, icon, stateMark, ask, toast, navigate };
const tell = shell({ views: VIEWS, model, navigate });

function viewOf(path) {
  const exact = path.length > 1 ? path.replace(/\/$/, "") : path;
  const found = VIEWS.find((view) => view.path === exact);
  if (found) return { view: found, params: "" };
  const within = VIEWS.find((view) => view.path.length > 1 && view.path.endsWith("/") && path.startsWith(view.path));
  return { view: within ?? null, params: within ? path.slice(within.path.length) : "" };
}

async function show(location) {
  const { view, params } = viewOf(location.pathname);
  const turn = ++asked;
  if (view && view === shown.view && params === shown.params && shown.mounted?.located) {
    shown.mounted.located(location);
    return;
  }
  let module = { mount: missing };
  try {
    if (view) module = await view.load();
  } catch (error) {
    console.error(error);
    module = { mount: broken };
  }
  if (turn !== asked) return; // somebody went elsewhere meanwhile
  leave();
  const root = dom.h("div", { class: "view", "data-view": view?.name ?? "missing" });
  dom.fill(main, root);
  document.title = `${view?.title ?? "Not found"} - fleet-broker`;
  const first = shown.view === null;
  shown = { view, params, mounted: null };
  tell.shown(view);
  shown.mounted = module.mount(root, { ...context, params }) ?? {};
  if (!first && !root.contains(document.activeElement)) main.focus({ preventScroll: true });
}

function leave() {
  shown.mounted?.unmount?.();
  shown.mounted = null;
}

function missing(root) {
  root.append(dom.h("div", { class: "empty" }, dom.h("h1", null, "No such page"), dom.h("p", null, location.pathname), dom.h("a", { href: "/" }, "Overview")));
}

function broken(root) {
  const again = dom.h("button", { type: "button", onclick: () => location.reload() }, "Load again");
  root.append(dom.h("div", { class: "empty" }, dom.h("h1", null, "This page could not be loaded"), again));
}

model.subscribe((changed) => {
  tell.update(changed);
  shown.mounted?.update?.(changed);
});
keyboard({ views: VIEWS, navigate, keys: () => shown.mounted?.keys ?? {}, theme: tell.theme });
show(location);
model.start();
