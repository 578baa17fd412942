// One job.

/** Mounts it. */
export function mount(root, { h, params, format }) {
  root.append(h("h1", null, format.keyOfPath(params)));
  return {};
}
