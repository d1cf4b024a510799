"""Signatures of hooks: each sender's own, over the raw bytes; what is changed, old or missing is refused."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from agent.setting import Secret
from bot.base.signatures import (
    GRAFANA_TOLERANCE_SECONDS,
    REPEAT_SECONDS,
    TOLERANCE_SECONDS,
    BadSignature,
    check_signature,
    sign_webhook,
)
from bot.config.hooks import HookConfig, Signature

NOW = 1_800_000_000.0
BODY = b'{"a": 1}'


GITHUB_EXAMPLE = "It's a Secret to Everybody"


def hook(signature: Signature, secret: str = GITHUB_EXAMPLE) -> HookConfig:
    return HookConfig("slack:T1/C1", "@U7", Secret(secret), signature)


def code_of(config: HookConfig, headers: dict[str, str], body: bytes = BODY) -> str:
    with pytest.raises(BadSignature) as found:
        check_signature(config, headers, body, NOW)
    assert str(found.value.fix)
    return found.value.code


def test_github_signs_as_its_documentation_shows() -> None:
    """docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation"""
    signed = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-hub-signature-256": signed, "x-github-delivery": "72d3162e"}
    proof = check_signature(hook("github"), headers, b"Hello, World!", NOW)
    assert (proof.id, proof.covers_all) == ("72d3162e", True)
    assert code_of(hook("github"), headers, b"Hello, World?") == "bad_signature"
    assert code_of(hook("github", "another"), headers, b"Hello, World!") == "bad_signature"


def standard_headers(secret: str, at: float = NOW, body: bytes = BODY) -> dict[str, str]:
    signed = sign_webhook(Secret(secret), "msg_1", f"{at:.0f}", body)
    return {"webhook-id": "msg_1", "webhook-timestamp": f"{at:.0f}", "webhook-signature": f"v1,{signed}"}


def test_standard_webhooks_signs_as_its_library_does() -> None:
    """The vector of github.com/standard-webhooks/standard-webhooks, libraries/python/tests/test_webhooks.py."""
    config = hook("standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = sign_webhook(config.secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
    assert signed == "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("away", [-TOLERANCE_SECONDS - 1, TOLERANCE_SECONDS + 1])
def test_a_signed_time_that_is_far_away_is_refused(away: float) -> None:
    config = hook("standard", "secret")
    assert check_signature(config, standard_headers("secret"), BODY, NOW).id == "msg_1"
    assert code_of(config, standard_headers("secret", NOW + away)) == "too_old"


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_each_header_of_standard_webhooks_is_needed_and_signed(name: str) -> None:
    headers = standard_headers("secret")
    assert code_of(hook("standard", "secret"), {**headers, name: ""}) == "not_signed"
    changed = {"webhook-id": "msg_2", "webhook-timestamp": f"{NOW - 1:.0f}", "webhook-signature": "v1,ä="}
    assert code_of(hook("standard", "secret"), {**headers, name: changed[name]}) == "bad_signature"


def test_a_second_signature_counts_while_the_secret_changes() -> None:
    headers = standard_headers("secret")
    both = {**headers, "webhook-signature": f"v1,AAAA {headers['webhook-signature']}"}
    assert check_signature(hook("standard", "secret"), both, BODY, NOW).id == "msg_1"
    assert code_of(hook("standard", "whsec_%%%"), headers) == "bad_secret"


def test_sentry_signs_the_body_with_the_client_secret() -> None:
    signed = hmac.new(b"client", BODY, hashlib.sha256).hexdigest()  # as its documentation's example does
    headers = {"sentry-hook-signature": signed, "request-id": "r1"}
    assert check_signature(hook("sentry", "client"), headers, BODY, NOW).id == "r1"
    assert code_of(hook("sentry", "client"), headers, BODY + b" ") == "bad_signature"


def grafana_headers(at: float, key: str = "gkey") -> dict[str, str]:
    signed = hmac.digest(key.encode(), f"{at:.0f}:".encode() + BODY, "sha256").hex()
    return {"x-grafana-alerting-signature": signed, "x-grafana-alerting-timestamp": f"{at:.0f}"}


def test_grafana_signs_its_time_and_the_body() -> None:
    """github.com/grafana/alerting/blob/main/http/hmac.go; the value is that of OpenSSL:

    printf '1700000000:{"a":1}' | openssl dgst -sha256 -hmac gkey
    """
    signed = "22fa362e179e150a7005766ee09f7a41a115d22c6499140a58c3eb23b8e70198"
    headers = {"x-grafana-alerting-signature": signed, "x-grafana-alerting-timestamp": "1700000000"}
    proof = check_signature(hook("grafana", "gkey"), headers, b'{"a":1}', 1_700_000_001.0)
    assert (proof.id, proof.covers_all) == ("", False)
    config = hook("grafana", "gkey")
    assert code_of(config, grafana_headers(NOW), BODY + b" ") == "bad_signature"
    assert code_of(config, grafana_headers(NOW, key="another")) == "bad_signature"
    assert (
        code_of(config, {**grafana_headers(NOW), "x-grafana-alerting-timestamp": f"{NOW + 1:.0f}"}) == "bad_signature"
    )
    assert code_of(config, {**grafana_headers(NOW), "x-grafana-alerting-timestamp": ""}) == "not_signed"
    assert code_of(config, {}) == "not_signed"


def test_a_recorded_delivery_of_grafana_is_too_old_before_its_body_counts_as_new() -> None:
    config = hook("grafana", "gkey")
    for away in (-1, 1):
        check_signature(config, grafana_headers(NOW + away * GRAFANA_TOLERANCE_SECONDS), BODY, NOW)
        assert code_of(config, grafana_headers(NOW + away * (GRAFANA_TOLERANCE_SECONDS + 1))) == "too_old"
    assert 2 * GRAFANA_TOLERANCE_SECONDS <= REPEAT_SECONDS


@pytest.mark.parametrize(
    ("signature", "header", "form"),
    [
        ("gitlab", "x-gitlab-token", "{}"),
        ("bearer", "authorization", "Bearer {}"),
        ("bearer", "authorization", "bearer {}"),
    ],
)
def test_a_token_is_compared_whole(signature: Signature, header: str, form: str) -> None:
    config = hook(signature, "token")
    assert check_signature(config, {header: form.format("token")}, BODY, NOW).id == ""
    for wrong in ("toke", "token2", "TOKEN", "tokenä"):
        assert code_of(config, {header: form.format(wrong)}) == "bad_signature"
    assert code_of(config, {}) == "not_signed"
