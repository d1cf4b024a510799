"""Push notifications outside of the chats: to Bark, and to webhooks that follow Standard Webhooks.

Both get the same id with every attempt of one notification: Bark then replaces what it shows, and the receiver of a
webhook can drop what it has. Addresses and keys are secrets and appear in no log.

Check the targets of pushes, without a push.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver
from yarl import URL

from agent.blocks import command_hint
from agent.messages import Author, Thread
from agent.setting import Secret
from agent.settings.network import choose_proxy, describe_failure, make_trust
from agent.web.addresses import AddressGuard, WebError
from bot.base.findings import Check, Finding
from bot.base.signatures import sign_webhook
from bot.base.stored_secrets import BARK, sealer_of
from bot.config.operations import PushConfig, PushTarget
from bot.config.schema import Config
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.storage import languages, outbox, people
from bot.storage.jobs import BackgroundJob
from catalogue import N_, _, localized
from sandbox.disk.sealing import NotOpened

log = logging.getLogger(__name__)

TITLE = "Fawn"
TIMEOUT_SECONDS = 15.0
LATER_STATUSES = (408, 425, 429)  # and all from 500 on
FAILED = N_("I couldn't push this to your Bark: {reason}. `{command}` sets it again.")


class PushRefused(Exception):
    """The target refused for good; another attempt would not help. The text contains no secret."""


class PushFailed(Exception):
    """The target was not reached or is busy. The text contains no secret."""


@dataclass(frozen=True, slots=True)
class PushMessage:
    """What is pushed. Each attempt has the same `key`."""

    key: str
    text: str
    event: str
    thread: str
    person: str

    @property
    def id(self) -> str:
        """A short id of this notification."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:32]


def split_bark_url(text: str) -> tuple[str, str]:
    """Split `https://SERVER/KEY` into the server and the key. Raises ValueError."""
    url = URL(text.strip())
    key = url.path.strip("/").partition("/")[0]
    if url.scheme not in ("http", "https") or not url.host or url.user or not key:
        raise ValueError("not the address of a Bark device")
    return str(url.origin()), key


def bark_request(url: str, message: PushMessage) -> tuple[str, bytes, dict[str, str]]:
    """Return the address, body and headers of a push to a Bark device. Raises ValueError."""
    server, key = split_bark_url(url)
    body = {"device_key": key, "title": TITLE, "body": message.text, "group": TITLE, "id": message.id}
    return f"{server}/push", orjson.dumps(body), {"Content-Type": "application/json; charset=utf-8"}


def webhook_request(
    url: str, secret: Secret | None, message: PushMessage, now: float
) -> tuple[str, bytes, dict[str, str]]:
    """Return the address, body and headers of a webhook, signed if there is a secret."""
    data = {"person": message.person, "text": message.text, "thread": message.thread}
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    body = orjson.dumps({"type": f"fawn.{message.event}", "timestamp": at, "data": data})
    headers = {"Content-Type": "application/json", "webhook-id": message.id, "webhook-timestamp": f"{now:.0f}"}
    if secret:
        headers["webhook-signature"] = f"v1,{sign_webhook(secret, message.id, headers['webhook-timestamp'], body)}"
    return url, body, headers


async def request_target(
    method: str, url: str, guard: AddressGuard | None, body: bytes = b"", headers: dict[str, str] | None = None
) -> int:
    """Return the status of the answer; follow no redirect. `guard` decides which addresses are allowed, None: all.

    Raises PushRefused, PushFailed and WebError.
    """
    proxy = choose_proxy(url)
    resolver: AbstractResolver | None = None
    if guard:
        checked = guard.check_url(url)
        if proxy:
            await guard.check_name(checked)
        else:
            resolver = guard
    connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, ssl=make_trust())
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session,
            session.request(
                method, url, data=body or None, headers=headers, allow_redirects=False, proxy=proxy
            ) as response,
        ):
            return response.status
    except aiohttp.InvalidURL:
        raise PushRefused("the address is not valid") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:  # their texts may contain the address
        raise PushFailed(f"not reached ({describe_failure(error)})") from None


async def probe_target(kind: str, url: str, guard: AddressGuard | None) -> int:
    """Return the status of a request that notifies nobody: Bark's `/ping`, or HEAD for a webhook.

    Raises PushRefused, PushFailed, WebError, and ValueError for an address that is none of a Bark device.
    """
    if kind == "bark":
        return await request_target("GET", f"{split_bark_url(url)[0]}/ping", guard)
    return await request_target("HEAD", url, guard)


