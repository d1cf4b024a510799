"""A chat of one platform into which hooks post, and the threads that begin at these posts."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fakes import feishu, slack
from tests.support.all_platforms import AllPlatforms
from tests.support.rigs.feishu import FeishuRig
from tests.support.rigs.slack import SlackRig

PLATFORMS = ("slack", "feishu")
ADDRESSES = {
    "slack": f"slack/{slack.TEAM}/{slack.OPS}",
    "feishu": f"feishu/{feishu.APP}/{feishu.GROUP}",
}
PEOPLE = {"slack": slack.JANE, "feishu": feishu.JANE}


@dataclass(frozen=True, slots=True)
class HookChat:
    """The chat, as people see it."""

    service: AllPlatforms
    name: str

    def posts(self) -> list[tuple[str, str]]:
        """Return id and text of what the bot shows in the chat outside of threads."""
        match self.service.rigs[self.name]:
            case SlackRig(server=team):
                return [(each.ts, each.text) for each in team.visible(slack.OPS, "")]
            case FeishuRig(server=tenant):
                return [(said.id, tenant.shown(said)) for said in tenant.bot_messages(feishu.GROUP)]
        raise AssertionError(self.name)

    def enter(self, post: str, topic: int) -> None:
        """Let the people of this platform call the thread below a post by this number."""
        rig = self.service.rigs[self.name]
        assert isinstance(rig, SlackRig | FeishuRig)
        rig.roots[topic] = post

    def below(self, topic: int) -> list[str]:
        """Return what the bot shows in a thread, without the post at which it begins."""
        rig = self.service.rigs[self.name]
        first = {post for post, _text in self.posts()}
        if isinstance(rig, SlackRig):
            return [each.text for each in rig.server.visible(slack.OPS, rig.root(topic)) if each.ts not in first]
        return rig.visible(topic)
