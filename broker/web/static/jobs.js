// The job list.

/** Mounts it. */
export function mount(root, { h }) {
  root.append(h("h1", null, "Jobs"));
  return {};
}
