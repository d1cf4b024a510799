"""Say what each table has of people, and when it ends: the one list that retention, `/forget me` and `/export me` read.

The core declares its tables here, a feature names those of its own in `Feature.personal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.database.states import (
    InboxState,
    OutboxState,
    PairingState,
    QuestionState,
    ScheduleState,
    TaskState,
)
from bot.database.web_people import WEB
from bot.storage.people import OF_PERSON


@dataclass(frozen=True, slots=True)
class PersonalTable:
    """A table. `columns` name people, their chats, or who may see something.

    Retention deletes the rows that are `finished`; without that, `ends` says with what they go. `/forget me` runs
    `forget`, or what `forgotten_by` names: a function of this package, "module.function". `/export me` writes what
    `export` returns, as entries of the kind `exported`; without that, `shown` says where else it is, or why nowhere.
    """

    table: str
    columns: tuple[str, ...] = ()
    finished: str = ""
    forget: tuple[str, ...] = ()
    exported: str = ""
    export: str = ""
    ends: str = ""
    forgotten_by: str = ""
    shown: str = ""


CONVERSATION = "its conversation"  # with which a row goes, or is exported
STAYS = "nothing: it is in force until somebody changes it"
CORE = (
    PersonalTable(
        "inbox",
        ("author",),
        f"state<>{InboxState.NEW} AND received<:before",
        forgotten_by="blanked.blank_messages",
        shown=CONVERSATION,
    ),
    PersonalTable(
        "conversations",
        ("person",),
        ends="retention, as soon as it was not used for as long",
        forgotten_by="forgetting.forget_in_conversation",
        shown=CONVERSATION,
    ),  # with the messages that wait
    PersonalTable(
        "outbox",
        ("person",),
        f"state IN ({OutboxState.SENT}, {OutboxState.DROPPED}, {OutboxState.DEAD}) AND created<:before",
        forgotten_by="forgetting.forget_deliveries",
        shown="the transcript has what was said",
    ),
    PersonalTable("posts", finished="created<:before"),
    PersonalTable(
        "reply_handles",
        ("author", "chat"),
        "until<:now",
        ("DELETE FROM reply_handles WHERE author=:author",),
        shown="a key to answer with, for some hours at most",
    ),
    PersonalTable(
        "runs",
        ("requester", "people", "stop_by"),
        "finished IS NOT NULL AND finished<:before",
        forgotten_by="forgetting.forget_some",
        shown="the transcript has what was done",
    ),
    PersonalTable(
        "transcript", ("author", "name"), "at<:before", forgotten_by="forgetting.forget_some", shown=CONVERSATION
    ),
    PersonalTable(
        "calls", ("person", "people"), "at<:before", forgotten_by="forgetting.forget_calls", shown=CONVERSATION
    ),
    PersonalTable(
        "questions",
        ("who", "answered_by", "barred", "approvers"),  # the first with its question
        f"state='{QuestionState.CLOSED}' AND asked<:before",
        forgotten_by="forgetting.forget_in_conversation",
        shown="the transcript has what was asked and answered",
    ),
    PersonalTable(
        "people",  # access that pairing decided stays, without a name
        ("person", "name"),
        f"(allowed={PairingState.DECLINED} OR code<>'') AND until<:before AND notify IS NULL AND memory=1"
        " AND zone='' AND notify_where='' AND quiet='' AND digest=''",
        (
            """UPDATE people SET name='', thread='', message='', notify=NULL, notify_where='', quiet='', digest='',
            push_url='', zone='' WHERE channel=:channel AND person=:person""",
        ),
        "person",
        "SELECT name, zone, memory, notify, notify_where, quiet, digest, push_url<>'' AS has_bark, allowed, operator"
        " FROM people WHERE channel=:channel AND person=:person",
    ),
    PersonalTable(  # files that wait for their turn, and until when a person may be answered
        "channel_state",
        ("author",),
        "until<:now",
        ("DELETE FROM channel_state WHERE author=:author",),
        shown="the channel's own, for some hours at most: the messages are in the conversation",
    ),
    PersonalTable("heard", finished="topic<>'' AND time<:before"),
    PersonalTable("jobs", finished="owner IS NULL AND due IS NULL AND created<:before"),
    PersonalTable(
        "usage",
        ("person", "chat"),
        "at<:before AND at<:month_ago",
        exported="usage",
        export="SELECT at, agent, model, kind AS sort, input, output, cached, reasoning, cost, chat FROM usage"
        " WHERE person=:author ORDER BY at",
        forgotten_by="forgotten_accounts.forget_usage",
    ),
    PersonalTable(
        "feedback",
        ("person", "name"),
        "at<:before",
        (
            """DELETE FROM feedback WHERE person=:person AND EXISTS (SELECT 1 FROM runs r JOIN conversations c
            ON c.key=r.conversation WHERE r.id=feedback.run AND c.thread>=:channel || '/'
            AND c.thread<:channel || '0')""",
        ),
        shown="a mark on an answer, which the person sees there",
    ),
    PersonalTable(
        "languages",
        ("reader",),
        exported="language",
        export="SELECT language FROM languages WHERE reader=:reader",
        ends=STAYS,
        forgotten_by="forgotten_accounts.forget_account",
    ),
    PersonalTable(
        "agent_defaults",
        ("reader",),
        exported="agent",
        export="SELECT agent, model, effort FROM agent_defaults WHERE reader=:reader",
        ends=STAYS,
        forgotten_by="forgotten_accounts.forget_account",
    ),
    PersonalTable(
        "permission_grants",
        ("person", "name"),
        forget=(
            "DELETE FROM permission_grants WHERE conversation=:everywhere AND channel=:channel AND person=:person",
        ),
        ends=CONVERSATION,
        shown=CONVERSATION,
    ),
    PersonalTable(
        "audit_names",
        ("name",),
        ends="the rows of the audit that name it",
        forgotten_by="audit.forget_person",
        shown="`fawn audit` is for operators",
    ),
    PersonalTable(
        "side_posts",
        ("person",),
        "at<:before",
        ("DELETE FROM side_posts WHERE person=:author",),
        shown="the messages are in the chat",
    ),
    PersonalTable(
        "overheard",
        ("person", "name"),
        "at<:before",
        ("DELETE FROM overheard WHERE person=:author",),
        "overheard",
        "SELECT at, thread, text FROM overheard WHERE person=:author ORDER BY id",
    ),
    PersonalTable(
        "quoted",
        ("person",),
        forget=("DELETE FROM quoted WHERE person=:author",),
        ends=CONVERSATION,
        shown="what others quoted is theirs",
    ),
)

BUDGETS = (PersonalTable("budgets", finished="until<:now"),)

MEMORY = (
    PersonalTable(
        "memory",
        ("account", "owner", "audience", "subject", "name"),
        exported="memory",
        export="SELECT kind AS sort, subject, text, confidence, said, thread FROM memory WHERE owner=:person"
        " AND account>=:channel || '/' AND account<:channel || '0' ORDER BY id",
        ends="nothing: `forget_unused` ends what no turn uses",
        forgotten_by="memory.forget_some",
    ),
    PersonalTable(
        "memory_index",
        ("audience",),
        ends="its memory",
        forgotten_by="forgotten_accounts.merge_index",
        shown="its memory",
    ),
    PersonalTable(
        "memory_queue",
        ("account", "owner"),
        "at<:before",
        forgotten_by="memory.forget_some",
        shown="the messages that wait to be read",
    ),
)

SCHEDULES = (
    PersonalTable(
        "schedules",
        ("owner", "name"),
        f"state IN ('{ScheduleState.PROPOSED}', '{ScheduleState.ENDED}') AND created<:before"
        " AND coalesce(next_at, 0)<:before",
        forgotten_by="forgotten_accounts.forget_account",
        shown="`own_data`, by the numbers of the person's own",
    ),
    PersonalTable("schedule_fires", finished="at<:before"),
)

HOOKS = (
    PersonalTable("hook_deliveries", finished="received<:before"),
    PersonalTable("hook_groups", finished="used<:before"),
    PersonalTable("hook_refusals", finished="at<:before"),
)

TASKS = (
    PersonalTable(
        "tasks",
        ("person", "name"),
        f"created<:before AND state NOT IN ('{TaskState.QUEUED}', '{TaskState.RUNNING}')",
        ("DELETE FROM tasks WHERE channel=:channel AND person=:person",),
        "task",
        "SELECT id, kind AS sort, state, title, what, follow_up, thread, created, ended, exit_code, reason"
        " FROM tasks WHERE channel=:channel AND person=:person ORDER BY id",
    ),
    PersonalTable(
        "follow_ups",
        ("person", "root"),
        "at<:before",
        exported="follow_up",
        export="SELECT at, generation FROM follow_ups WHERE person=:digest ORDER BY at",
        forgotten_by="follow_ups.forget_person",
    ),
)

_KEY_OF_PERSON = (  # also of one who is known on the channel `web` only, where the id names the other channel
    f"((channel=:channel AND person=:person) OR (:channel='{WEB}' AND channel || ':' || person=:person))"
)
API = (
    PersonalTable(
        "api_keys",
        ("name", "person"),
        forget=(f"DELETE FROM api_keys WHERE {_KEY_OF_PERSON}",),
        exported="api_key",
        export=f"SELECT name, scopes, created, expires, used FROM api_keys WHERE {_KEY_OF_PERSON}",
        ends="a revocation, or being refused from its day on",
    ),
    PersonalTable(
        "web_threads",
        ("person",),
        "at<:before",
        (f"DELETE FROM web_threads WHERE person=:person AND :channel='{WEB}'",),
        "web_thread",
        f"SELECT at, thread, metadata FROM web_threads WHERE person=:person AND :channel='{WEB}' ORDER BY at",
    ),
    PersonalTable(
        "web_files",
        ("person",),
        "at<:before",
        (f"DELETE FROM web_files WHERE person=:person AND :channel='{WEB}'",),
        "web_file",
        f"SELECT at, thread, name, size, caption FROM web_files WHERE person=:person AND :channel='{WEB}' ORDER BY at",
    ),
    PersonalTable(
        "page_sessions",
        ("person",),
        "until<:before",
        ("DELETE FROM page_sessions WHERE channel=:channel AND person=:person",),
        "page_session",
        "SELECT kind, created, until FROM page_sessions WHERE channel=:channel AND person=:person ORDER BY created",
    ),
)

TEAM = (
    PersonalTable(
        "person_roles",  # a rule stays, without a name
        ("subject", "name", "giver", "giver_name"),
        forget=(
            f"UPDATE person_roles SET name='' WHERE {OF_PERSON}",
            "UPDATE person_roles SET giver_name='' WHERE channel=:channel AND giver=:person",
        ),
        exported="role",
        export=f"SELECT subject, role, given FROM person_roles WHERE {OF_PERSON}",
        ends=STAYS,
    ),
    PersonalTable(
        "departures",
        ("person",),
        forget=("DELETE FROM departures WHERE channel=:channel AND person=:person",),
        ends="a message of the person, or an offboarding",
        shown="when the platform was seen to have them no more",
    ),
)

NOTIFICATIONS = (
    PersonalTable(
        "held_pings",
        ("person",),
        "created<:before",
        ("DELETE FROM held_pings WHERE channel=:channel AND person=:person",),
        shown="what waits to be sent to the person",
    ),
)

WAITING = (
    PersonalTable("waiting_numbers", finished="listed<:before"),
    PersonalTable(
        "hand_overs",
        ("giver", "giver_name", "deputy", "deputy_name"),
        "until<:before",
        ("DELETE FROM hand_overs WHERE channel=:channel AND (giver=:person OR deputy=:person)",),
        "hand_over",
        "SELECT id, giver=:person AS given, CASE WHEN giver=:person THEN deputy_name ELSE giver_name END AS name,"
        " number, since, until, ended FROM hand_overs WHERE channel=:channel AND (giver=:person OR deputy=:person)"
        " ORDER BY id",
    ),
)

_OF_REQUEST = "((channel=:channel AND person=:person) OR (to_channel=:channel AND to_person=:person))"
ACCOUNTS = (
    PersonalTable(
        "account_links",
        ("person", "name"),
        forget=(
            "DELETE FROM account_links WHERE channel=:channel AND person=:person",
            """DELETE FROM account_links WHERE linked IN
            (SELECT linked FROM account_links GROUP BY linked HAVING count(*)=1)""",
        ),
        exported="linked_account",
        export="SELECT channel, person, name, since FROM account_links WHERE linked="
        "(SELECT linked FROM account_links WHERE channel=:channel AND person=:person) ORDER BY channel",
        ends=STAYS,
    ),
    PersonalTable(
        "link_codes",
        ("person", "name", "to_person", "to_name"),
        "until<:now",
        (f"DELETE FROM link_codes WHERE {_OF_REQUEST}",),
        "link_request",
        f"SELECT channel, name, to_channel, to_name, until FROM link_codes WHERE {_OF_REQUEST} ORDER BY id",
    ),
)

OUTCOMES = (
    PersonalTable("outcomes", finished="day<:oldest_day"),
    PersonalTable("outcome_errors", finished="day<:oldest_day"),
)

Tables = Sequence[PersonalTable]
