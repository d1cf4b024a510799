// Requests of the page. The cookie opens what is below /page only; each refusal says what to do.

import { t } from "/page/static/dom.js";

const PATIENCE = 60000; // milliseconds: a connection that died without a word would keep a request for ever

export class Problem extends Error {
  constructor(status, body) {
    super(body.title ?? String(status));
    this.status = status;
    this.code = body.code ?? "";
    this.detail = body.detail ?? "";
  }
  /** What went wrong and what to do, in the language of the page where it knows this code. */
  get text() { return t(`problem_${this.code}`, {}, "") || [this.message, this.detail].filter(Boolean).join(" "); }
}

let person = "";
/** Name the person of this tab with each request: the cookie may be another one's by now. */
export function setPerson(id) { person = encodeURIComponent(id); }
/** Return the parameter that names the person where a request has no headers. */
export const personQuery = () => `person=${encodeURIComponent(person)}`;

let signedOut = () => {};
/** Call `listener` with the refusal's code when nobody, or somebody else, is signed in. */
export function onSignedOut(listener) { signedOut = listener; }

/** Send a request and return its JSON. Raises Problem; a request that met no server has the status 0. */
export async function call(method, path, body, headers = {}) {
  const options = { method, headers: { ...headers, ...(person ? { "Fawn-Person": person } : {}) } };
  if (body instanceof FormData) options.body = body; // a file takes as long as it takes
  else options.signal = AbortSignal.timeout(PATIENCE);
  if (body !== undefined && !(body instanceof FormData)) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let answer;
  const early = path === "/me" && globalThis.early; // of early.js, once
  if (early) globalThis.early = null;
  try {
    answer = await (early || fetch(`/page${path}`, options));
  } catch {
    throw new Problem(0, { title: "offline", code: "offline" });
  }
  const found = await answer.json().catch(() => null);
  if (!found && answer.ok && answer.status !== 204) throw new Problem(0, { title: "offline", code: "offline" }); // cut in the middle
  if (answer.ok) return found ?? {};
  if (answer.status === 401 && ["no_session", "other_person", "proxy_session"].includes(found?.code)) signedOut(found.code);
  throw new Problem(answer.status, found ?? {});
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}, headers) => call("POST", path, body, headers);
