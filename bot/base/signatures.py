"""Sign deliveries, and check that a delivery comes from its sender.

Source: github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from agent.setting import Secret
from bot.config.hooks import HookConfig

WEBHOOK_SECRET_PREFIX = "whsec_"  # noqa: S105 — the mark of a Base64 secret


def sign_webhook(secret: Secret, id: str, at: str, body: bytes) -> str:
    """Return the Base64 of the HMAC-SHA256 of id, time and body. Raises ValueError for a damaged Base64 secret."""
    text = secret.reveal()
    key = text.encode()
    if text.startswith(WEBHOOK_SECRET_PREFIX):
        key = base64.b64decode(text.removeprefix(WEBHOOK_SECRET_PREFIX), validate=True)
    return base64.b64encode(hmac.digest(key, b".".join((id.encode(), at.encode(), body)), "sha256")).decode()


TOLERANCE_SECONDS = 300.0  # of a signed time (standardwebhooks: "a tolerance")
REPEAT_SECONDS = 300.0  # in which an unmarked delivery with the same body is another attempt at the same one
# Grafana gives no id, and signs each attempt anew. A recorded one is refused before its body counts as a new one.
GRAFANA_TOLERANCE_SECONDS = REPEAT_SECONDS / 2
MAX_ID_CHARS = 200
# The first is the one that it takes unasked; for the other it has none, and the tests of its sender have this one.
GRAFANA_SIGNATURE, GRAFANA_TIME = "x-grafana-alerting-signature", "x-grafana-alerting-timestamp"
# Each sender's own id of a delivery, the same in each attempt:
# github: docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers
# gitlab: docs of GitLab: user/project/integrations/webhooks/#delivery-headers (Idempotency-Key, webhook-id)
# sentry: docs.sentry.io/organization/integrations/integration-platform/webhooks/#request-headers
# grafana: none (github.com/grafana/alerting/blob/main/receivers/webhook/v1/webhook.go)
# standard: …/standard-webhooks.md#webhook-headers-sending-metadata-to-consumers
DELIVERY_HEADERS = {
    "standard": ("webhook-id",),
    "github": ("x-github-delivery",),
    "gitlab": ("idempotency-key", "webhook-id", "x-gitlab-event-uuid"),
    "sentry": ("request-id",),
    "grafana": (),
    "bearer": ("webhook-id", "idempotency-key"),
}


class BadSignature(Exception):
    """A delivery that is not its sender's. `code` is short, `what` and `fix` are for whoever set the sender up."""

    def __init__(self, code: str, what: str, fix: str) -> None:
        super().__init__(code)
        self.code, self.what, self.fix = code, what, fix


@dataclass(frozen=True, slots=True)
class Proof:
    """What tells a delivery from others. `id` is "" where the sender gives none; `digest` is of the body.

    `covers_all`: the signature covers the body and nothing that an old delivery could be given anew, so that the
    same body is never a new delivery.
    """

    id: str
    digest: str
    covers_all: bool


def check_signature(hook: HookConfig, headers: Mapping[str, str], body: bytes, now: float) -> Proof:
    """Return what makes a delivery unique. `headers` are found by small letters. Raises BadSignature."""
    secret, given = hook.secret.reveal().encode(), _FINDERS[hook.signature](headers)
    if not given:
        raise BadSignature("not_signed", "The delivery is not signed.", _how(hook))
    match hook.signature:
        case "standard":
            _check_standard(hook, headers, body, now)
        case "github":  # docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
            _compare(hook, given, f"sha256={hmac.digest(secret, body, 'sha256').hex()}")
        case "sentry":  # …/integration-platform/webhooks/#verifying-the-signature: hex HMAC of the body
            _compare(hook, given, hmac.digest(secret, body, "sha256").hex())
        case "grafana":
            _check_grafana(hook, headers, body, now)
        case "gitlab" | "bearer":
            _compare(hook, given, hook.secret.reveal())
    names = DELIVERY_HEADERS[hook.signature]
    id = next((value for name in names if (value := headers.get(name, ""))), "")[:MAX_ID_CHARS]
    return Proof(id, hashlib.sha256(body).hexdigest(), hook.signature in ("github", "sentry"))


