"""Draw the Home tab: what waits for its reader, with the buttons of each question.

docs.slack.dev/reference/views/home-tab-views; a markdown block is not for views, so that all texts are plain.
"""

from __future__ import annotations

from agent.blocks import Ask
from channels.base import Home, HomeItem
from channels.slack.blocks import MAX_CONTEXT_CHARS, context_block, notification_text, question_controls
from channels.slack.events import Json

MAX_HEADER_CHARS = 150  # docs.slack.dev/reference/block-kit/blocks/header-block


def home_view(home: Home, chat: str) -> Json:
    """Return the view. Slack hands `chat`, the direct messages with its reader, back with each press."""
    blocks = [{"type": "header", "text": {"type": "plain_text", "text": home.heading[:MAX_HEADER_CHARS]}}]
    for item in home.items:
        blocks += [{"type": "divider"}, *_item_blocks(item)]
    blocks += [context_block(home.foot)] if home.foot else []
    return {"type": "home", "private_metadata": chat, "blocks": blocks}


def _item_blocks(item: HomeItem) -> list[Json]:
    question = {"type": "rich_text_section", "elements": [{"type": "text", "text": item.question}]}
    call = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": item.call}]}
    text = {"type": "rich_text", "elements": [question, *([call] if item.call else [])]}
    ask = Ask(item.id, item.question, item.options, approval=bool(item.call))
    return [text, *_origin(item), *question_controls(ask)]


def _origin(item: HomeItem) -> list[Json]:
    """Return where it was asked, as a link to the channel, and the rest in small text."""
    place = f"<#{item.place.chat}>" if item.place and not item.place.chat.startswith("D") else ""
    words = " · ".join(filter(None, (place, notification_text(item.detail))))
    return [{"type": "context", "elements": [{"type": "mrkdwn", "text": words[:MAX_CONTEXT_CHARS]}]}] if words else []
