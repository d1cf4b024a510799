"""The files of the page: what others wrote is as listed, and nothing in them could run what a stranger wrote."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.api.page.endpoints import POLICY, STATIC, VERSIONED, read_assets
from bot.api.page.words import WORDS

VENDOR = STATIC / "vendor"
MOST_BYTES = 150_000  # of the whole page, as it is sent
OWN = sorted(path for path in STATIC.glob("*") if path.suffix in (".js", ".html", ".css"))
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser"
    r"|createContextualFragment"
    r"|javascript:|\bon\w+=[\"']|setHTML|style=\""
)


def vendored() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((VENDOR / "vendored.json").read_text())
    return found


def used_words() -> Iterator[str]:
    """Yield the names of sentences, as the modules write them; `plan_${…}` stands for all that begin so."""
    for path in OWN:
        text = path.read_text()
        yield from re.findall(r"\bt\(\"([a-z_0-9]+)\"", text)
        yield from re.findall(r"\bt\(`([a-z_0-9]+)\$\{", text)
        yield from re.findall(r"\"([a-z_0-9]+)\"", text)


def test_what_others_wrote_is_listed_with_version_licence_and_hash() -> None:
    listed = {file: digest for package in vendored() for file, digest in package["files"].items()}
    present = {path.relative_to(VENDOR).as_posix(): path for path in VENDOR.rglob("*.js")}
    assert {*listed} == {*present}
    for name, path in present.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == listed[name], name
    for package in vendored():
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
        assert package["licence"]
        assert len((VENDOR / package["text"]).read_text()) > 1000
        head = (VENDOR / next(iter(package["files"]))).read_text()[:1000]
        assert package["version"] in head, package["package"]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_module_of_ours_makes_markup_of_text(path: Path) -> None:
    assert not SINKS.findall(path.read_text())


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", re.sub(r"(?m)^\s*//.*$", "", path.read_text()))
    assert {*addresses} <= {"http://www.w3.org"}  # the name of SVG
    for module in re.findall(r"(?:from|import|src=|href=)\s*\(?[\"`](/[^\"`$]+)", path.read_text()):
        assert (STATIC / module.removeprefix("/page/static/")).exists(), module


def test_the_whole_page_is_small() -> None:
    assets = read_assets()
    assert sum(len(asset.packed) for name, asset in assets.items() if not VERSIONED.match(name)) <= MOST_BYTES
    assert {"index.html", "app.js", "style.css", "vendor/marked.js"} <= {*assets}


def test_files_name_each_other_with_the_version_of_all_so_that_a_browser_asks_once() -> None:
    assets = read_assets()
    [version] = {name.partition("/")[0] for name in assets if VERSIONED.match(name)}
    for name in ("index.html", "app.js"):
        named = re.findall(rb"/page/static/([\w./]+\.\w+)", assets[name].content)
        assert named
        for each in named:
            assert each.startswith(f"{version}/".encode())
            assert each.decode() in assets, each


def test_the_policy_lets_only_own_scripts_run_and_no_markup_be_made_unseen() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert (rules["require-trusted-types-for"], rules["trusted-types"]) == ("'script'", "dompurify")
    assert (rules["frame-ancestors"], rules["base-uri"]) == ("'none'", "'none'")
    assert "unsafe" not in POLICY


def test_each_sentence_of_the_page_is_used_and_there() -> None:
    written = {*used_words()}
    begun = {name for name in written if name.endswith("_")}
    assert not [
        name
        for name in WORDS
        if name.removesuffix("_one") not in written and not any(name.startswith(each) for each in begun)
    ]
    assert not [name for name in begun if not any(each.startswith(name) for each in WORDS)]
    asked = {name for path in OWN for name in re.findall(r"\bt\(\"([a-z_0-9]+)\"", path.read_text())}
    assert asked <= {*WORDS}


# What only a program can get wrong: the page does not send it.
OF_PROGRAMS = {
    *("bad_body", "bad_cursor", "bad_idempotency_key", "bad_json", "bad_query", "bad_signature"),
    *("bad_thread", "bad_thumb", "broken_body", "busy", "foreign_user"),
    *("exists", "expectation_failed", "method_not_allowed", "no_key", "not_json", "too_long"),
}
ROOT = Path(__file__).parents[3]
LEFT_OUT = ("langgraph", "hooks")  # of protocols that the page does not speak


def raised_codes() -> set[str]:
    """Return the codes of the refusals that the API and the listener may answer with."""
    found: set[str] = set()
    for path in [*(ROOT / "bot/api").rglob("*.py"), *(ROOT / "bot/http").rglob("*.py")]:
        if not {*LEFT_OUT} & {*path.parts}:
            text = path.read_text()
            found |= {*re.findall(r"(?:HttpProblem\(\s*|\*)\(?\d{3}, \"([a-z_]+)\"", text)}
            found |= {*re.findall(r"^\s+\d{3}: \(\"([a-z_]+)\"", text, re.MULTILINE)}
    return found


def test_each_refusal_that_a_person_may_meet_is_a_sentence_of_the_page() -> None:
    said = {name.removeprefix("problem_") for name in WORDS if name.startswith("problem_")}
    codes = raised_codes()
    assert {"no_access", "not_found", "rate_limit", "foreign_host"} <= codes
    assert codes - OF_PROGRAMS == said


def test_one_of_a_thing_has_a_sentence_of_its_own() -> None:
    """Like "{n} tokens": `t` takes "tokens_one" for 1. "days" and "steps" are always several."""
    several = {"steps_done", "chart_days"}
    plural = {name for name, text in WORDS.items() if re.search(r"\{n\} (\w+s|wait)\b|\{n\} \w+ \w*s\b", text)}
    without = {name for name in plural - several if not name.endswith("_one") and f"{name}_one" not in WORDS}
    assert without == set()


def test_the_entry_names_each_module_that_a_first_load_needs() -> None:
    assets = read_assets()
    entry = assets["index.html"].content.decode()
    named = {*re.findall(r'<link rel="modulepreload" href="/page/static/\w+/([\w./]+)">', entry)}
    for name in {*named, "app.js"}:
        imported = re.findall(r'^import\b.*"/page/static/\w+/([\w./]+)"', assets[name].content.decode(), re.MULTILINE)
        assert {*imported} <= named, name
    assert not any("vendor" in name for name in named)  # nobody waits for the libraries to write
