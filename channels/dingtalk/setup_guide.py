"""The steps of `fawn setup dingtalk`."""

from __future__ import annotations

from functools import partial

from catalogue import N_, _
from channels.shared.setup_guide import SetupGuide

CREATE_APP = N_("""\
Create an internal app: https://open-dev.dingtalk.com, Application development. Add capability: Robot, with the message
receiving mode Stream mode. Permissions: apply for qyapi_robot_sendmsg, Card.Instance.Write and Card.Streaming.Write.
Version management: create a version and publish it. Credentials shows the Client ID (ding…).""")
SAME_PAGE = N_("The same page shows the Client Secret.")
CONTACT = N_("Search for the robot in DingTalk and write to it: {word}")
GUIDE = SetupGuide(
    lambda settings, account, word: _(CONTACT, word=word),
    {"client_id": partial(_, CREATE_APP), "client_secret": partial(_, SAME_PAGE)},
)
