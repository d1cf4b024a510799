"""People who act over HTTP: on the channel `web`, a person's id names them as another channel knows them."""

from __future__ import annotations

WEB = "web"


def web_id(channel: str, person: str) -> str:
    """Return the id on the channel `web` of a person whom another channel knows."""
    return f"{channel}:{person}"


def true_person(channel: str, person: str) -> tuple[str, str]:
    """Return channel and id of a person as the platform knows them, also of one who acts over HTTP."""
    if channel != WEB:
        return channel, person
    platform, _colon, id = person.partition(":")
    return platform, id


def payer_key(channel: str, person: str) -> str:
    """Return the person whose budgets and rate limits count, as `CHANNEL:ID`: the same one wherever they write."""
    return ":".join(true_person(channel, person))
