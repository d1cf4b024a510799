"""A rule holds for the deed, not for its spelling: what runs in a real sandbox is never judged as allowed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.permissions.defaults import OUTSIDE_RULES
from agent.permissions.rules import Rule, Subject, ToolUse, Verdict, judge, parse_rules
from sandbox.base import OUTPUTS, WORKSPACE, ShellCommand
from sandbox.bubblewrap.provider import BubblewrapProvider
from sandbox.settings import SandboxSettings
from tests.support.disguises import disguises
from tests.support.engines import need_bubblewrap

PROGRAM = '#!/bin/sh\ncase " $* " in *" {first} "*) : > "$MARK";; esac\n'
DEEDS = {
    "git push": (["git", "push", "origin"], "bash(git push *)"),
    "rm": (["rm", "-rf", "x"], "bash(rm -rf *)"),
    "npm publish": (["npm", "publish"], "bash(npm publish)"),
}


def verdict(rules: tuple[Rule, ...], line: str) -> Verdict:
    return judge(rules, ToolUse("bash", {"command": line}, Subject("command", "shell"), "allow")).verdict


async def find_marked(folder: Path, lines: list[str], program: str, first: str) -> list[str]:
    """Return the lines that ran the program with this argument, in a real sandbox."""
    provider = BubblewrapProvider(SandboxSettings(folder / "skills"))
    (folder / "skills").mkdir()
    try:
        async with provider.acquire("c", folder / "data") as sandbox:
            await sandbox.write(f"{OUTPUTS}/bin/{program}", PROGRAM.format(first=first).encode())
            await sandbox.run(ShellCommand(f"chmod +x {OUTPUTS}/bin/*"))

            async def run(number: int, line: str) -> None:
                place = f"{WORKSPACE}/{number}"
                await sandbox.write(f"{place}/x", b"")
                env = {"PATH": f"{OUTPUTS}/bin:/usr/local/bin:/usr/bin:/bin", "MARK": f"{OUTPUTS}/m-{number}"}
                await sandbox.run(ShellCommand(line, cwd=place, env=env, timeout_seconds=10, is_background=True))

            for start in range(0, len(lines), 8):
                await asyncio.gather(*(run(start + index, line) for index, line in enumerate(lines[start : start + 8])))
            marks = {each.path for each in await sandbox.ls(OUTPUTS, limit=10_000)}
            return [line for number, line in enumerate(lines) if f"{OUTPUTS}/m-{number}" in marks]
    finally:
        await provider.close()


@pytest.mark.parametrize("deed", DEEDS)
async def test_no_disguise_of_a_denied_command_is_allowed(tmp_path: Path, deed: str) -> None:
    need_bubblewrap()
    words, pattern = DEEDS[deed]
    lines = disguises(words)
    ran = await find_marked(tmp_path, lines, words[0], words[1])
    for rules in (parse_rules(deny=[pattern]), parse_rules(ask=[pattern])):
        assert [line for line in ran if verdict(rules, line) == "allow"] == []
    assert len(ran) >= 200, [line for line in lines if line not in ran]
    assert [line for line in lines if verdict(parse_rules(deny=[pattern]), line) == "allow"] == []


HARMLESS = r"""
echo $HOME
ls *.py
ls -la "$HOME/.cache" ~/x
for f in *.csv; do wc -l "$f"; done
for i in $(seq 1 10); do echo "$i"; done
for i in {1..5}; do echo item-$i; done
i=0; while [ $i -lt 5 ]; do i=$((i + 1)); done; echo $i
while read -r line; do echo "$line"; done < names.txt
cat *.txt | sort | uniq -c | sort -rn | head -20
grep -rn "TODO" src --include='*.py'
grep -E '^(a|b)+$' file.txt
find . -name '*.py' | wc -l
find . -type f -name "*.log" -mtime +7 -delete
find . -name '*.py' -exec wc -l {} +
find . -name '*.pyc' -print0 | xargs -0 rm -f
ls | xargs -n 1 basename
awk -F, '{ sum += $2 } END { print sum }' data.csv
awk '{print $(NF-1)}' data.txt
sed -i 's/a/b/g' *.txt
sed -n "${start},${end}p" file
python3 script.py --out "$OUT"
python3 - <<'EOF'␤import os␤print(os.environ["HOME"])␤EOF
python3 -c 'import sys; print(sys.version)'
pip install -q pandas==2.2.0 'openpyxl>=3'
cd /mnt/user-data/workspace && python3 -m pytest -q
npm install && npm run build
npx prettier --check "src/**/*.ts"
node -e 'console.log(`a ${1 + 1}`)'
make -j$(nproc) test
git status
git --no-pager log --oneline -5
git -C "$REPO" status --short
git diff HEAD~1 -- *.py
git commit -m "$MESSAGE"
git commit -am "Push the button" && git log -1
git checkout -b "feature/$NAME"
git add $(git ls-files -m)
git stash push -m wip
git config user.name "A B"
git branch --list 'push*'
echo git push
echo "remember to git push" >> notes.md
mkdir -p out/{a,b,c} && touch out/a/{1..3}.txt
cp -r "$SRC"/* "$DST"/
mv report{,-old}.pdf
tar czf backup-$(date +%F).tar.gz src
du -sh */ | sort -h
test -f a.txt && echo yes || echo no
[ -n "$x" ] && echo set
[[ "$name" == *.csv ]] && echo csv
if [ ! -d out ]; then mkdir out; fi
case "$1" in start) echo s;; *) echo other;; esac
x=$(date +%s); echo $((x / 60))
name="${file%.csv}"; echo "${name##*/}" "${#name}"
files=(*.csv); echo "${#files[@]}" "${files[@]}"
export LANG=C.UTF-8 TZ=UTC; date
LC_ALL=C sort file > sorted.txt 2> errors.txt
timeout 60 python3 train.py --epochs 3 > log.txt 2>&1 &
nohup python3 -m http.server 8000 > server.log 2>&1 &
time python3 bench.py
env FOO=bar python3 app.py
command -v ffmpeg || echo missing
cat > app.py <<'EOF'␤def push(): return f"{1}"␤EOF
cat <<EOF > note.md␤Dear $NAME␤EOF
printf '%s\n' "${lines[@]}" | tee out.txt
diff <(sort a.txt) <(sort b.txt)
jq -r '.items[] | "\(.id) \(.name)"' data.json
ffmpeg -i "$in" -vf scale=640:-1 "${in%.*}.mp4"
pandoc report.md -o report.pdf && ls -l report.pdf
curl -sSfL "https://example.org/data-$YEAR.csv" -o data.csv
curl -s https://example.org/api | jq '.[0]'
wget -q https://example.org/a.zip && unzip -o a.zip -d a
pkill -f http.server; sleep 1; kill %1
set -euo pipefail; shopt -s nullglob; ls
/usr/bin/env python3 run.py --fast
/usr/local/bin/node run.js
bash -c 'cd src && ls *.py'
sqlite3 data.db "select count(*) from t where a = '$x'"
wait; jobs
""".strip().split("\n")


@pytest.mark.parametrize("rules", [parse_rules(deny=["bash(git push *)"], ask=["bash(rm -rf /*)"]), OUTSIDE_RULES])
def test_usual_lines_are_not_asked_about(rules: tuple[Rule, ...]) -> None:
    lines = [line.replace("␤", "\n") for line in HARMLESS]
    assert len(lines) >= 60
    assert [line for line in lines if verdict(rules, line) != "allow"] == []
