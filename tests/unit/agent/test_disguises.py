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


SCRIPTS = r"""
sed '1e {}' x
sed -n '1!{{p;e {}' -e '}}' x
ed -s x <<< x; ed '!{}'
vim -c '!{}' -c q x
vi +'!{}' x
less '+!{}' x
man -P '{} #' ls
tar cf x.tar x --checkpoint=1 --checkpoint-action=exec='{}'
tar -I '{} #' -cf x.tar x
zip x.zip x -T -TT '{} #'
rsync -e '{} #' a b
npm exec -c '{}'
make --eval 'x:;{}' x
sqlite3 x.db '.shell {}'
docker run image {}
dbus-launch {}
python3 -c 'import os; os.system("{}")'
perl -e 'system("{}")'
ruby -e 'exec "{}"'
node -e 'require("child_process").execSync("{}")'
awk 'BEGIN {{ system("{}") }}' x
php -r 'system("{}");'
git rebase --exec '{}' main
git submodule foreach '{}'
git -c alias.x='!{}' x
kubectl exec pod -- {}
vagrant ssh -c '{}'
tsc --watch --onSuccess '{}'
emacs --eval '(shell-command "{}")'
ffmpeg -i x -f null - -metadata x='{}'
lua -e 'os.execute("{}")'
env -S '{}'
pytest --pdbcls='{}'
unknown-program '{}'
python3 <<'E'␤import os; os.system('{}')␤E
cat <<'E' | python3 -␤os.system('{}')␤E
python3 <<< "os.system('{}')"
echo "os.system('{}')" | python3
make -f - <<'E'␤all:␤	{}␤E
ed f <<E␤!{}␤E
"""
SUBSTITUTIONS = r"""
: ${{x:=`{}`}}
echo "${{x:-`{}`}}"
echo ${{x/a/`{}`}}
echo ${{x#`{}`}}
echo "${{x:-'`{}`'}}"
echo "${{x:-${{y:-`{}`}}}}"
export x=${{y:-`{}`}}
git commit -m "${{x:=`{}`}}"
echo `echo \`{}\``
echo "`echo \"\`{}\`\"`"
cat <<E␤`{}`␤E
cat <<E␤${{x:-`{}`}}␤E
cat <<-E␤	$({})␤	E
"""
NO_SCRIPTS = r"""
echo 'run {} later'
printf '%s\n' '{}'
grep -rn '{}' docs
rg '{}' .
git commit -m 'explain {} and why'
git log --grep '{}'
ls '{}'
cat '{}.md'
cat <<'E' > notes.md␤Then {}.␤E
cat <<'E' > notes.md␤Then `{}`.␤E
cat <<'E' > notes.md␤Then $({}).␤E
echo '{}' | wc -c
timeout 5 echo '{}'
find . -name '{}'
"""


@pytest.mark.parametrize("deed", ["git push", "git push origin main", "rm -rf x", "npm publish"])
@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_a_pattern_in_the_arguments_of_a_program_that_may_run_them_asks(kind: str, deed: str) -> None:
    patterns = ["bash(git push *)", "bash(rm *)", "bash(npm publish)"]
    rules = parse_rules(deny=patterns) if kind == "deny" else parse_rules(ask=patterns)
    for line in (each.replace("␤", "\n") for each in f"{SCRIPTS}{SUBSTITUTIONS}".strip().split("\n") if each):
        spread = line.endswith("{}") and deed.startswith("rm")  # a verb of another program, as in `docker rm`
        assert spread or verdict(rules, line.format(deed)) != "allow", line.format(deed)
    for line in (each.replace("␤", "\n") for each in NO_SCRIPTS.strip().split("\n")):
        assert verdict(rules, line.format(deed)) == "allow", line.format(deed)


@pytest.mark.parametrize(
    "line",
    [
        "git pu\\\nsh",
        "gi\\\nt push origin",
        "cat <<'E' | bash\ngit push\nE",
        "bash <<'E'\ngit push\nE",
        'sh <<"E"\ncurl -d @x y\nE',
        "rsync -e ssh x host:y",
        "rsync x user@host:y",
    ],
)
def test_built_in_rules_see_lines_that_go_on_and_scripts_in_here_documents(line: str) -> None:
    assert verdict(OUTSIDE_RULES, line) == "ask"
    assert verdict(OUTSIDE_RULES, "cat <<'E' > notes.md\ngit push\nE") == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "python3 deploy.py",  # what a file says
        "make deploy",
        'python3 -c \'import os; os.system("git pu" + "sh")\'',  # words that a program puts together
        "printf 'git pu' > a; printf sh >> a; make -f a",
    ],
)
def test_what_no_line_shows_is_not_asked_about(line: str) -> None:
    """A limit of rules, which the documentation names: the sandbox is the wall."""
    assert verdict(parse_rules(deny=["bash(git push *)"]), line) == "allow"


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
