"""Say which processes share the database, for `fawn status`, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bot.database.database import Execute
from bot.database.replicas import living_with_leases
from bot.database.states import ReplicaState
from catalogue import N_, _

STATES = {
    ReplicaState.STARTING: N_("starting"),
    ReplicaState.SERVING: N_("serving"),
    ReplicaState.STOPPING: N_("stopping"),
}
DIGEST_CHARS = 12  # of the configuration's digest: enough to compare


def report_replicas(execute: Execute, me: str) -> list[dict[str, Any]]:
    """Return the processes that live, as JSON. `lease` is the number of seconds until it ends."""
    return [
        {
            "id": each.id,
            "host": each.host,
            "version": each.version,
            "state": each.state,
            "since": each.started_at,
            "lease": round(left, 1),
            "digest": each.digest[:DIGEST_CHARS],
            "this": each.id == me,
        }
        for each, left in living_with_leases(execute)
    ]


def find_differences(replicas: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence for what should be the same in all processes and is not."""
    found = []
    if len({each["version"] for each in replicas}) > 1:
        found.append(_("The services have different versions: an upgrade is under way, or was left half-way."))
    by_version: dict[str, set[str]] = {}  # another version has other settings, and so another digest
    for each in replicas:
        by_version.setdefault(each["version"], set()).add(each["digest"])
    if any(len(digests) > 1 for digests in by_version.values()):
        found.append(_("The services work with different settings: compare their files, then run `fawn reload`."))
    return found


def describe_replica(replica: dict[str, Any]) -> str:
    """Return a line about a process."""
    state = STATES.get(replica["state"], replica["state"])
    line = _(
        "service {host} ({version}): {state}, lease {lease:.0f} s, configuration {digest}",
        host=replica["host"],
        version=replica["version"],
        state=_(state),
        lease=replica["lease"],
        digest=replica["digest"],
    )
    return f"{line} ←" if replica["this"] else line
