"""The steps of `fawn setup dingtalk`."""

from __future__ import annotations

from channels.dingtalk import DingTalkSettings
from channels.shared.setup_guide import SetupGuide

CREATE_APP = """\
Create an internal app: https://open-dev.dingtalk.com, Application development. Add capability: Robot, with the message
receiving mode Stream mode. Permissions: apply for qyapi_robot_sendmsg, Card.Instance.Write and Card.Streaming.Write.
Version management: create a version and publish it. Credentials shows the Client ID (ding…)."""
SAME_PAGE = "The same page shows the Client Secret."
CONTACT = "Search for the robot in DingTalk and write to it: {word}"


def _describe_contact(settings: DingTalkSettings, account: str, word: str) -> str:
    """Return how to write to the robot: it has no link."""
    return CONTACT.format(word=word)


GUIDE = SetupGuide(_describe_contact, {"client_id": CREATE_APP, "client_secret": SAME_PAGE})
