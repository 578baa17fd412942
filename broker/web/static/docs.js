// Draws the OpenAPI document of this server. Whatever it says becomes text, never markup.

import { fill, h } from "./dom.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const page = document.getElementById("docs");

/** What a schema is, in few words; a named one leads to where it is told. */
function type(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return named(schema.$ref);
  const ways = schema.anyOf ?? schema.oneOf;
  if (ways) return ways.flatMap((way, at) => (at ? [" or ", type(way)] : [type(way)]));
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(", ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.type === "array") return ["array of ", type(schema.items)];
  if (typeof schema.additionalProperties === "object") return ["object of ", type(schema.additionalProperties)];
  return schema.type ?? "anything";
}

function named(reference) {
  const name = reference.split("/").at(-1);
  return h("a", { href: `#schema-${name}` }, name);
}

/** What a schema allows, beyond its type. */
function bounds(schema) {
  const names = { minimum: "at least", maximum: "at most", minLength: "length at least", maxLength: "length at most", pattern: "matches", default: "default" };
  return Object.entries(names)
    .filter(([name]) => schema?.[name] !== undefined && schema[name] !== null && schema[name] !== "")
    .map(([name, words]) => `${words} ${schema[name]}`)
    .join("; ");
}

function table(heads, rows) {
  if (!rows.length) return null;
  return h("div", { class: "scroll" },
    h("table", {},
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}

function fields(schema) {
  const needed = new Set(schema?.required);
  const rows = Object.entries(schema?.properties ?? {}).map(([name, field]) => [
    h("code", {}, name), type(field), needed.has(name) ? "required" : "", [field.description, bounds(field)].filter(Boolean).join("; "),
  ]);
  return table(["field", "type", "needed", "about"], rows) ?? h("p", {}, type(schema));
}

function contents(content, show) {
  return Object.entries(content ?? {}).map(([media, { schema }]) => show(media, schema));
}

function curl(path, method, operation) {
  const words = ["curl"];
  if (method !== "get") words.push("-X", method.toUpperCase(), "-H", "'Content-Type: application/json'");
  if (operation.security) words.push("-H", '"Authorization: Bearer $BROKER_TOKEN"');
  if (operation.requestBody) words.push("-d", "'{...}'");
  else if (method !== "get") words.push("-d", "'{}'");
  words.push(`'${location.origin}${path}'`);
  return h("pre", {}, words.join(" "));
}

function operation(path, method, told) {
  const [first, ...rest] = told.description?.split(/\n\n|(?<=\.)\s+(?=[A-Z0-9])/) ?? []; // by sentence
  const parameters = (told.parameters ?? []).map((each) => [
    h("code", {}, each.name), each.in, type(each.schema), each.required ? "required" : "", [each.description, bounds(each.schema)].filter(Boolean).join("; "),
  ]);
  const answers = Object.entries(told.responses ?? {}).map(([status, answer]) => [
    status, answer.description ?? "", contents(answer.content, (media, schema) => h("div", {}, media, ": ", type(schema))),
  ]);
  return h("details", {},
    h("summary", {},
      h("span", { class: "method", "data-method": method }, method.toUpperCase()), h("code", {}, path), h("span", { class: "dim" }, first ?? told.summary ?? "")),
    h("div", {},
      rest.length ? h("p", {}, rest.join(" ")) : null,
      curl(path, method, told),
      parameters.length ? [h("h3", {}, "Parameters"), table(["name", "in", "type", "needed", "about"], parameters)] : null,
      told.requestBody ? [h("h3", {}, "Body"), contents(told.requestBody.content, (media, schema) => [h("p", { class: "dim" }, media), fields(schema)])] : null,
      h("h3", {}, "Answers"), table(["status", "meaning", "answer"], answers)));
}

function draw(document) {
  const operations = Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => operation(path, method, item[method])));
  const schemas = Object.entries(document.components?.schemas ?? {}).map(([name, schema]) =>
    h("details", { id: `schema-${name}` },
      h("summary", {}, h("code", {}, name)),
      h("div", {}, h("p", {}, schema.description ?? ""), fields(schema))));
  fill(page,
    h("header", {}, h("h1", {}, `${document.info.title} ${document.info.version}`), h("p", {}, h("a", { href: "/" }, "Dashboard"), " · ", h("a", { href: "/openapi.json" }, "/openapi.json"))),
    h("section", { "aria-label": "Operations" }, operations),
    h("section", { "aria-label": "Schemas" }, h("h2", {}, "Schemas"), schemas));
}

/** A schema that is linked to is closed: open it, so that the jump shows something. */
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === "DETAILS") {
    target.open = true;
    target.scrollIntoView();
  }
}

async function start() {
  try {
    const answer = await fetch("/openapi.json");
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    draw(await answer.json());
    addEventListener("hashchange", reveal);
    reveal();
  } catch (error) {
    fill(page, h("p", { role: "alert" }, `/openapi.json could not be read: ${error.message}`));
  }
}

start();
