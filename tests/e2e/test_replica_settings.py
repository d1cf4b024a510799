"""Two services on one PostgreSQL database: a reload reaches both, and both together keep the limit of turns."""

from __future__ import annotations

from typing import Any

import yaml

from bot.cli.exit_codes import CONFIG, OK
from tests.e2e.test_api import add_key, client_of, finished_run, post, wait_for
from tests.e2e.test_replicas import Replica, pair, server
from tests.fakes.server import until
from tests.support.service_process import ask

__all__ = ["pair", "server"]
Pair = tuple[Replica, Replica]


def change(service: Replica, **sections: Any) -> None:
    """Change sections of the file of a service."""
    path = service.folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    for name, values in sections.items():
        config[name] = {**config.get(name, {}), **values} if isinstance(values, dict) else values
    path.write_text(yaml.safe_dump(config))


async def test_a_reload_reaches_the_other_service_or_says_how_it_differs(pair: Pair) -> None:
    one, two = pair
    for each in pair:
        change(each, time_zone="Asia/Tokyo")
    code, text = await one.fawn("reload")
    assert code == OK, text
    assert "Changed: time_zone." in text
    assert "reloaded, with the same configuration." in text
    rows = two.rows("SELECT body FROM audit ORDER BY seq")
    assert any(b'"another process"' in bytes(body) for (body,) in rows)

    change(one, time_zone="Asia/Seoul")
    code, text = await one.fawn("reload")
    assert code == OK, text
    assert "reloaded, but its configuration differs (" in text
    assert "config.elsewhere" in one.log()

    change(one, time_zone="Asia/Shanghai")
    change(two, time_zone="Nowhere/City")
    code, text = await one.fawn("reload")
    assert code == OK, text
    assert "it refused its configuration, and keeps the one before" in text
    code, text = await two.fawn("reload")
    assert code == CONFIG, "a refused file is not told to others"


async def test_the_limit_of_turns_counts_those_of_both_services(pair: Pair) -> None:
    one, two = pair
    for each in pair:
        change(each, limits={"live_turns": 1})
    assert (await one.fawn("reload"))[0] == OK
    key = await add_key(one, "ci", "telegram/7")
    async with client_of(one, key) as here, client_of(two, key) as there:
        _status, first = await post(here, "/v1/threads/a/messages", {"text": ask(word="long-", tokens=60, tok_ms=100)})
        await wait_for(here, f"/v1/messages/{first['id']}", lambda found: found["run"])
        await until(lambda: two.rows("SELECT 1 FROM conversations WHERE owner IS NOT NULL"), what="the first turn")
        _status, second = await post(there, "/v1/threads/b/messages", {"text": ask(text="short")})
        await finished_run(there, second["id"])
        [(state,)] = one.rows("SELECT state FROM runs ORDER BY id LIMIT 1")
        assert state == "done", "the short turn has waited for the long one"
        await finished_run(there, first["id"])