def is_needed_before_body(hook: HookConfig) -> bool:
    """Return whether the proof is a header alone, so that a stranger's body need not be read."""
    return hook.signature in ("gitlab", "bearer")


def _check_standard(hook: HookConfig, headers: Mapping[str, str], body: bytes, now: float) -> None:
    id = headers.get("webhook-id", "")
    if not id:
        raise BadSignature("not_signed", "`webhook-id` is missing.", _how(hook))
    at = _check_time(hook, headers, "webhook-timestamp", now, TOLERANCE_SECONDS)
    try:
        wanted = f"v1,{sign_webhook(hook.secret, id, at, body)}"
    except ValueError:
        what = "The secret of this hook begins with `whsec_` and is not Base64."
        raise BadSignature("bad_secret", what, "Copy the secret again.") from None
    candidates = headers["webhook-signature"].split(" ")[:10]  # several while a secret is being changed
    fits = [hmac.compare_digest(each.encode(), wanted.encode()) for each in candidates]  # all of them, in any case
    if not any(fits):
        raise BadSignature("bad_signature", "The signature does not fit the body.", _how(hook))


def _check_grafana(hook: HookConfig, headers: Mapping[str, str], body: bytes, now: float) -> None:
    """Check what github.com/grafana/alerting/blob/main/http/hmac.go signs, with its time, which is optional there."""
    at = _check_time(hook, headers, GRAFANA_TIME, now, GRAFANA_TOLERANCE_SECONDS)
    signed = hmac.digest(hook.secret.reveal().encode(), b":".join((at.encode(), body)), "sha256").hex()
    _compare(hook, headers[GRAFANA_SIGNATURE], signed)


def _check_time(hook: HookConfig, headers: Mapping[str, str], name: str, now: float, tolerance: float) -> str:
    """Return the signed time, as it was sent. Raises BadSignature where there is none, or one that is far away."""
    at = headers.get(name, "")
    if not (at.isascii() and at.isdecimal() and len(at) <= 15):
        raise BadSignature("not_signed", f"`{name}` is missing or no number.", _how(hook))
    if abs(now - int(at)) > tolerance:
        what = f"`{name}` is more than {tolerance:g} seconds away."
        fix = "Set the clocks of both machines, and send old deliveries with a new time and signature."
        raise BadSignature("too_old", what, fix)
    return at


def _compare(hook: HookConfig, given: str, wanted: str) -> None:
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode()):
        raise BadSignature("bad_signature", "The signature or token does not fit.", _how(hook))


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _space, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


_FINDERS = {
    "standard": lambda headers: headers.get("webhook-signature", ""),
    "github": lambda headers: headers.get("x-hub-signature-256", ""),
    "gitlab": lambda headers: headers.get("x-gitlab-token", ""),  # docs of GitLab: …/webhooks/#secret-token
    "sentry": lambda headers: headers.get("sentry-hook-signature", ""),
    "grafana": lambda headers: headers.get(GRAFANA_SIGNATURE, ""),
    "bearer": _bearer,
}
_HOW = {
    "standard": "Sign with the secret of this hook, as Standard Webhooks describes it.",
    "github": "Write the secret of this hook into “Secret” of the webhook at GitHub.",
    "gitlab": "Write the secret of this hook into “Secret token” of the webhook at GitLab.",
    "sentry": "Set the client secret of the integration at Sentry as the secret of this hook.",
    "grafana": "Write the secret of this hook into “HMAC Signature” of the contact point at Grafana, and"
    " X-Grafana-Alerting-Timestamp as its “Timestamp header”.",
    "bearer": "Send `Authorization: Bearer SECRET` with the secret of this hook.",
}


def _how(hook: HookConfig) -> str:
    return _HOW[hook.signature]
