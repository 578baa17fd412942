// Builds the page out of text. Whatever comes from outside becomes a text node or an attribute's value, never markup.

/** An element: attributes (`on...` are listeners; false and null leave one out), then children (text, nodes, arrays). */
export function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) set(made, name, value);
  add(made, children);
  return made;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "href" && !/^[/#?]/.test(value)) throw new Error(`a link to elsewhere: ${value}`);
  else element.setAttribute(name, value === true ? "" : value);
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Set an element's text, where it changes. */
export function text(element, value) {
  const said = String(value ?? "");
  if (element.textContent !== said) element.textContent = said;
}

/** Set or (null, false) drop an attribute, where that changes it. */
export function attribute(element, name, value) {
  const said = value === null || value === undefined || value === false ? null : value === true ? "" : String(value);
  if (element.getAttribute(name) === said) return;
  if (said === null) element.removeAttribute(name);
  else element.setAttribute(name, said);
}

/** Put these children in place of whatever is there. */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** Whether the focus is where letters are typed, so that no key of ours may act. */
export function isTyping() {
  const at = document.activeElement;
  return at?.matches("input:not([type=checkbox]), textarea, select, [contenteditable]") ?? false;
}
