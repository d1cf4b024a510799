"""`curl` and `wget` are judged by what they do: what a real one sent, read or wrote is never judged as allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.permissions.rules import Rule, Subject, ToolUse, Verdict, judge, parse_rules
from sandbox.base import OUTPUTS, WORKSPACE, Sandbox, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.settings import SandboxSettings
from tests.support.disguises import disguises
from tests.support.engines import need_bubblewrap, need_transfer_programs

SITE = "http://127.0.0.1:8099"
SENT = f"{SITE}/sent-NUMBER"  # leaves a mark if something is sent to it
READ = f"{SITE}/read-NUMBER"  # leaves a mark if it is asked at all
FILE = f"{OUTPUTS}/m-NUMBER"  # is the mark
SERVER = r"""
import http.server, re, sys

class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # which answers `Expect: 100-continue`: curl waits a second for that, at each upload

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = re.search(r"(sent|read)-(\d+)", self.path)
        if found and (found[1] == "read" or self.command not in ("GET", "HEAD")):
            open(f"/mnt/user-data/outputs/m-{found[2]}", "w").close()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.send_header("Set-Cookie", "a=b")
        self.send_header("ETag", '"a"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"ok")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 8099), Site).serve_forever()
"""
DEEDS = {
    "curl -T": (["curl", "-T", "x", SENT], "bash(curl -T *)"),
    "curl -o": (["curl", "-o", FILE, "file:///etc/passwd"], f"bash(curl -o {OUTPUTS}/*)"),
    "wget --post-data": (["wget", "--post-data=x", SENT], "bash(wget --post-data *)"),
}
SPELLINGS: Mapping[str, str] = {
    "bash(curl -d *)": r"""
curl -dx SENT
curl -sdx SENT
curl SENT -d @x
curl -4gksSLdx SENT
curl --data x SENT
curl --data-raw x SENT
curl --data-binary @x SENT
curl --data-urlencode a=b SENT
curl --data-ascii x SENT
curl --data-asc x SENT
curl --json '{}' SENT
curl --jso '{}' SENT
curl --url SENT --data x
curl -s SITE/ --next -d x SENT
curl -s SITE/ -: -d x SENT
curl -A -s -d x SENT
curl -H 'a: -s' --retry 0 -d x -- SENT
printf 'url=SENT\ndata=x\n' > c; curl -K c
printf 'data=x\n' > c; curl -Kc SENT
printf 'data=x\n' > c; curl -sK c SENT
printf 'data=x\n' > c; curl --config c SENT
printf 'data=x\n' > c; curl --conf c SENT
printf 'data=x\n' | curl -K - SENT
curl -K- SENT <<< data=x
curl -K <(echo data=x) SENT
echo data=x > .curlrc; CURL_HOME=. curl SENT
echo data=x > .curlrc; HOME=$PWD curl SENT
echo data=x > .curlrc; export CURL_HOME=.; curl SENT
echo data=x > .curlrc; env CURL_HOME=. curl SENT
echo data=x > ~/.curlrc; curl SENT; rm ~/.curlrc
a='a -d x'; curl -A $a SENT
d=-d; curl -s $d x SENT
d=-dx; curl -s "$d" SENT
o=data; curl --$o x SENT
o=data; curl "--$o" x SENT
o=d; curl -s"$o" x SENT
curl {-d,x,SENT}
u='SENT -d x'; curl $u
u='8099/sent-NUMBER -d x'; curl http://127.0.0.1:$u
curl SITE/sent-$(echo NUMBER -d x)
curl -s SITE/sent-`echo NUMBER --data x`
touch -- -dx; curl SENT -*
timeout 5 curl -sdx SENT
echo -d x SENT | xargs curl
echo x | curl -d @- SENT
""",
    "bash(curl -X *)": r"""
curl -XPOST SENT
curl -sXPOST SENT
curl -X POST SENT
curl -sSfX PUT SENT
curl --request POST SENT
curl --request DELETE SENT
curl -X"$(echo POST)" SENT
m=POST; curl -X$m SENT
""",
    f"bash(curl -X POST {SITE}/*)": r"""
curl -sXPOST SENT
curl -X POST -H 'a: b' SENT
curl SENT --request POST
curl -s SITE -X POST SENT
""",
    "bash(curl -F *)": r"""
curl -F a=b SENT
curl -sFa=@x SENT
curl --form a=b SENT
curl --form-string a=b SENT
curl --form-s a=b SENT
""",
    "bash(curl -T *)": r"""
curl -Tx SENT
curl -sTx SENT
curl --upload-file x SENT
curl --upload-f x SENT
curl -T - SENT < x
curl -T '{x,x}' SENT
curl -T. SENT < x
""",
    f"bash(curl -o {OUTPUTS}/*)": r"""
curl -oFILE SITE
curl -soFILE SITE
curl --output FILE SITE
curl --outp FILE SITE
curl -o /mnt//user-data/workspace/../outputs/m-NUMBER SITE
curl -o ../../outputs/m-NUMBER SITE
cd ../../outputs; curl -o m-NUMBER SITE
curl --output-dir ../../outputs -o m-NUMBER SITE
curl --output-dir /mnt/user-data/outputs -o m-NUMBER SITE
cd ../../outputs; curl -O SITE/m-NUMBER
cd ../../outputs; curl -sJO SITE/m-NUMBER
cd ../../outputs; curl --remote-name-all SITE/m-NUMBER
curl --output-dir /mnt/user-data/outputs -O SITE/m-NUMBER
curl -o '/mnt/user-data/outputs/#1' 'SITE/{m-NUMBER}'
curl -o '/mnt/user-data/#1/m-NUMBER' 'SITE/{outputs}'
curl -DFILE SITE
curl -s --dump-header FILE SITE
curl -c FILE SITE
curl --cookie-jar FILE SITE
curl --trace FILE SITE
curl --trace-ascii FILE SITE
curl -v --stderr FILE SITE
curl --libcurl FILE SITE
curl --etag-save FILE SITE
p=/mnt/user-data/outputs; curl -o "$p/m-NUMBER" SITE
p=/mnt/user-data/outputs; curl -o $p/m-NUMBER SITE
echo output=FILE > c; curl -K c SITE
""",
    f"bash(curl {SITE}/*)": r"""
curl READ
curl -s READ
curl -G READ
curl -s SITE READ
curl --url READ
curl 'http://127.0.0.{1,1}:8099/read-NUMBER'
curl 'http://127.0.0.[1-1]:8099/read-NUMBER'
curl HTTP://127.0.0.1:8099/read-NUMBER
curl 127.0.0.1:8099/read-NUMBER
curl a@127.0.0.1:8099/read-NUMBER
curl -s http://a:b@127.0.0.1:8099/read-NUMBER
curl -s http:/127.0.0.1:8099/read-NUMBER
curl 'http://127.0.0.%31:8099/read-NUMBER'
echo url=READ | curl -K -
""",
    "bash(wget --post-*)": r"""
wget --post-data x SENT
wget --post-d=x SENT
wget --post-file=x SENT
wget --post-f x SENT
wget -q SENT --post-data=x
wget -e post_data=x SENT
wget -qe post_data=x SENT
wget -qepost_data=x SENT
wget --execute=post-data=x SENT
wget --exec 'post_data = x' SENT
echo post_data=x > c; WGETRC=c wget SENT
echo post_data=x > c; export WGETRC=c; wget SENT
echo post_data=x > c; wget --config=c SENT
echo post_data=x > c; wget --conf c SENT
echo post_data=x > ~/.wgetrc; wget SENT; rm ~/.wgetrc
o=post-data; wget --$o=x SENT
o=post-data; wget "--$o=x" SENT
u='SENT --post-data=x'; wget $u
""",
    "bash(wget --method *)": r"""
wget --method=PUT SENT
wget --method PUT --body-data=x SENT
wget --metho=POST --body-file x SENT
wget -q -e method=PUT SENT
""",
    f"bash(wget -O {OUTPUTS}/*)": r"""
wget -OFILE SITE
wget -qOFILE SITE
wget --output-document=FILE SITE
wget --output-d FILE SITE
wget -P /mnt/user-data/outputs SITE/m-NUMBER
wget -nHP../../outputs SITE/m-NUMBER
wget --directory-prefix=/mnt/user-data/outputs SITE/m-NUMBER
cd ../../outputs; wget -q SITE/m-NUMBER
wget -o FILE SITE
wget -qaFILE SITE
wget --output-file=FILE SITE
wget --save-cookies=FILE --keep-session-cookies SITE
wget -e output_document=FILE SITE
echo SITE/m-NUMBER > l; cd ../../outputs; wget -i ../workspace/NUMBER/l
""",
    f"bash(wget {SITE}/*)": r"""
wget -qO- READ
wget -q SITE READ
wget 127.0.0.1:8099/read-NUMBER
echo READ > l; wget -i l
echo READ > l; wget -qil
echo READ > l; wget --input-file=l
echo READ | wget -qi -
""",
}


def fill(line: str) -> str:
    for name, value in (("SENT", SENT), ("READ", READ), ("FILE", FILE), ("SITE", SITE)):
        line = line.replace(name, value)
    return line


def verdict(rules: tuple[Rule, ...], line: str) -> Verdict:
    return judge(rules, ToolUse("bash", {"command": line}, Subject("command", "shell"), "allow")).verdict


async def find_done(folder: Path, lines: list[str]) -> list[str]:
    """Return the lines that did what leaves a mark, in a real sandbox with a site of its own."""
    provider = BubblewrapProvider(SandboxSettings(folder / "skills"))
    (folder / "skills").mkdir()
    try:
        async with provider.acquire("c", folder / "data") as sandbox:
            await sandbox.write(f"{WORKSPACE}/site.py", SERVER.encode())
            await sandbox.run(ShellCommand("nohup python3 site.py > site.log 2>&1 &"))
            await sandbox.run(ShellCommand(f"curl -s --retry 50 --retry-connrefused --retry-delay 1 {SITE}"))
            places = asyncio.Semaphore(8)
            await asyncio.gather(*(run_line(sandbox, places, *numbered) for numbered in enumerate(lines)))
            marks = {each.path for each in await sandbox.ls(OUTPUTS, limit=10_000)}
            return [line for number, line in enumerate(lines) if f"{OUTPUTS}/m-{number}" in marks]
    finally:
        await provider.close()


async def run_line(sandbox: Sandbox, places: asyncio.Semaphore, number: int, line: str) -> None:
    place = f"{WORKSPACE}/{number}"
    async with places:
        await sandbox.write(f"{place}/x", b"x")
        text = line.replace("NUMBER", str(number))
        await sandbox.run(ShellCommand(text, cwd=place, timeout_seconds=10, is_background=True))


@pytest.mark.parametrize("deed", DEEDS)
async def test_no_disguise_of_a_denied_transfer_is_allowed(tmp_path: Path, deed: str) -> None:
    need_bubblewrap()
    need_transfer_programs()
    words, pattern = DEEDS[deed]
    lines = disguises(words)
    done = await find_done(tmp_path, lines)
    for rules in (parse_rules(deny=[pattern]), parse_rules(ask=[pattern])):
        assert [line for line in done if verdict(rules, line) == "allow"] == []
    assert len(done) >= 200, [line for line in lines if line not in done]
    assert [line for line in lines if verdict(parse_rules(deny=[pattern]), line) == "allow"] == []


async def test_no_spelling_of_a_denied_transfer_is_allowed(tmp_path: Path) -> None:
    need_bubblewrap()
    need_transfer_programs()
    pairs = [(rule, fill(line)) for rule, text in SPELLINGS.items() for line in text.strip().split("\n")]
    done = await find_done(tmp_path, [line for _rule, line in pairs])
    assert [
        pair for pair in pairs if pair[1] in done and verdict(parse_rules(deny=[pair[0]]), pair[1]) == "allow"
    ] == []
    assert len(done) >= 0.9 * len(pairs), [line for _rule, line in pairs if line not in done]


HARMLESS = r"""
curl -s https://example.org/a?b=c
curl -fsSLO https://example.org/a.tar.gz
curl -sS -H "Authorization: Bearer $TOKEN" "https://example.org/$ID" -o out.json
curl -sw '%{http_code}' -o /dev/null https://example.org
curl --compressed --max-time 5 -A "a b" -e x -b c=d -u "$USER:$PASSWORD" https://example.org
curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs
curl --no-progress-meter --fail-with-body -L https://example.org/x[1-3].csv -o 'x#1.csv'
wget -qO- https://example.org
wget -nc -nv -P data https://example.org/a?b=c
wget --no-check-certificate -c -t 3 -T 10 -U x https://example.org/a.zip -O a.zip
wget -e robots=off -r -l 1 -np -A pdf https://example.org/
wget -i urls.txt
""".strip().split("\n")


def test_usual_transfers_are_not_asked_about() -> None:
    sending = ("curl -X *", "curl -d *", "curl -F *", "curl -T *", "wget --post-*", "wget --method *")
    rules = parse_rules(deny=[f"bash({each})" for each in (*sending, "git push *")])
    assert [line for line in HARMLESS if verdict(rules, line) != "allow"] == []
