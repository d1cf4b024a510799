// Signing in: by a link that is opened once, whose token is in the fragment, or by a key of the API.

import { post } from "/page/static/api.js";
import { confirmed } from "/page/static/dialog.js";
import { h, t } from "/page/static/dom.js";

/** Take the token of the address, if it has one. Returns the problem with it, or null. */
export async function takeLink() {
  if (location.pathname !== "/login") return null;
  const token = location.hash.slice(1), asks = location.search === "?asks";
  history.replaceState(null, "", "/");
  if (!token || (asks && !(await confirmed(t("sign_in"), t("link_from_elsewhere"), t("sign_in"))))) return null;
  const problem = await useToken({ token });
  if (problem?.code !== "signed_in_here") return problem;
  if (!(await confirmed(t("sign_in"), t("link_of_another"), t("sign_in")))) return null;
  return useToken({ token, replace: true });
}

/** Sign in with a link. Returns the problem with it, or null. */
async function useToken(body) {
  try {
    await post("/login", body);
    return null;
  } catch (problem) {
    return problem;
  }
}

/** Return the page of somebody who is not signed in. `problem` says what was wrong with their link; `done` is called when they are. */
export function signIn(problem, done = () => location.reload(), words = "") {
  const key = h("input", { type: "password", name: "key", autocomplete: "current-password", placeholder: "fawn_…", "aria-label": t("key") });
  const wrong = h("p", { class: "failure", role: "alert", hidden: !problem, text: problem?.text ?? "" });
  const form = h("form", { on: { submit: async (event) => {
    event.preventDefault();
    try {
      await post("/login", { key: key.value.trim() });
      done();
    } catch (refused) {
      wrong.hidden = false;
      wrong.textContent = refused.status === 0 ? t("no_connection") : refused.text;
    }
  } } }, key, h("button", { class: "primary", text: t("sign_in") }));
  return h(words ? "div" : "main", { class: "signin" }, h("img", { src: "/page/static/icon.svg", alt: "", width: "64", height: "64" }), h("h1", { text: t("not_signed_in") }), words ? h("p", { text: words }) : null, wrong,
    h("p", { text: t("run_link") }), h("pre", {}, h("code", { text: "fawn web link" })), h("p", { class: "dim", text: t("or_key") }), form);
}
