"""List what people do, the right that each deed needs, and how far the right must reach.

What reaches beyond a chat needs the right in the whole workspace: a role of one chat does not give it. docs/team.md has
the same table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from bot.config.team import Right


class Extent(StrEnum):
    """How far the effect of a deed goes."""

    OWN = "own"  # only what is the person's
    THREAD = "thread"
    CHAT = "chat"
    CHANNEL = "channel"  # a platform, in all its workspaces
    WORKSPACE = "workspace"
    SERVICE = "service"  # all channels


BEYOND_CHAT = frozenset((Extent.CHANNEL, Extent.WORKSPACE, Extent.SERVICE))


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that people do. `uses` are the commands, `button` and the question's id, or `tool` and its name."""

    what: str
    uses: tuple[str, ...]
    right: Right | None
    reach: Extent

    @property
    def is_beyond_chat(self) -> bool:
        """Return whether it needs the right in the whole workspace."""
        return self.reach in BEYOND_CHAT


SHOW = Deed(
    "show what goes on here, and who one is",
    (
        *(
            "/help",
            "/start",
            "/models",
            "/search",
            "/status",
            "/steps",
            "/usage",
            "/permissions",
            "/privacy",
            "/skills",
            "/tasks",
            "/waiting",
        ),
        *("/whoami", "button waitlist:"),
    ),
    None,
    Extent.CHAT,
)
CHANGE_OWN = Deed(
    "change what is one's own",
    (
        *("/memory", "/zone", "/notify", "/language", "/stop", "/task", "/export me", "/forget me", "button forget:"),
        *("/waiting hand over", "button handover:", "/link", "/unlink", "button link:"),
    ),
    None,
    Extent.OWN,
)
REVOKE_OWN_GRANT = Deed("take back what one allowed oneself", ("/permissions revoke",), None, Extent.OWN)
HAVE_WORK = Deed("have the agent work", ("/plan", "/goal", "/retry"), Right.TALK, Extent.THREAD)
REPEAT_TASK = Deed("repeat one's task", ("/task N retry",), Right.TALK, Extent.THREAD)
ANSWER = Deed(
    "answer a question of the agent",
    ("button ask", "button which:", "button waiting:", "/waiting NUMBER ANSWER", "/approve", "/deny"),
    Right.TALK,
    Extent.THREAD,
)
BEGIN_ANEW = Deed("begin a new conversation", ("/new",), Right.TALK, Extent.THREAD)
CHOOSE_HERE = Deed("choose the model or the agent", ("/model", "/agents"), Right.TALK, Extent.THREAD)
CHOOSE_FOR_CHAT = Deed(
    "choose the agent or the language of a chat", ("/agents NAME here", "/language … here"), Right.OPERATE, Extent.CHAT
)
APPROVE_OWN = Deed(
    "approve a call of one's own request, once or in this conversation",
    ("button approve",),
    Right.APPROVE,
    Extent.THREAD,
)
APPROVE_OTHERS = Deed("approve a call that others must approve", ("button approve",), Right.APPROVE_OTHERS, Extent.CHAT)
REVOKE_GRANT = Deed(
    "take back what another allowed in this conversation", ("/permissions revoke",), Right.APPROVE, Extent.THREAD
)
ALLOW_EVERYWHERE = Deed(
    "allow a call everywhere, or take that back",
    ("button approve", "/permissions revoke"),
    Right.OPERATE,
    Extent.SERVICE,
)
PLAN_TIMES = Deed("have work done at set times", ("/schedule", "button schedule:"), Right.SCHEDULE, Extent.CHAT)
CHANGE_OTHERS_SCHEDULE = Deed(
    "pause, resume, run or delete another's schedule that posts here", ("/schedule",), Right.OPERATE, Extent.CHAT
)
ACT_FOR_OTHERS = Deed(
    "stop another's work here, or end or repeat their task", ("/stop", "/task"), Right.OPERATE, Extent.CHAT
)
FORGET_NOTE = Deed("delete another's note of this chat", ("/memory forget",), Right.OPERATE, Extent.CHAT)
CHANGE_WORKSPACE_NOTE = Deed(
    "save a note for the whole workspace, or delete another's",
    ("tool remember", "/memory forget"),
    Right.OPERATE,
    Extent.WORKSPACE,
)
READ_AUDIT = Deed("read the audit", ("/audit",), Right.OPERATE, Extent.WORKSPACE)
SEE_TEAM_USAGE = Deed("see the usage of everybody", ("/usage team",), Right.USAGE, Extent.SERVICE)
SEE_SERVICE = Deed("see the state of the service", ("/status", "/hooks", "HTTP operate"), Right.OPERATE, Extent.SERVICE)
END_ANYWHERE = Deed(
    "stop any turn or task, pause or delete any schedule, send again or drop what was not delivered",
    ("HTTP operate",),
    Right.OPERATE,
    Extent.SERVICE,
)
SIGN_IN_CHANNEL = Deed("sign the bot in to a platform by a code", ("HTTP operate",), Right.OPERATE, Extent.SERVICE)
READ_THREAD = Deed(
    "store a conversation of a shared chat with its files", ("HTTP operate",), Right.OPERATE, Extent.CHAT
)
RELOAD = Deed("read the configuration again", ("/reload",), Right.OPERATE, Extent.SERVICE)
CHANGE_SKILLS = Deed("install and change skills", ("/skills install", "button skill:"), Right.SKILLS, Extent.SERVICE)
DECIDE_PAIRING = Deed("let a stranger in, or decline", ("button pair:",), Right.OPERATE, Extent.CHANNEL)
GIVE_ROLE_HERE = Deed("show roles, give and take that of a chat", ("/access",), Right.ACCESS, Extent.CHAT)
GIVE_ROLE = Deed("give and take the role of a person", ("/access grant",), Right.ACCESS, Extent.WORKSPACE)

DEEDS = tuple(each for each in list(vars().values()) if isinstance(each, Deed))


def table_rows() -> Iterator[str]:
    """Yield the rows of the table in docs/team.md."""
    for deed in DEEDS:
        uses = ", ".join(f"`{use}`" for use in deed.uses)
        yield f"| {deed.what} | {uses} | {f'`{deed.right}`' if deed.right else 'none'} | {deed.reach} |"
