"""Rules about tool calls, and the commands that a shell line runs."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.permissions.defaults import OUTSIDE_RULES
from agent.permissions.rules import Grant, Subject, ToolUse, Verdict, grant_for, judge, parse_rule, parse_rules
from agent.permissions.shell import parse_shell_line
from sandbox.base import WORKSPACE
from tests.support.growth import TIMES, grows_in_proportion
from tests.support.slow_lines import MANY_RULES, RULES, SLOW_LINES
from tests.support.slow_lines import shell_call as bash

RUNS_RM = [
    "rm",
    "rm x",
    "rm\tx",
    "git log; rm -rf /",
    "git log&&rm x",
    "git log |& rm x",
    "git log $(rm x)",
    "git log `rm x`",
    "echo hi > $(rm x)",
    "cat <(rm x)",
    "( rm x )",
    "{ rm x; }",
    "for i in 1; do rm $i; done",
    "if true; then rm x; fi",
    "if rm x; then :; fi",
    "while rm x; do :; done",
    "until rm x; do :; done",
    "case x in x) rm x;; esac",
    "select x in 1; do rm x; done",
    'r"m" x',
    "'rm' x",
    "r''m x",
    "\\rm x",
    "$'rm' x",
    "find . -exec rm {} +",
    "r\\m x",
    "/bin/rm x",
    "/usr/bin/../bin/rm x",
    "sudo rm x",
    "sudo -u bob rm x",
    "env A=b rm x",
    "timeout 5 rm x",
    "timeout -s KILL 5 rm x",
    "nohup nice -n 5 rm x &",
    "xargs rm < list",
    "xargs -n 1 rm",
    "ls | xargs -I{} rm {}",
    "command -p rm x",
    "builtin rm x",
    "coproc rm x",
    "time -p rm x",
    "f() { rm x; }; f",
    "function g { rm x; }; g",
    "[[ -f x ]] && rm x",
    "[[ $(rm x) ]]",
    'echo "$(rm x)"',
    "echo $((1+$(rm x)))",
    "echo ${x:-$(rm y)}",
    "x=$(rm y) git status",
    "export X=$(rm y)",
    'cat <<< "$(rm x)"',
    "cat < <(rm x)",
    "a=(1 2); rm x",
    "((x=1)); rm x",
    "bash -c 'rm x'",
    'bash -c "git log; rm x"',
    "sh -c 'bash -c \"rm x\"'",
    "echo x > /dev/null; rm y",
    "git log\\\n; rm x",
    "git log #\nrm x",
    "git status\nrm x",
    "cat <<EOF\n$(rm x)\nEOF",
    "git commit -F - <<'MSG' 2>&1 | rm x\nmsg\nMSG",
    "cat <<A <<'B'; rm x\na\nA\nb\nB",
]
ASKS = [
    "gitk",
    "git log && curl x | sh",
    "$x -rf /",
    "$(echo rm) x",
    "eval rm x",
    "source x",
    ". x",
    "find . -delete",
    "PATH=. git status",
    "export PATH=.",
    "env -i PATH=/x git status",
    "git status > out.txt",
    "git status | tee x",
    "echo a >| f",
    "exec 3<>f",
    "echo '",
    "",
    "alias git=rm; git x",
    "bash script.sh",
    "bash -c 'git status'",
    'bash -c "$x"',
    "ssh host git status",
    "python - <<'EOF'\nprint(1)\nEOF",
    "git log\x00rm",
]
ALLOWS = [
    "git",
    "git status",
    "git log --oneline | head -3",
    "cd src && git diff",
    "A=b git status",
    "git status 2>&1",
    "git status 2>/dev/null",
    "git status &",
    "! git status",
    "echo 'rm -rf x'",
    "echo rm -rf x",
    "git log # rm -rf",
    "cat <<'EOF'\n$(rm x)\nEOF",
    "cat <<EOF | git log\nx\nEOF",
]


def verdict(line: str) -> Verdict:
    return judge(RULES, bash(line)).verdict


@pytest.mark.parametrize("line", RUNS_RM)
def test_a_denied_command_is_found_wherever_it_stands(line: str) -> None:
    assert verdict(line) == "deny"


@pytest.mark.parametrize("line", ASKS)
def test_what_is_not_allowed_or_not_certain_is_asked(line: str) -> None:
    assert verdict(line) == "ask"


@pytest.mark.parametrize("line", ALLOWS)
def test_a_line_of_allowed_commands_runs(line: str) -> None:
    assert verdict(line) == "allow"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("let x=1+2", "allow"),
        ("let 'a[$(rm x)]=1'", "ask"),
        ("printf PATH x", "allow"),
        ("printf -v PATH x", "ask"),
        ("printf -v x y", "allow"),
        ("export NAME=1", "allow"),
        ("export -p", "allow"),
        ("export -n PATHX", "ask"),
        ("unset name", "allow"),
        ("declare -n x=y", "ask"),
        ("git bisect good", "allow"),
        ("git bisect run make", "ask"),
        ('git log "a b"', "allow"),
    ],
)
def test_builtins_and_bisect_ask_only_where_they_may_run_or_set_what_others_depend_on(line: str, expected: str) -> None:
    allowed = ["let *", "printf *", "export *", "unset *", "declare *", "git bisect *", 'git log "a b"']
    assert judge(parse_rules(allow=[f"bash({each})" for each in allowed]), bash(line)).verdict == expected


@given(st.text(max_size=60))
def test_every_text_is_parsed(line: str) -> None:
    assert verdict(line) in ("allow", "ask", "deny")


@pytest.mark.parametrize("line", SLOW_LINES, ids=lambda line: f"{line[:20]!r}-{len(line)}")
def test_no_line_takes_longer_to_judge_than_its_length(line: str) -> None:
    assert judge(MANY_RULES, bash(line)).verdict in ("ask", "deny")
    assert grows_in_proportion(lambda size: judge(MANY_RULES, bash(line[:size])), len(line) // TIMES)


@pytest.mark.parametrize("part", ["a $(b);", "a<b;", "rm x;", "{ a; };"])
def test_a_line_of_too_many_commands_is_uncertain(part: str) -> None:
    assert parse_shell_line(part * 100).certain
    assert not parse_shell_line(part * (8_000 // len(part))).certain


def test_deny_precedes_ask_precedes_allow_however_specific() -> None:
    rules = parse_rules(
        deny=["bash(git push --force*)"], ask=["bash(git push *)"], allow=["bash(git push origin main)", "bash"]
    )
    assert judge(rules, bash("git push origin main")).verdict == "ask"
    assert judge(rules, bash("git push --force origin")).verdict == "deny"
    assert judge(rules, bash("make test")).verdict == "allow"
    assert judge(rules, bash("$command")).verdict == "ask"  # it may be a push


def test_inside_the_sandbox_only_what_a_rule_names_is_asked() -> None:
    def use(line: str) -> ToolUse:
        return ToolUse("bash", {"command": line}, Subject("command", "shell"), "allow")

    rules = parse_rules(ask=["bash(git push *)"])
    assert judge((), use("$x > y")).verdict == "allow"
    assert judge(rules, use("make test > log; python - <<'E'\nprint(1)\nE")).verdict == "allow"
    assert judge(rules, use("make test && git push")).verdict == "ask"
    assert judge(rules, use("eval $x")).verdict == "ask"


@pytest.mark.parametrize(
    "line", ["./deploy.sh x", "env ./deploy.sh x", "timeout 5 ./deploy.sh x", "find . -exec ./deploy.sh x \\;"]
)
def test_a_file_that_is_run_asks_beside_rules_about_commands_unless_its_path_is_allowed(line: str) -> None:
    def verdict(**rules: list[str]) -> Verdict:
        use = ToolUse("bash", {"command": line}, Subject("command", "shell"), "allow")
        return judge((*parse_rules(**rules), *OUTSIDE_RULES), use).verdict

    assert verdict() == "allow"
    assert verdict(deny=["bash(git push *)"]) == "ask"
    assert verdict(deny=["bash(git push *)"], allow=["bash(deploy.sh *)"]) == "ask"
    assert verdict(deny=["bash(git push *)"], allow=["bash(./deploy.sh *)", "bash"]) == "allow"
    assert verdict(deny=["bash(deploy.sh *)"]) == "deny"


def test_a_rule_that_allows_a_program_does_not_allow_a_file_of_that_name() -> None:
    rules = parse_rules(allow=["bash(git status *)"])
    assert judge(rules, bash("git status")).verdict == "allow"
    assert judge(rules, bash("/usr/bin/git status")).verdict == "allow"
    assert judge(rules, bash("./git status")).verdict == "ask"
    assert judge(rules, bash("/usr/bin/../../tmp/git status")).verdict == "ask"


def test_paths_are_compared_as_the_sandbox_resolves_them() -> None:
    rules = parse_rules(deny=["write_file(/mnt/user-data/uploads/*)"])

    def use(path: str) -> ToolUse:
        return ToolUse("write_file", {"path": path, "content": "x"}, Subject("path", "path"), "allow")

    assert judge(rules, use("/mnt/user-data/uploads/a")).verdict == "deny"
    assert judge(rules, use("../uploads/a")).verdict == "deny"
    assert judge(rules, use("/mnt/user-data/outputs/../uploads/./a")).verdict == "deny"
    assert judge(rules, use("uploads/a")).verdict == "allow"


@pytest.mark.parametrize(
    ("rule", "tool", "kind"),
    [
        ("read_file(/mnt/user-data/workspace/a/*)", "grep", "folder"),
        ("read_file(/mnt/user-data/workspace/a/*)", "view_image", "path"),
        ("write_file(/mnt/user-data/workspace/a/*)", "str_replace", "path"),
    ],
)
def test_a_rule_about_a_file_holds_for_whatever_does_the_same_to_it(
    rule: str, tool: str, kind: Literal["path", "folder"]
) -> None:
    def decide(path: str, **lists: list[str]) -> Verdict:
        return judge(parse_rules(**lists), ToolUse(tool, {"path": path}, Subject("path", kind), "allow")).verdict

    secret, other = (f"{WORKSPACE}/{name}" + ("" if kind == "folder" else "/x.txt") for name in "ab")
    assert [decide(each, deny=[rule]) for each in (secret, other)] == ["deny", "allow"]
    assert [decide(each, ask=[rule]) for each in (secret, other)] == ["ask", "allow"]
    assert decide(secret, allow=[rule], ask=[tool]) == "ask", "what it allows is its own tool"
    assert decide(secret, deny=[rule.partition("(")[0]]) == "allow", "without a path it is about the tool"


def test_a_tool_without_a_subject_is_denied_by_any_argument_and_allowed_as_a_whole() -> None:
    use = ToolUse("mcp__github__create_issue", {"repo": "secret/x", "title": "t"})
    assert judge((), use).verdict == "ask"
    assert judge(parse_rules(allow=["mcp__github__*"]), use).verdict == "allow"
    assert judge(parse_rules(allow=["mcp__github__*(public/*)"]), use).verdict == "ask"
    assert judge(parse_rules(deny=["mcp__*(secret/*)"], allow=["mcp__github__*"]), use).verdict == "deny"


def test_a_grant_is_for_exactly_one_subject_or_for_a_tool_without_one() -> None:
    assert grant_for(bash("deploy *")) == Grant("bash", "deploy *")
    assert grant_for(ToolUse("mcp__a__b", {"x": 1})) == Grant("mcp__a__b")


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("git push", "ask"),
        ("cd repo && git -C sub push origin main", "ask"),
        ("source .venv/bin/activate && pytest -q", "allow"),  # uncertain, but nothing in it looks like those commands
        ("git stash push", "allow"),
        ('eval "git -C x push origin"', "ask"),
        ('eval "git push origin"', "ask"),
        ("curl -s https://example.org", "allow"),
        ("curl -sX POST https://example.org", "ask"),
        ("curl -XPOST https://example.org", "ask"),
        ("curl --request DELETE https://example.org", "ask"),
        ("curl --reques DELETE https://example.org", "ask"),
        ("curl -d@f https://example.org", "ask"),
        ("curl -sd x=1 https://example.org", "ask"),
        ("curl https://example.org --json '{}'", "ask"),
        ("curl -F a=@f https://example.org", "ask"),
        ("curl -sSLT f https://example.org", "ask"),
        ("curl --data-urlencode x https://example.org", "ask"),
        ("curl $OPTIONS https://example.org", "ask"),
        ("curl -K f", "ask"),
        ("curl --config f", "ask"),
        ("git -c alias.p=push p", "ask"),
        ("curl -fsSLo /tmp/d -H 'X-d: 1' \"https://example.org/$ID?a=b-d\" -w '%{http_code}'", "allow"),
        ("curl -I --max-time 5 https://example.org/-d", "allow"),
        ("curl --compressed -u a:b -A -d --retry 3 https://example.org | jq .", "allow"),
        ("wget --post-data x=1 https://example.org", "ask"),
        ("wget --post-file=f https://example.org", "ask"),
        ("wget -q --metho=PUT --body-f=f https://example.org", "ask"),
        ("wget -qO- https://example.org", "allow"),
        ("wget -q -e post_data=x https://example.org", "ask"),
        ("git --no-pager log | head", "allow"),
        ("git -P push", "ask"),
        ("curl -X DELETE https://example.org/1", "ask"),
        ("curl -d @x https://example.org", "ask"),
        ("sudo ssh host reboot", "ask"),
        ("gh pr create", "ask"),
        ("pip install ghapi", "allow"),
    ],
)
def test_the_built_in_rules_ask_before_commands_that_act_outside(line: str, verdict: Verdict) -> None:
    use = ToolUse("bash", {"command": line}, Subject("command", "shell"), "allow")
    assert judge(OUTSIDE_RULES, use).verdict == verdict


def test_rules_of_the_configuration_replace_built_in_ones_where_they_match() -> None:
    def verdict(line: str, **rules: list[str]) -> Verdict:
        use = ToolUse("bash", {"command": line}, Subject("command", "shell"), "allow")
        return judge((*parse_rules(**rules), *OUTSIDE_RULES), use).verdict

    assert verdict("git push origin dev", allow=["bash(git push origin dev)"]) == "allow"
    assert verdict("git push origin main", allow=["bash(git push origin dev)"]) == "ask"
    assert verdict("git push origin dev; gh pr create", allow=["bash(git push *)"]) == "ask"
    assert verdict("git push origin dev", allow=["bash"]) == "allow"
    assert verdict("gh pr create", ask=["bash(make deploy)"]) == "ask"
    assert verdict("gh pr create", deny=["bash(gh *)"]) == "deny"


def test_the_forms_that_people_know_are_read() -> None:
    assert parse_rule("ask", "Bash(git push:*)") == parse_rule("ask", "Bash(git push *)")
    assert parse_rule("deny", "bash(*)").pattern == ""
    assert judge(parse_rules(deny=["Bash(git *)"]), bash("git log")).verdict == "deny"
    with pytest.raises(ValueError, match="is not a rule"):
        parse_rule("ask", "bash(git")


@pytest.mark.parametrize("index", ["$(git push)", "`git push`", "b$c`git push`", "b[$(git push)", "$$(git push)"])
def test_a_command_in_an_index_is_not_certain(index: str) -> None:
    """`test -v` and arithmetic run what stands in an index, also where it is quoted."""
    rules = parse_rules(deny=["bash(git push *)"])
    use = ToolUse("bash", {"command": f"test -v 'a[{index}]'"}, Subject("command", "shell"), "allow")
    assert judge(rules, use).verdict != "allow"
