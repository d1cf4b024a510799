"""The document of the API: it names each route, and what the service takes and answers is what it says."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Start
from tests.e2e.test_api import HTTP, add_key, client_of, finished_run, get, post
from tests.e2e.test_probes import address_of
from tests.support.service_process import Service, ask

BOSS = 9
ACCESS = {"open": True, "operators": [str(BOSS)]}
STREAMS = r"/events$"  # they do not end; tests/e2e/test_events.py reads them
CONFIG = """
[checks]
positive_data_acceptance.expected-statuses = [{good}]
"""
# A cursor means something only to who made it, and a title of blanks is text: 400 and 422 say so.
GOOD = '"2xx", "304", "400", "401", "403", "404", "409", "410", "422", "429"'


async def started(start: Start) -> tuple[Service, str]:
    service = await start(http=HTTP, channels={"telegram": {"access": ACCESS}})
    return service, await add_key(service, "all", f"telegram/{BOSS}", "--scopes", "threads,operate")


async def test_the_document_has_every_route_and_needs_no_key(start: Start) -> None:
    service, _key = await started(start)
    async with client_of(service, "") as client:
        status, document = await get(client, "/v1/openapi.json")
    assert (status, document["openapi"]) == (200, "3.1.0")
    assert document["components"]["schemas"]["MessageBody"]["properties"]["text"]["minLength"] == 1
    [cursor] = [each for each in document["paths"]["/v1/search"]["get"]["parameters"] if each["name"] == "cursor"]
    assert cursor["schema"]["maxLength"] == 2000
    named = {(method.upper(), path) for path, found in document["paths"].items() for method in found}
    text = (Path(__file__).parents[2] / "docs/api.md").read_text()
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    told = set(re.findall(r"`(GET|POST|PATCH|DELETE) (/v1/[^`?]*)", rows))
    assert told - {("GET", "/v1/openapi.json")} == named


async def test_no_request_gets_a_fault_or_an_answer_that_is_not_documented(start: Start, tmp_path: Path) -> None:
    """schemathesis makes requests from the document, good and bad ones, also in sequences, and checks each answer."""
    service, key = await started(start)
    async with client_of(service, key) as client:
        _status, sent = await post(client, "/v1/threads/t1/messages", {"text": ask(text="forty-two")})
        await finished_run(client, sent["id"])
    (tmp_path / "schemathesis.toml").write_text(CONFIG.format(good=GOOD))
    code, said = await schemathesis(tmp_path, address_of(service), key)
    assert code == 0, said
    [(selected, total)] = re.findall(r"Operations: +(\d+) selected / (\d+) total", said)
    assert int(total) - int(selected) == 4, "the streams"
    assert int(re.findall(r"(\d+) generated", said)[0]) > 500
    assert "http.fault" not in service.log()


async def schemathesis(folder: Path, address: str, key: str, *more: str) -> tuple[int, str]:
    """Run it with all checks and phases against the service; return its exit code and what it says."""
    arguments: tuple[Any, ...] = (
        *("run", f"{address}/v1/openapi.json", "--checks", "all", "--phases", "examples,coverage,fuzzing,stateful"),
        *("--exclude-path-regex", STREAMS, "--max-examples", "8"),
        *("--header", f"Authorization: Bearer {key}", "--generation-deterministic", "--request-timeout", "20"),
        *("--suppress-health-check", "all", "--no-color", "--workers", "1", *more),
    )
    program = "from schemathesis.cli import schemathesis; schemathesis()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _nothing = await process.communicate()
    return process.returncode or 0, said.decode(errors="replace")
