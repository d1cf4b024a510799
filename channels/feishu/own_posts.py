"""Notice that another program uses the same app: the history has messages of the app that this process did not post.

Feishu gives each event to one of an app's connections at random, and tells none of the others
(open.feishu.cn/document/server-docs/event-subscription-guide/event-subscription-configure-/request-url-configuration-case).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from channels.shared.caches import LatestDict

log = logging.getLogger(__name__)

MAX_POSTS = 10_000
SHARED_SECONDS = 3600.0  # for which one such message counts


class OwnPosts:
    """The messages that this process posted. `margin` seconds after its start, all of the app's are its own."""

    def __init__(self, margin: float) -> None:
        self._margin = margin
        self._began = self._unsure = time.time()  # …and when a post had no known outcome
        self._ids: LatestDict[str, bool] = LatestDict(MAX_POSTS)
        self._under_way = 0  # posts whose id is not known yet
        self._seen = -SHARED_SECONDS  # time.monotonic() when another one's was seen

    @property
    def is_shared(self) -> bool:
        """Whether another program posted lately."""
        return time.monotonic() - self._seen < SHARED_SECONDS

    @contextmanager
    def posting(self) -> Iterator[None]:
        """Post inside: until its id is noted, the history may show a message of this process."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def note_post(self, id: str) -> None:
        self._ids[id] = True

    def note_unknown(self) -> None:
        """Note that a post may have become visible under an id that nobody knows."""
        self._unsure = time.time()

    def check(self, id: str, at: float) -> None:
        """Look at a message of the app in the history, posted at a unix time."""
        if not self._under_way and id not in self._ids and at > max(self._began, self._unsure) + self._margin:
            if not self.is_shared:
                log.warning("feishu.shared message=%s", id)
            self._seen = time.monotonic()
