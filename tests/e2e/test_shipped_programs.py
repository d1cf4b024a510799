"""The programs of shipped skills through the tool `run_skill`: a person sends a file, the agent changes it."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_skills import results
from tests.fakes.model import FakeModel
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import ask

pytestmark = pytest.mark.usefixtures("bubblewrap")

BASE = "http://schemas.openxmlformats.org"
TYPES = (
    f'<Types xmlns="{BASE}/package/2006/content-types"><Default Extension="xml" ContentType="application/xml"/></Types>'
)
WORD = f'xmlns:w="{BASE}/wordprocessingml/2006/main"'
SHEETS = f'xmlns="{BASE}/spreadsheetml/2006/main" xmlns:r="{BASE}/officeDocument/2006/relationships"'


def relations(*targets: tuple[str, str]) -> str:
    """Return a relations part: pairs of kind and target."""
    lines = "".join(
        f'<Relationship Id="r{number}" Type="{BASE}/officeDocument/2006/relationships/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets)
    )
    return f'<Relationships xmlns="{BASE}/package/2006/relationships">{lines}</Relationships>'


def packed(parts: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, text in {"[Content_Types].xml": TYPES, **parts}.items():
            file.writestr(name, text)
    return out.getvalue()


CONTRACT = packed({
    "_rels/.rels": relations(("officeDocument", "word/document.xml")),
    "word/document.xml": f"<w:document {WORD}><w:body><w:p><w:r><w:t>Due in ten days.</w:t></w:r></w:p></w:body>"
    "</w:document>",
})  # fmt: skip
BUDGET = packed({
    "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
    "xl/workbook.xml": f'<workbook {SHEETS}><sheets><sheet name="Plan" sheetId="1" r:id="r0"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": relations(("worksheet", "worksheets/sheet1.xml")),
    "xl/worksheets/sheet1.xml": f'<worksheet {SHEETS}><sheetData><row r="1"><c r="A1"><v>2</v></c>'
    '<c r="B1"><f>A1*21</f><v>0</v></c></row></sheetData></worksheet>',
})  # fmt: skip


def run(name: str, **given: Any) -> dict[str, Any]:
    return {"calls": [{"name": "run_skill", "args": {"name": name, "input": given}}]}


async def test_a_contract_and_a_budget_are_changed_by_run_skill(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel, start: Start
) -> None:
    service = await start()
    edits = [{"find": "ten days", "replace": "14 days", "comment": "Agreed?"}]
    sent = "/mnt/user-data/uploads/contract.docx"
    steps = [
        run("docx", command="edit", file=sent, edits=edits, author="Fawn for Jane", out="edited.docx"),
        run("docx", command="list", file="edited.docx"),
    ]
    telegram.send_document("contract.docx", CONTRACT, caption=ask(steps=steps, text="changed the contract"))
    await telegram.wait(JANE, "changed the contract", seconds=60)
    edited, listed = (json.loads(each.splitlines()[0]) for each in results(model)[-2:])
    assert (edited["written"], edited["places"]) == ("edited.docx", 1)
    assert [(each["kind"], each["text"]) for each in listed["changes"]] == [("deletion", "ten"), ("insertion", "14")]
    assert listed["changes"][0]["author"] == "Fawn for Jane"
    assert [(each["text"], each["about"]) for each in listed["comments"]] == [("Agreed?", "14 days")]

    sent = "/mnt/user-data/uploads/budget.xlsx"
    steps = [
        run("xlsx", command="edit", file=sent, cells={"A1": 4, "C1": "=B1/0"}, own=True, out="new.xlsx"),
        run("xlsx", command="edit", file=sent, cells={"No!A1": 4}, out="no.xlsx"),
    ]
    telegram.send_document("budget.xlsx", BUDGET, caption=ask(steps=steps, text="changed the budget"))
    await telegram.wait(JANE, "changed the budget", seconds=60)
    changed, refused = results(model)[-2:]
    assert json.loads(changed.splitlines()[0])["changed"] == [
        {"cell": "Plan!B1", "before": 0, "after": 84}, {"cell": "Plan!C1", "before": None, "after": "#DIV/0!"},
    ]  # fmt: skip
    assert "The skill xlsx failed: exit code 1." in refused
    assert "There is no sheet 'No'; there are: Plan." in refused
    await service.quiet()
