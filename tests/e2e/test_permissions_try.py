"""`fawn permissions try`: what people did, under other rules, roles and budgets, beside the service and without."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Start
from tests.e2e.test_budgets import priced
from tests.e2e.test_permissions import asked, press
from tests.fakes.model import FakeModel
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask

EVE = 78
FOLDER = "/mnt/user-data/workspace"


def writes(name: str, **more: Any) -> str:
    call = {"name": "write_file", "args": {"path": f"{FOLDER}/{name}", "content": "hunter2"}}
    return ask(steps=[{"calls": [call]}], **more)


def put(service: Service, **sections: Any) -> None:
    (service.folder / "rules.yaml").write_text(yaml.safe_dump(sections))


async def tried(service: Service, *words: str) -> dict[str, Any]:
    code, out, errors = await service.run("permissions", "try", "rules.yaml", "--json", *words)
    assert (code, errors) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


async def test_what_people_did_is_tried_under_other_rules_roles_and_budgets(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(**priced(model, permissions={"ask": ["write_file(*/asked)"]}))
    [question] = await asked(telegram, service, writes("asked", text="approved", id="1"))
    press(telegram, question, "Approve")
    await telegram.wait(JANE, "approved")
    telegram.send(writes("free", text="freely", id="2"))
    await telegram.wait(JANE, "freely")
    telegram.send(writes("of-eve", text="hers", id="3"), chat=EVE)
    await telegram.wait(EVE, "hers")
    await service.quiet()

    put(service, permissions={"ask": ["write_file(*/free)", "write_file(*/of-eve)"]})
    found = await tried(service)
    assert [(each["person"], each["subject"], each["now"], each["tried"]) for each in found["list"]] == [
        (f"telegram:{JANE}", f"{FOLDER}/asked", "ask", "allow"),
        (f"telegram:{JANE}", f"{FOLDER}/free", "allow", "ask"),
        (f"telegram:{EVE}", f"{FOLDER}/of-eve", "allow", "ask"),
    ]
    assert (found["now"], found["tried"], found["saved"]) == ({"ask": 1, "allow": 2}, {"allow": 1, "ask": 2}, 0)
    code, text = await service.fawn("permissions", "try", "rules.yaml")
    assert code == 0, text
    assert "Recorded tool calls: 3" in text
    assert "Fawn would have asked 2 times (now 1), denied 0 calls (now 0), and cost $0.00 less" in text
    assert f"Jane (telegram/{JANE}): asked 1 (now 1), denied 0 (now 0)" in text
    assert "write_file: asked 2 (now 1), denied 0 (now 0)" in text
    assert f"write_file  {FOLDER}/free  runs → asks  (write_file(*/free))" in text

    config = yaml.safe_load((service.folder / "config.yaml").read_text())
    config["channels"]["telegram"]["access"]["roles"] = [{"role": "viewer", "who": [str(EVE)]}]
    put(service, **{**config, "permissions": {"deny": ["write_file(*/free)"]}})
    await service.stop()  # without the service, too
    found = await tried(service)
    assert [each["tried"] for each in found["list"]] == ["allow", "deny", "refused"]
    [refused] = found["refused"]
    assert (refused["person"], refused["reason"], refused["model_calls"]) == (f"telegram:{EVE}", "role", 2)
    costs = dict(service.rows("SELECT person, sum(cost) FROM usage GROUP BY person"))
    assert found["saved"] == pytest.approx(costs[f"telegram:{EVE}"] / 1e6)
    assert found["cost"] == pytest.approx(sum(costs.values()) / 1e6)

    put(service, budgets=[{"scope": "person", "which": str(JANE), "period": "day", "tokens": "1"}])
    found = await tried(service)
    per_run = [(each["person"], each["reason"], each["model_calls"]) for each in found["refused"]]
    assert per_run[-1] == (f"telegram:{JANE}", "person", 2), "her second request"
    assert found["list"][1]["tried"] == "refused"
    assert found["list"][2]["tried"] == "allow", "Eve has no budget"
    code, text = await service.fawn("permissions", "try", "rules.yaml")
    assert "Requests and background work that would have been refused:" in text
    assert "1 tokens a day" in text
    assert (await tried(service, "--days", "1"))["now"] == found["now"]
    assert "hunter2" not in str(service.rows("SELECT * FROM calls")), "only what rules compare is stored"


async def test_a_wrong_file_says_what_is_wrong(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(**priced(model))
    put(service, permissions={"denied": ["bash"]})
    code, text = await service.fawn("permissions", "try", "rules.yaml")
    assert code == 2
    assert "rules.yaml:2: permissions.denied" in text
    code, text = await service.fawn("permissions", "try", "nowhere.yaml")
    assert (code, "nowhere.yaml: there is no such file" in text) == (2, True)
    put(service, permissions={"deny": ["bash"]})
    code, text = await service.fawn("permissions", "try", "rules.yaml", "--days", "0")
    assert (code, "--days is a number from 1 to 3650" in text) == (2, True)
    code, text = await service.fawn("permissions", "try", "rules.yaml")
    assert (code, "Nothing was recorded in the last 30 days" in text) == (0, True)
