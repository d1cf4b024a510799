// Requests of the page. The cookie opens what is below /page only; each refusal says what to do.

export class Problem extends Error {
  constructor(status, body) {
    super(body.title ?? String(status));
    this.status = status;
    this.code = body.code ?? "";
    this.detail = body.detail ?? "";
  }
  get text() { return this.detail ? `${this.message} ${this.detail}` : this.message; }
}

let signedOut = () => {};
export function onSignedOut(listener) { signedOut = listener; }

/** Send a request and return its JSON. Raises Problem; a request that met no server has the status 0. */
export async function call(method, path, body, headers = {}) {
  const options = { method, headers: { ...headers } };
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(`/page${path}`, options);
  } catch {
    throw new Problem(0, { title: "offline", code: "offline" });
  }
  const found = await answer.json().catch(() => ({}));
  if (answer.ok) return found;
  if (answer.status === 401 && found.code === "no_session") signedOut();
  throw new Problem(answer.status, found);
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}, headers) => call("POST", path, body, headers);
