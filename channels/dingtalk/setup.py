"""Set up DingTalk: the steps of `fawn setup`, and the probe of `fawn check`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from catalogue import N_, _, join_sentences
from channels.base import Refused
from channels.dingtalk import DingTalkSettings
from channels.dingtalk.api import DingTalkApi, DingTalkRefusal
from channels.shared.lifecycle import CONNECTED, SetupGuide, opened, refusing

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


# Calls that DingTalk refuses, for their arguments if the app has the permission, and else for the permission.
_MESSAGES = ("POST", "/v1.0/robot/oToMessages/batchSend", {"userIds": [], "msgKey": "sampleText", "msgParam": "{}"})
_CARDS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("PUT", "/v1.0/card/instances", {"outTrackId": "", "cardData": {}}),
    ("PUT", "/v1.0/card/streaming", {"outTrackId": "", "guid": "", "key": "", "content": "", "isFull": True}),
)
PERMISSION_CODE = "Forbidden.AccessDenied.AccessTokenPermissionDenied"
STREAM_FIX = N_("In the developer console, choose “Stream mode” for the robot's messages, and publish a version.")


async def probe_account(settings: DingTalkSettings) -> str:
    with refusing(settings.base_url, ["proxy", "ca_file"]):
        async with opened(DingTalkApi(settings)) as api:
            return await _probe_app(api, settings)


async def _probe_app(api: DingTalkApi, settings: DingTalkSettings) -> str:
    lacking = []
    for method, path, body in (_MESSAGES, *(_CARDS if settings.card_template_id else ())):
        try:
            await api(method, path, {"robotCode": settings.robot, **body} if path in _MESSAGES else body)
        except DingTalkRefusal as error:
            if error.code == PERMISSION_CODE:
                lacking.append(str(error))
    if lacking:
        raise Refused(join_sentences(*lacking, _("Add it in the developer console and publish a version.")))
    try:
        await (await api.open_stream()).close()
    except DingTalkRefusal as error:
        raise Refused(join_sentences(f"{error}.", _(STREAM_FIX))) from None
    without = N_("connected as {name}, without `card_template_id`: answers do not stream")
    return _(CONNECTED if settings.card_template_id else without, name=settings.client_id)
