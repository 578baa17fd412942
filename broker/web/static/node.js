// How a node stands: in words, and which ones somebody must look at. Pure.

/** As [tone, words]: the operator's flag goes before what is heard of it. */
export function stateOf({ flag, left, suspect }) {
  const silent = suspect && !left ? ", silent ?" : "";
  if (flag) return [flag === "dead" ? "bad" : "idle", `${flag}${silent}`];
  if (left) return ["idle", "left"];
  return suspect ? ["doubt", "silent ?"] : ["good", "up"];
}

/** Whether it fell silent, though it said no goodbye and nobody took it out. */
export const isTroubled = ({ flag, left, suspect }) => suspect && !left && !flag;

/** Those in trouble first, else as they came. */
export const troubledFirst = (nodes) => [...nodes].sort((a, b) => isTroubled(b) - isTroubled(a));