def _noted(message: PushMessage, given: Mapping[str, str], result: str) -> Callable[[Execute], None]:
    """Note in the audit, where the job ends, that something went outside of the chats, or was refused there."""
    place = Thread.parse(message.thread)
    what = {"event": message.event, "to": "target" if "target" in given else "own"}
    subject = audit.person_name(place.channel, message.person)
    return partial(audit.record, event=AuditEvent(AuditKind.PUSH, place, subject=subject, what=what, result=result))


class PushJobs:
    """Handles the jobs that push. `guard` decides which addresses may be requested."""

    def __init__(self, store: Database, current: Current, guard: AddressGuard | None = None) -> None:
        self._store = store
        self._current = current
        self._guard = guard or AddressGuard()

    async def send(self, job: BackgroundJob) -> Callable[[Execute], object] | None:
        """Push once. Raises PushFailed to try again. A person whose Bark refuses gets the notification in the chat."""
        given = job.arguments
        message = PushMessage(given["key"], given["text"], given["event"], given["thread"], given["who"])
        try:
            if not (request := await self._request(given, message)):
                return None
            await self._post(*request)
            return _noted(message, given, "sent")
        except (PushRefused, WebError, ValueError) as error:
            log.warning("push.refused key=%s target=%s reason=%s", job.key, given.get("target", "bark"), error)
            note = _noted(message, given, "refused")
            if "target" in given:
                return note
            reason = str(error)

            def end(execute: Execute) -> None:
                note(execute)
                self._post_instead(execute, message, reason)

            return end

    async def _request(self, given: dict[str, str], message: PushMessage) -> tuple[str, bytes, dict[str, str]] | None:
        """Return the request; None if its target or its person has none any more. Raises ValueError."""
        if name := given.get("target"):
            target = next((each for each in self._current.config.push.targets if each.name == name), None)
            if target is None:
                return None
            if target.kind == "bark":
                return bark_request(target.url.reveal(), message)
            return webhook_request(target.url.reveal(), target.secret, message, time.time())
        find = partial(people.find_person, channel=given["channel"], person=given["person"])
        known = await self._store.run(find)
        if known is None or not known.push_url:
            return None
        try:
            url = sealer_of(self._current.config).open(known.push_url, BARK)
        except NotOpened as error:
            raise PushRefused(str(error)) from None
        if not is_bark_server(self._current, url):
            raise PushRefused("its server is not allowed any more")
        return bark_request(url, message)

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        """Post. Raises PushRefused, PushFailed and WebError."""
        guard = None if self._current.config.push.private_addresses else self._guard
        status = await request_target("POST", url, guard, body, headers)
        if status >= 500 or status in LATER_STATUSES:
            raise PushFailed(f"HTTP status {status}")
        if status not in range(200, 300):
            raise PushRefused(f"HTTP status {status}")

    def _post_instead(self, execute: Execute, message: PushMessage, reason: str) -> None:
        place = Thread.parse(message.thread)
        with languages.speak_to(execute, place, Author(message.person, "")):
            words = _(FAILED, reason=reason, command=command_hint("notify bark"))
            outbox.enqueue_notice(
                execute,
                place,
                f"{message.text}\n{words}",
                key=f"push:{message.key}",
                now=time.time(),
                mention=message.person,
            )


def is_bark_server(current: Current, url: str) -> bool:
    """Return whether people may use this Bark server. Raises ValueError."""
    server = split_bark_url(url)[0]
    return server in {str(URL(each).origin()) for each in current.config.push.bark_servers}


PUSH_TARGET = N_("push target {name}")


def list_checks(config: Config) -> Iterator[Check]:
    """Yield a check for each target."""
    for target in config.push.targets:
        yield Check(_(PUSH_TARGET, name=target.name), partial(check_target, target, config.push))


async def check_target(target: PushTarget, config: PushConfig) -> Finding:
    """Ask a target whether it is there, in a way that notifies nobody, under the rules of a push."""
    subject = _(PUSH_TARGET, name=target.name)
    guard = None if config.private_addresses else AddressGuard()
    fix = _("correct its `url`; a server in your own network needs `push: {private_addresses: true}`")
    try:
        status = await probe_target(target.kind, target.url.reveal(), guard)
    except (PushRefused, PushFailed, WebError, ValueError) as error:
        return Finding("fault", subject, localized(error), fix)
    if status >= 500 or (target.kind == "bark" and status != 200):
        return Finding("fault", subject, _("it answers with status {status}", status=status), fix)
    if target.kind == "bark":
        return Finding("ok", subject, _("the Bark server answers; whether the key is right shows with the first push"))
    return Finding("ok", subject, _("it answers (status {status} to HEAD); nothing was pushed", status=status))
