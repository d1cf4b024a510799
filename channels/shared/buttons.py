"""Buttons under a reply that send a command: Stop while it is live, Retry under a failure.

The data of such a button names the reply, so that a press long after has no effect on other work.
"""

from __future__ import annotations

from dataclasses import replace

from agent.blocks import Final, View
from agent.messages import Kind, Message
from catalogue import N_, _
from channels.base import Receipt
from channels.shared.texts import ANSWERED, NOT_YOURS, text_for

LABELS = {"stop": N_("⏹ Stop"), "retry": N_("↻ Retry")}
PREFIX = "command|"
PRESSED = {"stop": N_("Stopping…"), "retry": N_("Trying again…")}
NOT_ALLOWED = N_("You can't use this here.")


def live_button(view: View, reply: str) -> str:
    """Return the data of a live reply's button, or "". A plain answer is over too soon to be stopped."""
    return command_data("stop", reply) if view.steps or view.plan else ""


def final_button(final: Final, reply: str) -> str:
    """Return the data of a final reply's button, or "" unless it failed."""
    return command_data("retry", reply) if final.state == "failed" else ""


def button_label(data: str) -> str:
    return _(LABELS[data.split("|")[1]])


def command_data(command: str, reply: str) -> str:
    """Return the data of a button, at most 35 characters. `reply` is the key of its SentMessages."""
    return f"{PREFIX}{command}|{reply}"


def as_command(click: Message, data: str) -> Message | None:
    """Return the command that a press sends, or None for the data of an option."""
    command, _, reply = data.removeprefix(PREFIX).partition("|")
    if not data.startswith(PREFIX) or command not in LABELS:
        return None
    return replace(click, kind=Kind.COMMAND, text=command, target=reply)


def is_stop(message: Message) -> bool:
    """Whether it is a press of Stop, whose button goes with the end of the reply."""
    return message.kind is Kind.COMMAND and message.text == "stop"


def press_refusal(message: Message, receipt: Receipt) -> str:
    """Return why a press has no effect, or "" if it has one."""
    if receipt is Receipt.ACCEPTED:
        return ""
    refused = NOT_ALLOWED if message.kind is Kind.COMMAND else NOT_YOURS
    return text_for(message, refused if receipt is Receipt.IGNORED else ANSWERED)


def press_toast(message: Message, receipt: Receipt) -> str:
    """Return what only the person sees who pressed a button."""
    command = message.kind is Kind.COMMAND
    done = text_for(message, PRESSED[message.text]) if command else f"✓ {message.text}"
    return press_refusal(message, receipt) or done
