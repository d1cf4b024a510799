"""The Web API's methods that the fake Slack knows: arguments in, result out, ApiError for what Slack refuses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from tests.fakes.server import Json
from tests.fakes.slack_world import (
    BLOCKS,
    MARKDOWN,
    MESSAGE,
    Conversation,
    Post,
    Workspace,
    World,
    controls,
    pings,
    texts,
)

TASKS = frozenset({"pending", "in_progress", "complete", "error"})
UPDATE_BYTES = 4000  # of `text` in chat.update
STREAM_BYTES = 10_600  # of a streamed message with text: text and titles, details and outputs twice
SESSIONS = frozenset({"active", "processing", "suspended", "closed"})


BLOCK_TYPES = frozenset(
    {"actions", "context", "context_actions", "markdown", "plan", "rich_text", "section", "divider", "task_card"}
)


def all_text(part: Any) -> int:
    """Return how many characters of text a block has, in any of its parts."""
    if isinstance(part, list):
        return sum(map(all_text, part))
    if not isinstance(part, dict):
        return 0
    own = sum(len(part[name]) for name in ("text", "title") if isinstance(part.get(name), str))
    return own + sum(all_text(inside) for inside in part.values())


HOME_BLOCK_TYPES = BLOCK_TYPES - {"markdown", "plan", "task_card", "context_actions"} | {"header"}
VIEW_BYTES, VIEW_BLOCKS, HEADER = 250_000, 100, 150  # docs.slack.dev/reference/views/home-tab-views, …/header-block


class ApiError(Exception):
    """`ok: false` with this error; `more` are further fields."""

    def __init__(self, error: str, **more: Any) -> None:
        super().__init__(error)
        self.error, self.more = error, more


def checked(blocks: Iterable[Json], most_chars: int = MESSAGE) -> list[Json]:
    """The limits of Block Kit (docs.slack.dev/reference/block-kit).

    A button's style is "primary" or "danger" (…/block-elements/button-element), the details of a task_card are a
    rich_text block (…/blocks/task-card-block), a context has at most ten elements (…/blocks/context-block).
    """
    blocks = list(blocks)
    if len(blocks) > BLOCKS:
        raise ApiError("invalid_blocks", detail="too many blocks")
    if sum(len(block["text"]) for block in blocks if block["type"] == "markdown") > MARKDOWN:
        raise ApiError("msg_blocks_too_long")
    if sum(map(all_text, blocks)) > most_chars:
        raise ApiError("msg_blocks_too_long")
    limited = (block for block in blocks if block["type"] not in ("markdown", "rich_text"))
    if any(len(text) > 3000 for block in limited for text, _ in texts([block])):
        raise ApiError("invalid_blocks", detail="text too long")
    named = [block["block_id"] for block in blocks if "block_id" in block]
    if len(set(named)) < len(named) or any(len(name) > 255 for name in named):
        raise ApiError("invalid_blocks", detail="block_id")
    for block in blocks:
        if block["type"] not in BLOCK_TYPES:
            raise ApiError("invalid_blocks", detail=f"unsupported type: {block['type']}")
        if block["type"] == "context" and not 1 <= len(block["elements"]) <= 10:
            raise ApiError("invalid_blocks", detail="a context")
        if block["type"] == "plan":
            tasks = block["tasks"]
            if any(task.get("details", {"type": "rich_text"}).get("type") != "rich_text" for task in tasks):
                raise ApiError("invalid_blocks", detail="the details of a task")
            whole = all(task["task_id"] and task["title"] and task["status"] in TASKS for task in tasks)
            if not block["title"] or not whole or len({task["task_id"] for task in tasks}) < len(tasks):
                raise ApiError("invalid_blocks", detail="a plan")
        if block["type"] == "context_actions":
            sides = [e[side] for e in block["elements"] for side in ("positive_button", "negative_button")]
            if not 1 <= len(block["elements"]) <= 5 or not all(1 <= len(s["text"]["text"]) <= 75 for s in sides):
                raise ApiError("invalid_blocks", detail="context actions")
            if any(not s["value"] or len(s.get("accessibility_label", "")) > 75 for s in sides):
                raise ApiError("invalid_blocks", detail="feedback buttons")
        if block["type"] == "actions":
            elements = block["elements"]
            if not 1 <= len(elements) <= 25 or any(len(e.get("options", [])) > 100 for e in elements):
                raise ApiError("invalid_blocks", detail="elements")
            if len({element["action_id"] for element in elements}) < len(elements):
                raise ApiError("invalid_blocks", detail="action_id")
            for element in elements:
                if element.get("style", "primary") not in ("primary", "danger"):
                    raise ApiError("invalid_blocks", detail="style")
                most = 150 if "options" in element else 2000
                for label, block_id, _, value in controls([{**block, "elements": [element]}]):
                    if not label or len(label) > 75 or not value or len(value) > most or len(block_id) > 255:
                        raise ApiError("invalid_blocks", detail="a control is too long")
    return blocks


class Methods(World):
    """`m_chat_postMessage(workspace, args)` is chat.postMessage, and so on."""

    share_seconds = 0.3  # after which an uploaded file is in its conversation

    @property
    def base_url(self) -> str:
        raise NotImplementedError

    def place(self, workspace: Workspace, args: Json, name: str = "channel") -> Conversation:
        found = self.conversations.get((workspace.team, str(args.get(name, ""))))
        if found is None:
            raise ApiError("channel_not_found")
        if found.archived:
            raise ApiError("is_archived")
        return found

    def own(self, workspace: Workspace, args: Json, *, streaming: bool = False) -> Post:
        post = self.place(workspace, args).posts.get(str(args.get("ts", "")))
        if post is None:
            raise ApiError("message_not_found")
        if post.user != workspace.bot:
            raise ApiError("cant_update_message")
        if streaming and post.state != "streaming":
            raise ApiError("message_not_in_streaming_state")
        return post

    # ------------------------------------------------------------ messages

    def m_auth_test(self, workspace: Workspace, args: Json) -> Json:
        return {
            "url": f"https://{workspace.name.lower()}.slack.com/",
            "team": workspace.name,
            "user": "fawn",
            "team_id": workspace.team,
            "user_id": workspace.bot,
            "bot_id": workspace.bot_id,
            "is_enterprise_install": False,
        }

    def m_views_publish(self, workspace: Workspace, args: Json) -> Json:
        """docs.slack.dev/reference/methods/views.publish; each block's page names the surfaces that have it."""
        view = args["view"]
        if not self.home_enabled:
            raise ApiError("not_enabled")
        if str(args["user_id"]) not in self.people:
            raise ApiError("invalid_arguments", detail="user_id")
        if view["type"] != "home" or len(view["blocks"]) > VIEW_BLOCKS or len(view.get("private_metadata", "")) > 3000:
            raise ApiError("invalid_arguments", detail="view")
        if len(json.dumps(view)) > VIEW_BYTES:
            raise ApiError("view_too_large")
        if any(block["type"] not in HOME_BLOCK_TYPES for block in view["blocks"]):
            raise ApiError("invalid_blocks", detail="unsupported type")
        if any(len(block["text"]["text"]) > HEADER for block in view["blocks"] if block["type"] == "header"):
            raise ApiError("invalid_blocks", detail="a header")
        checked([block for block in view["blocks"] if block["type"] != "header"], VIEW_BYTES)
        known = self.homes.get((workspace.team, args["user_id"]), {})
        shown = {**view, "id": known.get("id") or f"V{len(self.homes)}", "hash": self.ts(), "app_id": "A0FAWN"}
        self.homes[workspace.team, args["user_id"]] = shown
        return {"view": shown}

    def m_chat_postMessage(self, workspace: Workspace, args: Json) -> Json:
        place = self.place(workspace, args)
        if not place.member:
            raise ApiError("not_in_channel")
        post = Post(self.ts(), place.id, workspace.bot, bot_id=workspace.bot_id)
        self._fill(post, args)
        post.thread_ts = str(args.get("thread_ts") or "")
        post.notified = [p for text, parsed in texts(post.blocks) if parsed for p in pings(text)]
        post.notified = post.notified or ([] if post.blocks else pings(post.text))
        place.posts[post.ts] = post
        place.statuses.pop(post.thread_ts, None)
        return {"channel": place.id, "ts": post.ts, "message": self.message(workspace.team, post)}

    def m_chat_postEphemeral(self, workspace: Workspace, args: Json) -> Json:
        place = self.place(workspace, args)
        if args.get("user") not in self.people:
            raise ApiError("user_not_in_channel")
        post = Post(self.ts(), place.id, workspace.bot, only_for=args["user"], thread_ts=args.get("thread_ts") or "")
        self._fill(post, args)
        place.posts[post.ts] = post
        return {"message_ts": post.ts}

    def m_chat_update(self, workspace: Workspace, args: Json) -> Json:
        post = self.own(workspace, args)
        if post.state == "streaming":
            raise ApiError("streaming_state_conflict")
        if len(str(args.get("text") or "").encode()) > UPDATE_BYTES:
            raise ApiError("msg_too_long")
        self._fill(post, args)
        post.markdown, post.tasks, post.plan = "", {}, ""
        post.edits += 1
        return {"channel": post.channel, "ts": post.ts, "text": post.text, "message": {"ts": post.ts}}

    def m_chat_delete(self, workspace: Workspace, args: Json) -> Json:
        post = self.own(workspace, args)
        del self.place(workspace, args).posts[post.ts]
        return {"channel": post.channel, "ts": post.ts}

    def _fill(self, post: Post, args: Json) -> None:
        metadata = args.get("metadata")
        if metadata and not (metadata.get("event_type") and isinstance(metadata.get("event_payload"), dict)):
            raise ApiError("metadata_must_be_sent_with_type_and_payload")
        blocks = checked(args.get("blocks") or ())
        if args.get("markdown_text"):
            blocks = checked([{"type": "markdown", "text": args["markdown_text"]}])
        text = str(args.get("text") or "")
        if not (text or blocks):
            raise ApiError("no_text")
        post.text, post.blocks, post.metadata = text, blocks, metadata or post.metadata

    # ------------------------------------------------------------ streams

    def m_chat_startStream(self, workspace: Workspace, args: Json) -> Json:
        place = self.place(workspace, args)
        if not args.get("thread_ts"):
            raise ApiError("invalid_arguments")
        for name in ("recipient_user_id", "recipient_team_id"):
            if place.kind != "im" and not args.get(name):
                raise ApiError(f"missing_{name}")
            if place.kind == "im" and args.get(name):
                raise ApiError("invalid_arguments")
        if not place.member:
            raise ApiError("not_in_channel")
        post = Post(self.ts(), place.id, workspace.bot, state="streaming", bot_id=workspace.bot_id)
        post.thread_ts, post.metadata = args["thread_ts"], args.get("metadata")
        self._feed(post, args)
        place.posts[post.ts] = post
        place.sessions[post.thread_ts] = "processing"
        place.statuses.pop(post.thread_ts, None)
        return {"channel": place.id, "ts": post.ts}

    def m_chat_appendStream(self, workspace: Workspace, args: Json) -> Json:
        post = self.own(workspace, args, streaming=True)
        self._feed(post, args)
        return {"channel": post.channel, "ts": post.ts}

    def m_chat_stopStream(self, workspace: Workspace, args: Json) -> Json:
        post = self.own(workspace, args, streaming=True)
        if (status := str(args.get("session_status") or "active")) not in SESSIONS:
            raise ApiError("invalid_arguments")
        self._feed(post, args)
        self.place(workspace, args).sessions[post.thread_ts] = status
        post.blocks = checked(args.get("blocks") or ())
        post.state, post.metadata = "stopped", args.get("metadata") or post.metadata
        post.text = post.markdown
        post.notified = pings(post.markdown)
        return {"channel": post.channel, "ts": post.ts, "message": self.message(workspace.team, post)}

    def _feed(self, post: Post, args: Json) -> None:
        """Add chunks. Title and status of a task are replaced, its details and output are appended."""
        chunks = list(args.get("chunks") or ())
        if args.get("markdown_text"):
            if chunks:
                raise ApiError("cannot_provide_both_markdown_text_and_chunks")
            chunks.append({"type": "markdown_text", "text": args["markdown_text"]})
        markdown, plan, tasks = post.markdown, post.plan, dict(post.tasks)
        for chunk in chunks:
            match chunk["type"]:
                case "task_update":
                    if chunk["status"] not in TASKS or not chunk["title"]:
                        raise ApiError("invalid_chunks")
                    known = tasks.get(chunk["id"], {})
                    grown = {name: known.get(name, "") + chunk.get(name, "") for name in ("details", "output")}
                    tasks[chunk["id"]] = {**chunk, **grown}
                case "plan_update":
                    plan = chunk["title"]
                case "markdown_text":
                    markdown += chunk["text"]
                case _:
                    raise ApiError("invalid_chunks")
        once = [markdown, plan, *(task["title"] for task in tasks.values())]
        twice = [task["details"] + task["output"] for task in tasks.values()]
        size = sum(len(text.encode()) for text in [*once, *twice, *twice])
        if len(markdown) > MARKDOWN or (markdown and size > STREAM_BYTES):
            raise ApiError("msg_too_long")
        post.markdown, post.plan, post.tasks = markdown, plan, tasks

    # ------------------------------------------------------------ reading

    def m_conversations_replies(self, workspace: Workspace, args: Json) -> Json:
        place = self.place(workspace, args)
        if not place.member:
            raise ApiError("not_in_channel")
        root = str(args.get("ts"))
        posts = [p for p in place.posts.values() if root in (p.ts, p.thread_ts) and not p.only_for]
        if not posts:
            raise ApiError("thread_not_found")
        return self._page(workspace, posts, args)

    def m_conversations_history(self, workspace: Workspace, args: Json) -> Json:
        posts = [p for p in self.place(workspace, args).posts.values() if not (p.thread_ts or p.only_for)]
        return self._page(workspace, posts, args, newest_first=True)

    def _page(self, workspace: Workspace, posts: list[Post], args: Json, *, newest_first: bool = False) -> Json:
        """A page by cursor: from the oldest in a thread, from the newest in a channel, as Slack does."""
        inclusive = str(args.get("inclusive", "0")).lower() in ("1", "true")
        oldest, latest = float(args.get("oldest") or 0), float(args.get("latest") or 1e12)
        kept = [p for p in posts if oldest < float(p.ts) < latest or (inclusive and float(p.ts) in (oldest, latest))]
        kept.sort(key=lambda p: float(p.ts), reverse=newest_first)
        start, size = int(args.get("cursor") or 0), min(int(args.get("limit") or 100), 999)
        wanted = str(args.get("include_all_metadata", "0")).lower() in ("1", "true")
        end = start + size
        cursor = str(end) if end < len(kept) else ""
        return {
            "messages": [self.message(workspace.team, p, metadata=wanted) for p in kept[start:end]],
            "has_more": bool(cursor),
            "response_metadata": {"next_cursor": cursor},
        }

    def message(self, team: str, post: Post, *, metadata: bool = True) -> Json:
        """The message object as history and responses carry it."""
        made: Json = {"type": "message", "ts": post.ts, "user": post.user, "text": post.text, "team": team}
        replies = [p for p in self.conversation(post.channel, team).posts.values() if p.thread_ts == post.ts]
        if replies:
            made |= {"reply_count": len(replies), "latest_reply": replies[-1].ts, "thread_ts": post.ts}
        if post.thread_ts:
            made["thread_ts"] = post.thread_ts
        if post.bot_id:
            made |= {"bot_id": post.bot_id}
        if post.username:  # docs.slack.dev/reference/events/message/bot_message
            made |= {"subtype": "bot_message", "username": post.username}
            del made["user"]
        if post.blocks:
            made["blocks"] = post.blocks
        if post.attachments:
            made["attachments"] = post.attachments
        if post.files:
            made |= {"files": [self.file(self.files[f]) for f in post.files], "subtype": "file_share"}
        if metadata and post.metadata and "metadata.message:read" in self.scopes:
            made["metadata"] = post.metadata
        return made

    def m_users_conversations(self, workspace: Workspace, args: Json) -> Json:
        kinds = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}
        wanted = {kinds[kind] for kind in str(args.get("types") or "public_channel").split(",")}
        found = [c for (t, _), c in self.conversations.items() if t == workspace.team and c.kind in wanted and c.member]
        start, size = int(args.get("cursor") or 0), int(args.get("limit") or 100)
        cursor = str(start + size) if start + size < len(found) else ""
        channels = [{"id": c.id, "is_im": c.kind == "im", "is_mpim": c.kind == "mpim"} for c in found]
        return {"channels": channels[start : start + size], "response_metadata": {"next_cursor": cursor}}

    def m_conversations_info(self, workspace: Workspace, args: Json) -> Json:
        place = self.place(workspace, args)
        if place.kind != "channel" and not place.member:
            raise ApiError("channel_not_found")
        return {"channel": {"id": place.id, "is_im": place.kind == "im"} | ({"name": place.name} if place.name else {})}

    def m_conversations_open(self, workspace: Workspace, args: Json) -> Json:
        """docs.slack.dev/reference/methods/conversations.open: the direct chat there is with a person, or a new one."""
        person = str(args.get("users"))
        if person not in self.people:
            raise ApiError("user_not_found")
        team = next(each for each, own in self.workspaces.items() if own is workspace)
        return {"channel": {"id": self.conversation(f"D{person}", team).id}}

    def m_users_info(self, workspace: Workspace, args: Json) -> Json:
        if args.get("user") not in self.people:
            raise ApiError("user_not_found")
        hidden = set() if args.get("include_locale") in (True, "true", "True", "1") else {"locale"}
        return {"user": {name: value for name, value in self.people[args["user"]].items() if name not in hidden}}

    def m_users_list(self, workspace: Workspace, args: Json) -> Json:
        """The members in pages of at most 1,000 (docs.slack.dev/reference/methods/users.list)."""
        begin, size = int(args.get("cursor") or 0), int(args.get("limit") or 0)
        if size > 1000:
            raise ApiError("limit_required")
        known = list(self.people)
        ids = known[begin : begin + size] if size else known
        members = [self.m_users_info(workspace, {**args, "user": user})["user"] for user in ids]
        more = begin + size < len(known) if size else False
        return {"members": members, "response_metadata": {"next_cursor": str(begin + size) if more else ""}}

    # ------------------------------------------------------------ activity signs

    def m_assistant_threads_setStatus(self, workspace: Workspace, args: Json) -> Json:
        """A status in a thread, until the app posts there, or for two minutes
        (docs.slack.dev/reference/methods/assistant.threads.setStatus)."""
        place, thread = self.place(workspace, args, "channel_id"), str(args["thread_ts"])
        if not any(thread == post.ts for post in place.posts.values()):
            raise ApiError("invalid_thread_ts")
        if len(args.get("loading_messages") or ()) > 10 or not isinstance(args["status"], str):
            raise ApiError("invalid_arguments")
        place.statuses[thread] = args["status"]
        if not args["status"]:
            del place.statuses[thread]
        return {}

    def m_reactions_add(self, workspace: Workspace, args: Json) -> Json:
        post = self.place(workspace, args).posts.get(str(args.get("timestamp")))
        if post is None:
            raise ApiError("message_not_found")
        users = post.reactions.setdefault(args["name"], [])
        if workspace.bot in users:
            raise ApiError("already_reacted")
        users.append(workspace.bot)
        return {}

    def m_reactions_remove(self, workspace: Workspace, args: Json) -> Json:
        post = self.place(workspace, args).posts.get(str(args.get("timestamp")))
        if post is None:
            raise ApiError("message_not_found")
        if workspace.bot not in post.reactions.get(args["name"], []):
            raise ApiError("no_reaction")
        post.reactions[args["name"]].remove(workspace.bot)
        return {}

    def m_agents_sessions_setStatus(self, workspace: Workspace, args: Json) -> Json:
        """The state of a thread, until the app says another one; a title counts for a new session only."""
        if not self.agent:
            raise ApiError("not_authorized")
        if args["status"] not in SESSIONS:
            raise ApiError("invalid_arguments")
        place = self.place(workspace, args, "channel_id")
        thread = str(args["thread_ts"])
        if not any(thread == post.ts for post in place.posts.values()):
            raise ApiError("invalid_thread_ts")
        if thread not in place.sessions:
            place.titles[thread] = str(args.get("title") or "")
        place.sessions[thread] = str(args["status"])
        return {"agent_status": args["status"]}

    def m_agents_sessions_rename(self, workspace: Workspace, args: Json) -> Json:
        if not self.agent:
            raise ApiError("not_authorized")
        place, thread = self.place(workspace, args, "channel_id"), str(args.get("thread_ts") or "")
        if thread not in place.sessions:
            raise ApiError("session_not_found")
        if not 1 <= len(args["title"]) <= 200:
            raise ApiError("invalid_arguments")
        place.titles[thread] = str(args["title"])
        return {"title": args["title"]}

    # ------------------------------------------------------------ files

    def file(self, stored: Any) -> Json:
        """The file object."""
        url = f"{self.base_url}/files-pri/{stored.team}-{stored.id}/download/{stored.name}"
        return {
            "id": stored.id,
            "name": stored.name,
            "title": stored.name,
            "mimetype": stored.mime,
            "size": stored.size,
            "mode": stored.mode,
            "is_external": stored.mode == "external",
            "url_private": url,
            "url_private_download": url,
            "file_access": "visible",
            "shares": {"public": {"C": [{}]}} if stored.shared and time.monotonic() >= stored.shared_at else {},
        }

    def m_files_info(self, workspace: Workspace, args: Json) -> Json:
        stored = self.files.get(str(args.get("file")))
        if stored is None or stored.team != workspace.team:
            raise ApiError("file_not_found")
        return {"file": self.file(stored)}

    def m_files_getUploadURLExternal(self, workspace: Workspace, args: Json) -> Json:
        stored = self.keep(args["filename"], b"", "application/octet-stream", workspace.team, int(args["length"]))
        return {"upload_url": f"{self.base_url}/upload/v1/{stored.id}", "file_id": stored.id}

    def m_files_completeUploadExternal(self, workspace: Workspace, args: Json) -> Json:
        place = self.place(workspace, args, "channel_id")
        """All files of a call are in one message."""
        found = [self.files.get(entry["id"]) for entry in args["files"]]
        files = [stored for stored in found if stored and len(stored.data) == stored.size and not stored.shared]
        if not files or len(files) < len(found):
            raise ApiError("file_not_found")
        post = Post(self.ts(), place.id, workspace.bot, str(args.get("initial_comment") or ""))
        post.bot_id, post.thread_ts = workspace.bot_id, str(args.get("thread_ts") or "")
        post.files = [stored.id for stored in files]
        for stored in files:
            stored.shared, stored.shared_at = True, time.monotonic() + self.share_seconds
        place.posts[post.ts] = post
        return {"files": [{"id": entry["id"], "title": entry.get("title")} for entry in args["files"]]}
