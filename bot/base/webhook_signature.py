"""Sign as Standard Webhooks has it, for what is sent and what comes in.

Source: github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hmac

from agent.setting import Secret

WEBHOOK_SECRET_PREFIX = "whsec_"  # noqa: S105 — the mark of a Base64 secret


def sign_webhook(secret: Secret, id: str, at: str, body: bytes) -> str:
    """Return the Base64 of the HMAC-SHA256 of id, time and body. Raises ValueError for a damaged Base64 secret."""
    text = secret.reveal()
    key = text.encode()
    if text.startswith(WEBHOOK_SECRET_PREFIX):
        key = base64.b64decode(text.removeprefix(WEBHOOK_SECRET_PREFIX), validate=True)
    return base64.b64encode(hmac.digest(key, b".".join((id.encode(), at.encode(), body)), "sha256")).decode()
