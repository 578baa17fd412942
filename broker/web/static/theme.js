// Loaded before the first paint, so that a chosen theme does not flash. A classic script: modules come too late.
(() => {
  const known = ["dark", "light"];
  let kept = null;
  try {
    kept = localStorage.getItem("theme");
  } catch {
    // Storage may be forbidden: then the system's choice stands.
  }
  if (known.includes(kept)) document.documentElement.dataset.theme = kept;
})();
