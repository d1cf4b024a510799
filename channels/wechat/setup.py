"""Guide through `fawn setup wechat`."""

from __future__ import annotations

from catalogue import N_, _
from channels.shared.lifecycle import SetupGuide
from channels.wechat.login import sign_in

CONTACT = N_("Write to the robot, which is now among your chats in WeChat: {word}")
GUIDE = SetupGuide(lambda settings, account, word: _(CONTACT, word=word), scans={"person": sign_in})
