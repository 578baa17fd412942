// Talks to /v1: JSON in and out, and every failure as one Problem with one line for people.

/** What the server refused, or that it was not reached (status 0). `rule` is the name that documents know it by. */
export class Problem extends Error {
  constructor(status, rule, detail) {
    super(rule && !detail.includes(rule) ? `${detail} (${rule})` : detail);
    this.status = status;
    this.rule = rule;
    this.detail = detail;
  }
}

/** The JSON that a GET answers. Raises Problem; one whose token is missing goes to the login page. */
export const get = async (path, options = {}) => read(await send(path, options));

/** The whole response of a GET, for who needs its headers; `read` gives what it holds. Raises as `get`. */
export const response = (path, options = {}) => send(path, options);

/** The JSON that an answer holds. Raises Problem where it broke off on its way: that is as good as none. */
export async function read(answer) {
  try {
    return await answer.json();
  } catch (broken) {
    if (broken.name === "AbortError") throw broken;
    throw new Problem(0, "", "the answer of the server broke off");
  }
}

/** The JSON that a POST of `body` answers; null where it answers nothing. Raises as `get`. */
export async function post(path, body = {}) {
  const headers = { "Content-Type": "application/json" };
  const answer = await send(path, { method: "POST", headers, body: JSON.stringify(body) });
  return answer.status === 204 ? null : read(answer);
}

async function send(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options });
  } catch (lost) {
    if (lost.name === "AbortError") throw lost;
    throw new Problem(0, "", "the server cannot be reached");
  }
  if (answer.ok) return answer;
  const problem = await problemOf(answer);
  if (answer.status === 401 && location.pathname !== "/login") toLogin();
  throw problem;
}

/** What an answer that is not ok says is wrong. */
export async function problemOf(answer) {
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // Not ours: a proxy's page, or a body that was cut.
  }
  return new Problem(answer.status, said.rule ?? "", said.detail || `the server answers ${answer.status}`);
}

/** Ask for the token, and come back here. */
export function toLogin() {
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}

/** The route of one job: its key is one segment, whatever its id holds. */
export const jobRoute = (key, verb = "") => `/v1/jobs/${encodeURIComponent(key)}${verb && `/${verb}`}`;
