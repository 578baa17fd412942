// Gives the token to the server, which answers with a cookie that no script can read. It is never part of an address.

import { post } from "./api.js";
import { text } from "./dom.js";

const form = document.getElementById("login");
const field = document.getElementById("token");
const button = form.querySelector("button");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  text(document.getElementById("login-error"), "");
  try {
    await post("/login", { token: field.value.trim() });
    remember();
    location.replace(after());
  } catch (refused) {
    text(document.getElementById("login-error"), refused.status === 401 ? "That is not the token of this broker." : refused.message);
    field.select();
    field.focus();
  } finally {
    button.disabled = false;
  }
});
button.disabled = false; // until now the browser would have sent the form by itself, in words that the server does not take

/** Where somebody came from, if that is a page of ours. */
function after() {
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  try {
    const target = new URL(next, location.origin);
    return target.origin === location.origin ? target.href : "/"; // a path alone may begin with //
  } catch {
    return "/";
  }
}

/** That there is a login to end; of the token nothing is kept. */
function remember() {
  try {
    localStorage.setItem("login", "yes");
  } catch {
    // Forbidden storage: then no page offers to log out.
  }
}
