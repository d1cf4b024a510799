"""Skills in the chat: used by name and by the agent, installed, changed, proposed, accepted, rolled back."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_audit import rows_of
from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.fakes.telegram_world import Shown
from tests.support.git_server import serve_git
from tests.support.service_process import Service, ask, bash, said

EVE = 78
OPERATED = {"telegram": {"access": {"open": True, "operators": [str(JANE)]}}}
RUN = """import json, os, pathlib, sys
state = pathlib.Path(os.environ["SKILL_STATE"], "count")
count = int(state.read_text()) + 1 if state.exists() else 1
state.write_text(str(count))
given = json.load(sys.stdin)
if given.get("fail"):
    sys.exit("the numbers are missing")
print(json.dumps({"sum": sum(given["numbers"]), "count": count}))
"""

pytestmark = pytest.mark.usefixtures("bubblewrap")


def skill_text(name: str = "add-numbers", body: str = "Add the numbers with run_skill.") -> str:
    return f"---\nname: {name}\ndescription: Add numbers. Use it for sums.\n---\n{body}\n"


def write_skill(folder: Path, name: str = "add-numbers", body: str = "Add the numbers with run_skill.") -> Path:
    place = folder / "skills" / "custom" / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(skill_text(name, body))
    (place / "run.py").write_text(RUN)
    return place


def packed(body: str = "Add the numbers with run_skill.", **files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("add-numbers/SKILL.md", skill_text(body=body))
        for name, content in {"run.py": RUN, **files}.items():
            archive.writestr(f"add-numbers/{name}", content)
    return out.getvalue()


def run_skill(**given: Any) -> dict[str, Any]:
    return {"calls": [{"name": "run_skill", "args": {"name": "add-numbers", "input": given}}]}


def results(model: FakeModel) -> list[str]:
    return [str(m["content"]) for m in model.requests()[-1].messages if m["role"] == "tool"]


def system_texts(model: FakeModel) -> set[str]:
    return {str(request.messages[0]["content"]) for request in model.requests()}


async def question(telegram: FakeTelegram, text: str) -> Shown:
    shown = await telegram.wait(JANE, text)
    assert [label for label, _ in shown.buttons] == ["Accept", "Decline"]
    return shown


# Case 46 of docs/cases.md
async def test_a_skill_called_by_name_runs_with_its_body(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    write_skill(tmp_path)
    service = await start(channels=OPERATED)
    telegram.send("/add_numbers " + ask(steps=[run_skill(numbers=[1, 2]), run_skill(numbers=[5])], text="it is 3"))
    await telegram.wait(JANE, "it is 3")
    await service.quiet()
    request = str(model.requests()[0].messages[-1]["content"])
    assert "/mnt/skills/add-numbers/SKILL.md says:]" in request
    assert "Add the numbers with run_skill." in request
    assert results(model) == ['{"sum": 3, "count": 1}', '{"sum": 5, "count": 2}']
    telegram.send("/skills disable add-numbers")
    await telegram.wait(JANE, "The skill add-numbers is disabled.")
    telegram.send("/add-numbers 1 2")
    await telegram.wait(JANE, "The skill add-numbers is installed but disabled. An operator can enable it.")
    telegram.send("/skills")
    await telegram.wait(JANE, "add-numbers (installed but disabled): Add numbers.")
    count = len(model.requests())
    telegram.send("/skills enable add-numbers", chat=EVE)
    await telegram.wait(EVE, "Your role here, member, doesn't let you use /skills.")
    assert len(model.requests()) == count


async def test_a_skill_that_cannot_run_here_is_named_with_the_fix(
    tmp_path: Path, telegram: FakeTelegram, start: Start
) -> None:
    place = write_skill(tmp_path)
    needs = "metadata:\n  needs: no-such-package program:no-such-program\n"
    (place / "SKILL.md").write_text(skill_text().replace("description:", f"{needs}description:"))
    service = await start(channels=OPERATED, skills={"allow": ["add-numbers", "log-triage"]})
    lacks = "add-numbers (not ready, it needs no-such-package, no-such-program): Add numbers."
    telegram.send("/skills")
    shown = await telegram.wait(JANE, lacks)
    assert "log-triage: " in shown.text
    assert "→ install the packages for sandboxes: make skills" in shown.text
    telegram.send("/skills", chat=EVE)
    assert "→" not in (await telegram.wait(EVE, lacks)).text, "others cannot mend it"
    _code, said = await service.fawn("check")
    assert "skills: not ready: add-numbers (`no-such-package`, `no-such-program`)\n" in said
    assert "→ install the packages for sandboxes: `make skills`" in said
    (place / "SKILL.md").write_text(skill_text())
    telegram.send("/skills")
    await telegram.wait(JANE, "add-numbers: Add numbers.")


async def test_the_agent_reads_a_skill_and_the_prompt_stays_the_same(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    place = write_skill(tmp_path)
    service = await start()
    read = {"calls": [{"name": "read_file", "args": {"path": "/mnt/skills/add-numbers/SKILL.md"}}]}
    telegram.send(ask(steps=[read, bash("ls /mnt/skills/add-numbers; touch /mnt/skills/x")], text="first"))
    await telegram.wait(JANE, "first")
    assert "Add the numbers with run_skill." in results(model)[0]
    assert "SKILL.md\nrun.py" in results(model)[1]
    assert "Read-only file system" in results(model)[1]
    telegram.send(ask(steps=[run_skill(fail=True)], text="second"))
    await telegram.wait(JANE, "second")
    assert "The skill add-numbers failed: exit code 1.\nthe numbers are missing" in results(model)[-1]
    [brief] = system_texts(model)
    assert "- add-numbers: Add numbers. Use it for sums." in brief
    (place / "SKILL.md").write_text(skill_text(body="Count on your fingers."))
    telegram.send("/skills")  # which looks at the files now, and not within a second
    await telegram.wait(JANE, "add-numbers: Add numbers.")
    telegram.send(ask(steps=[read], text="third"))
    await telegram.wait(JANE, "third")
    assert "Count on your fingers." in results(model)[-1]
    assert system_texts(model) == {brief}
    await service.quiet()


async def test_a_shipped_skill_runs_by_its_tool(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    given = {"files": ["orders.csv"], "query": "SELECT person, sum(amount) AS total FROM orders GROUP BY 1 ORDER BY 1"}
    call = {"calls": [{"name": "run_skill", "args": {"name": "sql", "input": given}}]}
    write = bash("printf 'person,amount\\nada,1\\nbob,2\\nada,3\\n' > orders.csv")
    telegram.send(ask(steps=[write, call], text="summed"))
    await telegram.wait(JANE, "summed")
    assert json.loads(results(model)[-1])["table"][2:] == ["| ada | 4 |", "| bob | 2 |"]
    wrong = {
        "calls": [{"name": "run_skill", "args": {"name": "sql", "input": {**given, "query": "DROP TABLE orders"}}}]
    }
    telegram.send(ask(steps=[wrong], text="refused"))
    await telegram.wait(JANE, "refused")
    assert "The skill sql failed: exit code 1." in results(model)[-1]
    assert "sources are never changed" in results(model)[-1]
    await service.quiet()


async def test_a_skill_has_requirements_and_any_language(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    place = write_skill(tmp_path)
    (place / "requirements.txt").write_text("pip\n")  # which every virtual environment has
    (place / "tool.sh").write_text('echo "{\\"python\\": \\"$(command -v python3)\\"}"\n')
    fields = "---\nname: add-numbers\ndescription: Add.\nmetadata:\n  entry: tool.sh\n---\nAdd.\n"
    (place / "SKILL.md").write_text(fields)
    service = await start()
    telegram.send(ask(steps=[run_skill()], text="first"))
    await telegram.wait(JANE, "first")
    assert results(model)[-1] == '{"python": "/mnt/user-data/workspace/.skills/add-numbers/.venv/bin/python3"}'
    (place / "requirements.txt").write_text("no-such-package-of-anybody\n")
    telegram.send(ask(steps=[run_skill()], text="second"))
    await telegram.wait(JANE, "second")
    assert "its requirements.txt could not be installed" in results(model)[-1]
    assert "The skill add-numbers failed: exit code 1." in results(model)[-1]
    await service.quiet()


async def test_an_operator_chooses_one_of_the_skills_of_a_repository_by_button_and_by_name(
    tmp_path: Path, telegram: FakeTelegram, start: Start
) -> None:
    repository = tmp_path / "git" / "jane" / "tools"
    for name in ("add-numbers", "sort-words"):
        (repository / "skills" / name).mkdir(parents=True)
        (repository / "skills" / name / "SKILL.md").write_text(skill_text(name))
    person = ("-c", "user.name=Jane", "-c", "user.email=jane@example.org")
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*person, "commit", "-qm", "First"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    async with serve_git(tmp_path / "git", tmp_path) as (address, certificate):
        address = address.replace("localhost", "127.0.0.1")
        service = await start(channels=OPERATED, skills={"private_hosts": ["127.0.0.1"]})
        service.more_environment = {"SSL_CERT_FILE": str(certificate)}
        await service.restart()
        telegram.send(f"/skills install {address}/jane/tools")
        shown = await telegram.wait(JANE, "Which one shall I install?")
        assert "add-numbers: Add numbers." in shown.text
        assert [label for label, _data in shown.buttons] == ["add-numbers", "sort-words"]
        await service.restart()
        telegram.click(shown.buttons[1][1], shown.id)
        await telegram.wait(JANE, "The skill sort-words is installed.")
        telegram.send(f"/skills install {address}/jane/tools/tree/main/skills add-numbers")
        await telegram.wait(JANE, "The skill add-numbers is installed.")


async def test_an_operator_installs_an_archive_and_accepts_its_changes(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(channels=OPERATED)
    telegram.send_document("add.skill", packed(), caption="/skills install", chat=EVE)
    await telegram.wait(EVE, "Your role here, member, doesn't let you use /skills.")
    telegram.send_document("bad.skill", packed(tool="\x7fELF"), caption="/skills install")
    await telegram.wait(JANE, "The skill was not changed: tool is a compiled program.")
    assert not (tmp_path / "skills").exists()
    telegram.send_document("add.skill", packed(), caption="/skills install")
    await telegram.wait(JANE, "The skill add-numbers is installed.")
    telegram.send("/add-numbers " + ask(steps=[run_skill(numbers=[4])], text="four"))
    await telegram.wait(JANE, "four")
    assert results(model) == ['{"sum": 4, "count": 1}']
    (tmp_path / "skills/custom/add-numbers/run.py").write_text("print(0)")
    telegram.send("/skills")  # which looks at the files now, and not within a second
    await telegram.wait(JANE, "disabled, because its files changed")
    telegram.send(ask(steps=[run_skill(numbers=[4])], text="five"))
    await telegram.wait(JANE, "five")
    assert "is disabled, because its files changed" in results(model)[-1]
    telegram.send("/skills enable add-numbers")
    await telegram.wait(JANE, "its files have changed: it is used again once an operator has looked at the change")
    telegram.send("/skills accept add-numbers")
    shown = await question(telegram, "Shall I use this changed version of the skill add-numbers?")
    assert "+print(0)" in shown.text
    foreign = telegram.click(shown.buttons[0][1], shown.id, user=EVE)
    await until(lambda: foreign in telegram.answers, what="the answer to the foreign press")
    assert "Only the person I asked" in str(telegram.answers[foreign])
    await service.restart()
    telegram.click(shown.buttons[0][1], shown.id)
    await until(lambda: sum("The skill add-numbers is installed." in text for text in said(telegram, JANE)) == 2)
    telegram.send(ask(steps=[run_skill(numbers=[4])], text="six"))
    await telegram.wait(JANE, "six")
    assert results(model)[-1] == "0"
    telegram.send("/skills rollback add-numbers")
    await telegram.wait(JANE, "The skill add-numbers is back at its earlier version.")
    code, listed = await service.fawn("skills", "list")
    assert code == 0
    assert "add-numbers\tenabled" in listed
    await service.quiet()


async def test_the_agent_proposes_a_skill_and_an_operator_accepts_it(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start(channels=OPERATED)
    files = [{"path": "SKILL.md", "content": skill_text()}, {"path": "run.py", "content": RUN}]
    propose = {"calls": [{"name": "propose_skill", "args": {"name": "add-numbers", "files": files}}]}
    telegram.send(ask(text="hello"))  # the operator's private chat is known from now on
    await telegram.wait(JANE, "hello")
    telegram.send(ask(steps=[propose], text="proposed"), chat=EVE)
    await telegram.wait(EVE, "proposed")
    await telegram.wait(EVE, "I propose the skill add-numbers. An operator decides")
    shown = await question(telegram, "Shall I install the new skill add-numbers?")
    assert "+Add the numbers with run_skill." in shown.text
    assert not (tmp_path / "skills").exists()
    telegram.send("/add-numbers 1", chat=EVE)
    await telegram.wait(EVE, "I don't know /add-numbers")
    telegram.click(shown.buttons[0][1], shown.id)
    await telegram.wait(JANE, "The skill add-numbers is installed.")
    telegram.send("/add-numbers " + ask(steps=[run_skill(numbers=[4, 5])], text="nine"), chat=EVE)
    await telegram.wait(EVE, "nine")
    assert results(model)[-1] == '{"sum": 9, "count": 1}'
    telegram.send("/skills rollback add-numbers")
    await telegram.wait(JANE, "The skill add-numbers is removed.")
    await service.quiet()


async def test_a_proposed_skill_is_accepted_from_the_list_of_what_waits(
    telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    """After a kill, by its number; who may not decide sees nothing of it."""
    service = await start(channels=OPERATED)
    files = [{"path": "SKILL.md", "content": skill_text()}, {"path": "run.py", "content": RUN}]
    propose = {"calls": [{"name": "propose_skill", "args": {"name": "add-numbers", "files": files}}]}
    telegram.send(ask(steps=[propose], text="proposed"), chat=EVE)
    await telegram.wait(EVE, "proposed")
    await service.quiet()
    await service.kill()
    await service.start()
    telegram.send("/waiting", chat=EVE)
    await telegram.wait(EVE, "Nothing waits for you.")
    telegram.send("/waiting")
    await telegram.wait(JANE, "1. Shall I install the new skill add-numbers?")
    telegram.send("/waiting 1 Accept", chat=EVE)
    await telegram.wait(EVE, "Nothing with the number 1 waits for you any more.")
    telegram.send("/waiting 1 accept")
    await telegram.wait(JANE, "The skill add-numbers is installed.")
    await service.quiet()


BOMBS = {  # a SKILL.md that once ended the service, filled its memory, or kept it from starting
    "lists in lists": "- " * 40_000,
    "aliases in aliases": "\n".join(
        ["description: x", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
        + ["name: *a9"]
    ),
    "900 levels": "description: x\nmetadata: " + "[" * 900 + "]" * 900,
}


async def test_a_hostile_skill_neither_stops_the_service_nor_anybody_else(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    write_skill(tmp_path)
    for number, fields in enumerate(BOMBS.values()):
        folder = tmp_path / "skills" / "custom" / f"bomb-{number}"
        folder.mkdir()
        (folder / "SKILL.md").write_text(f"---\n{fields}\n---\n")
    service = await start(channels=OPERATED)  # it starts with them
    telegram.send("/skills")
    await telegram.wait(JANE, "custom/bomb-2 cannot be used: the fields of its SKILL.md are nested deeper")
    calls = [
        {"name": "propose_skill", "args": {"name": "bomb", "files": [{"path": "SKILL.md", "content": text}]}}
        for text in (f"---\n{fields[:15_000]}\n---\n" for fields in BOMBS.values())
    ]
    telegram.send(ask(steps=[{"calls": [call]} for call in calls], text="proposed"), chat=EVE)
    telegram.send("/add-numbers " + ask(steps=[run_skill(numbers=[1, 2])], text="it is 3"))
    await telegram.wait(JANE, "it is 3")
    await telegram.wait(EVE, "proposed")
    refused = [
        text
        for request in model.requests()
        for m in request.messages
        if "cannot be proposed" in (text := str(m["content"]))
    ]
    assert len({*refused}) == 2, refused  # two of them are too deep
    await service.quiet()


async def test_the_off_switch_removes_the_tool(telegram: FakeTelegram, model: FakeModel, start: Start) -> None:
    service = await start(skills={"evolution": False})
    telegram.send(ask(text="hello"))
    await telegram.wait(JANE, "hello")
    tools = {tool["function"]["name"] for tool in model.requests()[0].tools}
    assert "run_skill" in tools
    assert "propose_skill" not in tools
    await service.quiet()


async def test_the_command_line_manages_skills_without_a_service(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = Service(tmp_path, telegram, model, {})
    (tmp_path / "add.skill").write_bytes(packed())
    assert await service.fawn("skills", "install", "add.skill") == (0, "Installed add-numbers.\n")
    assert "add-numbers\tenabled\tcustom\tAdd numbers." in (await service.fawn("skills", "list"))[1]
    assert (await service.fawn("skills", "disable", "add-numbers"))[0] == 0
    assert "add-numbers\tdisabled" in (await service.fawn("skills", "list"))[1]
    assert (await service.fawn("skills", "enable", "nothing"))[0] == 1
    program = tmp_path / "skills/custom/add-numbers/run.py"
    before = program.read_text()
    program.write_text("print(0)")
    code, words = await service.fawn("skills", "enable", "add-numbers")
    assert (code, "its files have changed" in words) == (0, True), words
    assert "add-numbers\tchanged" in (await service.fawn("skills", "list"))[1]
    program.write_text(before)
    (tmp_path / "add.skill").write_bytes(packed("Add slowly."))
    code, words = await service.fawn("skills", "install", "add.skill")
    assert code == 0
    assert "+Add slowly." in words
    assert "fawn skills accept add-numbers" in words
    assert await service.fawn("skills", "accept", "add-numbers") == (0, "Installed add-numbers.\n")
    assert (await service.fawn("skills", "rollback", "add-numbers"))[0] == 0


async def test_what_the_command_line_does_to_skills_has_rows_in_the_audit(start: Start) -> None:
    service = await start(sandbox={"provider": "none"})
    (service.folder / "add.skill").write_bytes(packed())
    assert (await service.fawn("skills", "install", "add.skill"))[0] == 0
    assert (await service.fawn("skills", "list"))[0] == 0
    assert (await service.fawn("skills", "enable", "nothing"))[0] == 1
    await service.stop()
    assert (await service.fawn("skills", "disable", "add-numbers"))[0] == 0
    rows = await rows_of(service, "--kind", "skill")
    done = [("install", "done"), ("enable", "failed"), ("disable", "done")]
    assert [(row["what"]["action"], row["result"]) for row in rows] == done
    assert {row["what"]["via"] for row in rows} == {"command line"}
    assert rows[2]["what"]["skill"] == "add-numbers"
