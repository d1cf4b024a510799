"""Files over HTTP: what a form sends reaches the agent, and what the agent leaves can be downloaded, also in parts."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import Start
from tests.e2e.test_api import HTTP, Json, add_key, client_of, finished_run, get, post, wait_for
from tests.fakes.server import until
from tests.support.left_words import found_in
from tests.support.service_process import ask, bash

MEGABYTE = os.urandom(1 << 20)
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc0f01f00050001ff"
    "a5f2a5e30000000049454e44ae426082"
)
HOSTILE = 'page "ü".html'
TEXT_PART = b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\nx\r\n'
Files = dict[str, bytes]


def form(text: str | None, files: Files) -> aiohttp.FormData:
    data = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
    if text is not None:
        data.add_field("text", text)
    for name, content in files.items():
        data.add_field("file", io.BytesIO(content), filename=name, content_type="application/octet-stream")
    return data


async def send(client: aiohttp.ClientSession, text: str | None, files: Files, **headers: str) -> tuple[int, Json]:
    async with client.post("/v1/threads/t/messages", data=form(text, files), headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)


async def entries_of(client: aiohttp.ClientSession, kind: str = "file") -> list[Json]:
    _status, thread = await get(client, "/v1/threads/t")
    return [each for each in thread["entries"] if each["kind"] == kind]


async def download(client: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, bytes, Any]:
    async with client.get(url, headers=headers) as answer:
        return answer.status, await answer.read(), answer.headers


@pytest.mark.usefixtures("bubblewrap")
async def test_files_go_to_the_agent_and_come_back(start: Start) -> None:
    service = await start(http=HTTP)
    key, other = await add_key(service, "ci", "telegram/7"), await add_key(service, "other", "telegram/8")
    command = (
        "cd /mnt/user-data; sha256sum uploads/*; cp uploads/big.bin outputs/copy.bin;"
        " echo '<script>alert(1)</script>' > 'outputs/page \"ü\".html'; cp uploads/p.png outputs/p.png"
    )
    async with client_of(service, key) as client, client_of(service, other) as stranger:
        files = {"big.bin": MEGABYTE, "../../etc/passwd": b"root", "p.png": PIXEL}
        status, sent = await send(client, ask(steps=[bash(command)], text="done"), files)
        assert status == 202, sent
        run = await finished_run(client, sent["id"])
        mine = [each for each in await entries_of(client) if each["by"] == "person"]
        assert [each["file"]["name"] for each in mine] == ["big.bin", "passwd", "p.png"]
        for each, content in zip(mine, files.values(), strict=True):
            assert (await download(client, each["file"]["url"]))[:2] == (200, content)
        named = {each["name"]: each["url"] for each in run["files"]}
        assert {*named} == {"copy.bin", HOSTILE, "p.png"}
        status, body, headers = await download(client, named["copy.bin"])
        assert (status, hashlib.sha256(body).digest()) == (200, hashlib.sha256(MEGABYTE).digest())
        assert headers["Content-Disposition"].startswith('attachment; filename="copy.bin"')
        assert (headers["X-Content-Type-Options"], headers["Accept-Ranges"]) == ("nosniff", "bytes")
        status, body, headers = await download(client, named["copy.bin"], Range="bytes=1000-1999")
        assert (status, body, headers["Content-Range"]) == (206, MEGABYTE[1000:2000], f"bytes 1000-1999/{1 << 20}")
        assert (await download(client, named["copy.bin"], Range="bytes=-10"))[:2] == (206, MEGABYTE[-10:])
        assert (await download(client, named["copy.bin"], Range=f"bytes={1 << 20}-"))[0] == 416
        etag = headers["ETag"]
        assert (await download(client, named["copy.bin"], **{"If-None-Match": etag}))[0] == 304
        status, _body, headers = await download(client, f"{named[HOSTILE]}?inline")
        assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
        plain, encoded = "page ___.html", "page%20%22%C3%BC%22.html"
        assert headers["Content-Disposition"] == f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
        assert "sandbox" in headers["Content-Security-Policy"]
        _status, body, headers = await download(client, f"{named['p.png']}?inline")
        assert (body, headers["Content-Type"], headers["Content-Disposition"][:6]) == (PIXEL, "image/png", "inline")
        for url in (*named.values(), mine[0]["file"]["url"]):
            assert (await get(stranger, url))[0] == 404
        for id in ("..%2f..%2ffawn.db", "r1-99", "r999-0", "u0-0", ".draft-a", "r1-0%00"):
            assert (await get(client, f"/v1/files/{id}"))[0] == 404, id


@pytest.mark.usefixtures("bubblewrap")
async def test_a_file_can_be_downloaded_while_it_is_on_its_way(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with client_of(service, key) as client:
        (service.data / "web").write_bytes(b"")  # no file can be kept in it
        _status, sent = await post(
            client, "/v1/threads/t/messages", {"text": ask(steps=[bash("echo 42 > /mnt/user-data/outputs/n.txt")])}
        )
        run = await finished_run(client, sent["id"])
        await until(lambda: service.rows("SELECT 1 FROM web_files"), what="the row of the file")
        [file] = run["files"]
        assert (await download(client, file["url"]))[:2] == (200, b"42\n")
        (service.data / "web").unlink()
        await service.quiet(60)
        assert [path.read_bytes() for path in web_files(service.data)] == [b"42\n"]
        assert (await download(client, file["url"]))[:2] == (200, b"42\n")


async def test_the_same_form_twice_is_one_message_also_after_a_kill(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    once = {"Idempotency-Key": "once"}
    async with client_of(service, key) as client:
        status, sent = await send(client, None, {"a.txt": b"one"}, **once)
        assert status == 202, sent
    await service.restart()
    async with client_of(service, key) as client:
        status, again = await send(client, None, {"a.txt": b"one"}, **once)
        assert (status, again["id"]) == (202, sent["id"])
        await finished_run(client, sent["id"])
        for files in ({"a.txt": b"other"}, {"b.txt": b"one"}, {"a.txt": b"one", "b.txt": b"one"}):
            status, refused = await send(client, None, files, **once)
            assert (status, refused["code"]) == (422, "key_reused")
        [entry] = await entries_of(client)
        assert (await download(client, entry["file"]["url"]))[1] == b"one"
    assert len([*web_files(service.data)]) == 1
    assert len(service.rows("SELECT 1 FROM runs")) == 1


def web_files(data: Path) -> list[Path]:
    folder = data / "web"
    return [path for path in folder.iterdir() if not path.name.startswith(".draft-")] if folder.exists() else []


BOUNDARY = b"--b\r\n"
PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}
WORST: dict[str, tuple[bytes, dict[str, str], int]] = {
    "no boundary": (PART, {"Content-Type": "multipart/form-data"}, 400),
    "no end": (PART + b"abc", MULTIPART, 400),
    "nothing": (b"", MULTIPART, 400),
    "only an end": (b"--b--\r\n", MULTIPART, 422),
    "another field": (b'--b\r\nContent-Disposition: form-data; name="thread"\r\n\r\nx\r\n--b--\r\n', MULTIPART, 422),
    "text twice": (2 * TEXT_PART + b"--b--\r\n", MULTIPART, 422),
    "text that is no UTF-8": (
        b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\n\xff\r\n--b--\r\n', MULTIPART, 400,
    ),
    "a form in a form": (
        b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--\r\n--b--\r\n", MULTIPART, 422,
    ),
    "too large": (PART + bytes((1 << 20) + 1) + b"\r\n--b--\r\n", MULTIPART, 413),
    "21 files": (21 * (PART + b"x\r\n") + b"--b--\r\n", MULTIPART, 422),
    "a NUL": (b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\na\0\r\n--b--\r\n', MULTIPART, 422),
    "a long header": (b"--b\r\nX: " + b"x" * 100_000 + b"\r\n\r\n--b--\r\n", MULTIPART, 400),
}  # fmt: skip


async def test_the_worst_forms_are_refused_and_store_nothing(start: Start) -> None:
    service = await start(http=HTTP, uploads={"max_mb": 1})
    key = await add_key(service, "ci", "telegram/7")
    wrong: dict[str, object] = {}
    async with client_of(service, key) as client:
        for name, (body, headers, wanted) in WORST.items():
            async with client.post("/v1/threads/t/messages", data=io.BytesIO(body), headers=headers) as answer:
                problem = await answer.json(content_type=None)
                if answer.status != wanted or not problem.get("detail"):
                    wrong[name] = answer.status, problem
        reads = await add_key(service, "reads", "telegram/7", "--scopes", "read")
        async with client_of(service, reads) as reader:
            assert (await send(reader, "x", {"a": b"x"}))[0] == 403
    assert wrong == {}
    assert service.rows("SELECT 1 FROM inbox UNION ALL SELECT 1 FROM web_files") == []
    await until(lambda: not any((service.data / "web").iterdir()), what="no file left")


async def test_a_file_of_the_bot_itself_reaches_the_thread(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with client_of(service, key) as client:
        _status, sent = await post(client, "/v1/threads/t/messages", {"text": ask(text="hello")})
        await finished_run(client, sent["id"])
        await post(client, "/v1/threads/t/commands", {"command": "/export me"})

        def has_file(thread: Json) -> bool:
            return any(each["kind"] == "file" and each["file"]["url"] for each in thread["entries"])

        await wait_for(client, "/v1/threads/t", has_file)
        [entry] = await entries_of(client)
        status, body, _headers = await download(client, entry["file"]["url"])
        assert (status, entry["run"]) == (200, None)
        assert b"hello" in body


async def test_forget_me_over_http_leaves_nothing_and_ends_the_key(start: Start) -> None:
    service = await start(http=HTTP)
    key = await add_key(service, "ci", "telegram/7")
    async with client_of(service, key) as client:
        _status, sent = await send(client, ask(text="aardvark it is"), {"begonia.txt": b"cormorant"})
        await finished_run(client, sent["id"])
        await post(client, "/v1/threads/t/commands", {"command": "/forget me"})
        asked = await wait_for(client, "/v1/threads/t", lambda thread: buttons_of(thread))
        [question] = buttons_of(asked)
        status, refused = await post(client, f"/v1/questions/{question['id']}/answer", {"answer": "Perhaps"})
        assert (status, refused["code"]) == (422, "no_option")
        status, taken = await post(client, f"/v1/questions/{question['id']}/answer", {"answer": question["options"][0]})
        assert (status, taken["run"]) == (202, None)

        def is_done() -> bool:
            return service.rows("SELECT 1 FROM api_keys") == [] and "forget.done" in service.log()

        await until(is_done, what="the end of forgetting")
        assert (await get(client, "/v1/threads"))[0] == 401
    await service.quiet()
    assert await service.stop() == 0
    assert web_files(service.data) == []
    assert found_in(service.data, ("aardvark", "begonia", "cormorant")) == {}


def buttons_of(thread: Json) -> list[Json]:
    return [question for each in thread["entries"] for question in each["questions"]]
