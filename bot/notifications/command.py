"""`/notify`: whether, after how long, where and when a person is notified."""

from __future__ import annotations

from agent.blocks import command_hint
from bot.base.stored_secrets import BARK, sealer_of
from bot.commands.call import CommandCall
from bot.notifications.push import is_bark_server
from bot.rights import access
from bot.service.pings import enqueue_digest, parse_clock_time
from bot.storage import inbox, people
from bot.storage.people import PersonRow
from catalogue import N_, _, join_sentences

HIDDEN = "…"  # in place of a secret
NOTIFY_WORDS = "on | off | SECONDS | here | dm | bark URL | quiet 22:00-07:00 | digest 18:00"
USAGE = N_("Use `{on}`, `{off}`, or `{number}` (seconds).")
MORE_USAGE = N_("`{here}`, `{dm}` and `{bark}` choose where, `{quiet}` and `{digest}` when.")
NO_BARK = N_(
    "This Bark server isn't allowed here. Whoever runs me can add it in the configuration (`push.bark_servers`)."
)
NO_ZONE = N_("I don't know your time zone. Tell me with `{zone}`, then try again.")
NO_PRIVATE_CHAT = N_("I don't know our private chat yet. Write me `{command}` there.")
OUT_OF_CHAT = N_("Anybody who reads this chat can read the key in that address. Write it to me in a private chat.")


class _Refused(Exception):
    """What a person wrote cannot be set; the message says why."""


def notify_command(call: CommandCall) -> str:
    """Set when and where this person is notified, in every chat of this channel. Without words, show it."""
    word, _space, rest = call.words.partition(" ")
    try:
        if word:
            _change(call, word.lower(), rest.strip())
    except _Refused as refused:
        return str(refused)
    return _describe(call)


def _change(call: CommandCall, word: str, rest: str) -> None:
    """Store one preference. Raises _Refused."""
    match word:
        case "here":
            people.set_preference(call.execute, call.message, "notify_where", "")
        case "dm":
            if call.message.private:
                people.store_address(call.execute, call.message)
            elif not ((known := _known(call)) and known.thread):
                raise _Refused(_(NO_PRIVATE_CHAT, command=command_hint("notify dm")))
            people.set_preference(call.execute, call.message, "notify_where", "dm")
        case "bark":
            _set_bark(call, rest)
        case "quiet" | "digest":
            _set_times(call, word, rest)
        case _:
            _set_seconds(call, word)


def _set_seconds(call: CommandCall, word: str) -> None:
    try:
        seconds = {"off": -1.0, "on": call.current.limits.notify_seconds or 45.0}.get(word) or float(word)
    except ValueError:
        seconds = -2.0
    if not (seconds == -1.0 or 0 < seconds < 1e6):
        raise _Refused(_usage())
    people.set_notify(call.execute, call.message, seconds)


def _set_bark(call: CommandCall, url: str) -> None:
    """Store the address of a Bark device, a secret: the stored message loses it, also where the address is refused."""
    text = call.message.text
    begin = text.lower().find("bark") + len("bark")
    inbox.replace_text(call.execute, call.message, f"{text[:begin]} {HIDDEN}" if url.lower() != "off" else text)
    if url.lower() == "off":
        people.set_preference(call.execute, call.message, "push_url", "")
        people.set_preference(call.execute, call.message, "notify_where", "")
        return
    if not call.message.private and call.thread.channel != access.LOCAL_CHANNEL:
        raise _Refused(_(OUT_OF_CHAT))
    try:
        is_allowed = is_bark_server(call.current, url)
    except ValueError:
        raise _Refused(_usage()) from None
    if not is_allowed:
        raise _Refused(_(NO_BARK))
    sealed = sealer_of(call.current.config).seal(url, BARK)
    people.set_preference(call.execute, call.message, "push_url", sealed)
    people.set_preference(call.execute, call.message, "notify_where", "push")


def _set_times(call: CommandCall, name: str, text: str) -> None:
    """Store quiet hours or the time of a digest. What is held back is then delivered by the new rule."""
    known = _known(call)
    value = "" if text.lower() == "off" else "".join(text.split())
    if value:
        try:
            times = [f"{parse_clock_time(part):%H:%M}" for part in value.replace("–", "-").split("-")]
        except ValueError:
            raise _Refused(_usage()) from None
        if len(times) != (2 if name == "quiet" else 1) or len(set(times)) != len(times):
            raise _Refused(_usage())
        if not ((known and known.zone) or call.current.config.time_zone):
            raise _Refused(_(NO_ZONE, zone=command_hint("zone Europe/Berlin")))
        value = "-".join(times)
    people.set_preference(call.execute, call.message, name, value)
    if not value and (known := _known(call)):
        enqueue_digest(call.execute, known, call.now)


def _known(call: CommandCall) -> PersonRow | None:
    return people.find_person(call.execute, call.thread.channel, call.message.author.id)


def _usage() -> str:
    first = _(USAGE, on=command_hint("notify on"), off=command_hint("notify off"), number=command_hint("notify 120"))
    more = _(
        MORE_USAGE,
        here=command_hint("notify here"),
        dm=command_hint("notify dm"),
        bark=command_hint("notify bark URL"),
        quiet=command_hint("notify quiet 22:00-07:00"),
        digest=command_hint("notify digest 18:00"),
    )
    return join_sentences(first, more)


def _describe(call: CommandCall) -> str:
    after = access.notify_after(
        call.execute, call.thread.channel, call.message.author.id, call.current.limits.notify_seconds
    )
    if after is None:
        return _(
            "I don't ping you when something is done. `{on}` or `{number}` (seconds) changes that.",
            on=command_hint("notify on"),
            number=command_hint("notify 120"),
        )
    words = _(
        "I ping you when something took longer than {time}. `{off}` or `{number}` (seconds) changes that.",
        time=_("{n} s", n=f"{after:g}"),
        off=command_hint("notify off"),
        number=command_hint("notify 120"),
    )
    return join_sentences(words, *_describe_preferences(_known(call)))


def _describe_preferences(known: PersonRow | None) -> list[str]:
    if known is None:
        return []
    words = []
    if known.notify_where == "dm":
        words.append(_("Pings go to our private chat."))
    elif known.notify_where == "push":
        words.append(_("Pings go to your Bark."))
    if known.quiet:
        words.append(_("Quiet hours: {times}.", times=known.quiet))
    if known.digest:
        words.append(_("They come together, at {time}.", time=known.digest))
    return words
