// Which page a location names. One document serves all; links are followed without loading it again.

/** Calls `show(location)` now and whenever the location changes; gives `navigate(path, {replace})`. */
export function router(show) {
  const navigate = (path, { replace = false } = {}) => {
    if (path === location.pathname + location.search) return;
    // `within`: going back stays in this page.
    if (replace) history.replaceState(history.state, "", path);
    else history.pushState({ within: true }, "", path);
    show(location);
  };
  addEventListener("popstate", () => show(location));
  addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest?.("a[href^='/']");
    if (!link || link.target || isServers(link.pathname)) return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
  return navigate;
}

/** Paths that the server answers itself. */
const isServers = (path) => /^\/(v1|docs|openapi\.json|metrics|livez|readyz|version|static|login|logout)(\/|$)/.test(path);
