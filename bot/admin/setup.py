"""`fawn setup CHANNEL`: take the secrets, try them, write .env, and let the first person in as an operator."""

from __future__ import annotations

import asyncio
import getpass
import importlib
import importlib.util
import json
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agent.setting import Secret
from bot.admin.doctor import check_channel, render_finding
from bot.admin.first_files import set_variables
from bot.admin.operations import Answer
from bot.admin.service_client import NotRunning, await_service, call_service
from bot.admin.terminal import LOOK_SECONDS, QuestionVoid, ask, confirm, confirm_while, say
from bot.base.exit_codes import GAVE_WAY
from bot.base.log import Redactor
from bot.config.document import ConfigFault
from bot.config.loader import ConfigError, channel_modules, environment_names, known_variables, load_config
from bot.config.schema import ChannelConfig, Config
from bot.status.qr_code import draw_code
from catalogue import N_, _, list_items, localized
from channels.base import ChannelError, Health
from channels.shared.lifecycle import Scan, SetupGuide, SignIn

STOP_SECONDS = 30.0  # until a service that does not end is killed
LOG_NAME, SHOWN_LOG_LINES = "setup.log", 5
LET_IN = N_("Let {name} in? [Y/n] ")
LET_IN_UNPROVED = N_("Let {name} in? They did not send the word above. [y/N] ")
MAKE_OPERATOR = N_("Is {name} to be an operator, who decides about others? [y/N] ")
LEFT_WITHOUT_OPERATOR = N_(
    "Nobody is an operator yet, but the tokens are saved: `fawn setup {channel}` goes on from here."
)
LEFT_EARLY = N_("Nothing was written: `fawn setup {channel}` begins again.")
_LONG_LINK = re.compile(r"(https://[^\s&]{1,60})\S{100,}")
DEFAULT_CONTACT = N_("Write to the bot in a direct chat: {word}")


class Connected(NamedTuple):
    """A channel that was set up: its settings, the sentence of its probe, and what the service is to keep for it."""

    entry: ChannelConfig
    account: str
    kept: Mapping[str, str]


class SetupStopped(Exception):
    """The set-up cannot continue; the text says why and what to do."""


class SetupLeft(Exception):
    """A person left the set-up before its end; the text says what is done and how to go on."""


class AccountRefused(SetupStopped):
    """These secrets do not work; others may."""


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """The words of the command line. `wait` waits for the first person also without a terminal."""

    channel: str
    file: Path | None
    token_stdin: bool
    wait: bool

    @property
    def interactive(self) -> bool:
        return not self.token_stdin and sys.stdin.isatty()

    @property
    def env_file(self) -> Path:
        return (Path.cwd() / (self.file or "config.yaml")).parent / ".env"


def set_up_channel(options: SetupOptions, config: Config) -> None:
    """Set one channel up. Raises SetupStopped, SetupLeft, ConfigError and OSError."""
    try:
        channel = connect_account(options)
    except (EOFError, KeyboardInterrupt):
        raise SetupLeft(_(LEFT_EARLY, channel=options.channel)) from None
    values = variables_of(channel.entry)
    set_variables(options.env_file, values)
    say(_("Wrote {names} to {file}.", names=list_items(values), file=options.env_file))
    welcome_first_person(options, channel, config.data_dir)


def welcome_first_person(options: SetupOptions, channel: Connected, data_dir: Path) -> None:
    """Let the first person in, whose tokens are saved, and serve them until Ctrl-C. Raises SetupStopped, SetupLeft."""
    entry, account, kept = channel
    _check_saved(options, entry)
    if not (options.interactive or options.wait) or entry.access.open or not entry.access.pairing:
        if kept:
            with _running_service(options, data_dir, kept):
                pass
        say(_("Start Fawn with `fawn run`. `fawn pair list` shows who waits for access."))
        return
    word = "".join(secrets.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _letter in range(8))
    try:
        with _running_service(options, data_dir, kept) as process:
            say("", _find_guide(options.channel).contact(entry.settings, account, word))
            say(_("Waiting for you there … (Ctrl-C leaves)"))
            name = _let_first_person_in(options, data_dir, word, process)
            say(_("{name} is in, and is an operator: strangers who write to the bot are announced to them.", name=name))
            if options.interactive and process:
                say(_("Fawn runs here until you press Ctrl-C. Later, start it with `fawn run`."))
                with suppress(KeyboardInterrupt):
                    process.wait()
                print()
    except (EOFError, KeyboardInterrupt):
        raise SetupLeft(_(LEFT_WITHOUT_OPERATOR, channel=options.channel)) from None


def _find_guide(channel: str) -> SetupGuide:
    name = f"channels.{channel}.setup"
    if importlib.util.find_spec(name) is None:
        return SetupGuide(lambda settings, account, word: _(DEFAULT_CONTACT, word=word))
    guide: SetupGuide = importlib.import_module(name).GUIDE
    return guide


# ------------------------------------------------------------ the account


def connect_account(options: SetupOptions, given: Mapping[str, str] | None = None) -> Connected:
    """Take the secrets until the platform accepts them, and return the configured channel.

    `given` are variables that are known before. Raises SetupStopped and ConfigError.
    """
    guide, module = _find_guide(options.channel), channel_modules()[options.channel]
    variables = environment_names(module)
    order = [*guide.steps, *(name for name in variables if name not in guide.steps)]
    known = known_variables(options.file) | dict(given or {})
    can_link = known.get("TERM", "dumb") != "dumb"
    values = {variables[name]: known.get(variables[name], "") for name in order}
    if options.token_stdin:
        values = _read_stdin(list(values))
    missing = [name for name, value in values.items() if not value]
    if missing and not options.interactive:
        raise SetupStopped(
            _("{name} is not set → run it in a terminal, set the variable, or use --token-stdin", name=missing[0])
        )
    asked = bool(missing) or (options.interactive and _asks_anew(guide, values, known=bool(given)))
    kept: dict[str, str] = {}
    if asked:
        values = dict.fromkeys(values, "")
    while True:
        if asked:
            typed: dict[str, str] = {}
            for name in order:
                if scan := guide.scans.get(name):
                    typed[name] = _scan_code(scan, _unscanned(options, module, guide), kept)
                    continue
                typed[name] = _ask_value(module, name, guide, values[variables[name]], typed, can_link=can_link)
            values = {variables[name]: typed[name] for name in order}
        try:
            return Connected(*_try_account(options, values), kept)
        except AccountRefused as error:
            if not options.interactive:
                raise
            say(error, _("Try again; Enter keeps the value from before."), "")
            asked = True


def _asks_anew(guide: SetupGuide, values: Mapping[str, str], *, known: bool) -> bool:
    """Return whether to take the secrets again. A code is always scanned: a login that is over looks like any other."""
    if guide.scans:
        return True
    return not known and not confirm(_("Use the {names} you have? [Y/n] ", names=list_items(values)))


class _TerminalScreen:
    """`channels.shared.lifecycle.ScanScreen` at the terminal."""

    def show(self, text: str, code: str = "") -> None:
        if code:
            print(draw_code(code), flush=True)
        say(text)

    async def ask(self, text: str) -> str:
        """Ask. Nothing else runs here meanwhile, and Ctrl-C ends the question instead of the loop's next step."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return ask(f"{text}: ", input).strip()
        finally:
            signal.signal(signal.SIGINT, before)


def _unscanned(options: SetupOptions, module: Any, guide: SetupGuide) -> Any:
    """Return the settings of a channel, with examples of what will be scanned. Raises ConfigError, SetupStopped."""
    fields, variables = module.Settings.__dataclass_fields__, environment_names(module)
    examples = {variables[name]: str(fields[name].metadata["looks"]) for name in guide.scans}
    return _configured(options, load_config(options.file, overrides=examples)).settings


def _scan_code(scan: Scan, settings: Any, kept: dict[str, str]) -> str:
    """Have a person scan a code; return the value of the setting, and note what is to be kept. Raises SetupStopped."""

    try:
        found = asyncio.run(scan(_TerminalScreen(), settings))
    except ChannelError as error:
        raise SetupStopped(str(error)) from None
    kept.update(found.kept)
    return found.value


def _read_stdin(names: list[str]) -> dict[str, str]:
    lines = sys.stdin.read().split()
    if len(lines) != len(names):
        text = _("--token-stdin reads a line each for {names}, but got {n}", names=list_items(names), n=len(lines))
        raise SetupStopped(text)
    return dict(zip(names, lines, strict=True))


def _clickable(text: str) -> str:
    """Return a text in which a long link is short on the screen and opens with a click (OSC 8)."""
    return _LONG_LINK.sub(lambda found: f"\x1b]8;;{found[0]}\x1b\\{found[1]}…\x1b]8;;\x1b\\", text)


def _ask_value(
    module: Any, name: str, guide: SetupGuide, before: str, typed: Mapping[str, str], *, can_link: bool
) -> str:
    """Ask for one setting, after those that were `typed`. What is secret stays invisible. Raises SetupStopped."""
    if not before:
        step = guide.steps.get(name)
        text = step() if step else ""
        say(_clickable(text) if can_link else text, *([""] if step else []))
    field = next(field for field in module.Settings.__dataclass_fields__.values() if field.name == name)
    is_secret, about = field.type == "Secret", field.metadata["help"]
    what = re.split("[,，]", _(about))[0]
    prompt = _("Paste {what} (it stays invisible): ", what=what) if is_secret else _("Paste {what}: ", what=what)
    sign_in = guide.sign_ins.get(name)
    while True:
        given = ask(prompt, getpass.getpass if is_secret else input).strip()
        if given or before:
            return given or before
        if sign_in and (found := _log_in(sign_in, typed)):
            return found


def _log_in(sign_in: SignIn, typed: Mapping[str, str]) -> str:
    """Ask for a name and a password, and return the secret that the platform makes of them; "" if it refuses them."""
    account = ask(f"{sign_in.account()}: ", input).strip()
    password = ask(_("Password (it stays invisible, and is not kept): "), getpass.getpass) if account else ""
    if not password:
        return ""
    try:
        return asyncio.run(sign_in.log_in(typed, account, password))
    except ChannelError as error:
        say(error)
        return ""


def _try_account(options: SetupOptions, values: Mapping[str, str]) -> tuple[ChannelConfig, str]:
    """Return the channel with these secrets and its account. Raises SetupStopped, or ConfigError for other faults."""
    try:
        entry = _configured(options, load_config(options.file, overrides=values))
    except ConfigError as error:
        begin = f"channels.{options.channel}."  # or the variable, where the file does not have the setting
        own = [fault for fault in error.faults if fault.place.startswith(begin) or fault.place in values]
        if len(own) < len(error.faults):
            raise
        raise AccountRefused("\n".join(map(_describe_typed, own))) from None
    if variables_of(entry) != values:
        raise SetupStopped(
            _(
                "the configuration sets channels.{name} itself → write {values} there",
                name=entry.name,
                values=_placeholders(values),
            )
        )
    finding = asyncio.run(check_channel(entry))
    shown = Redactor(_secret_values(options, values))(render_finding(finding))
    if not finding.ok:
        raise AccountRefused(shown)
    say(shown)
    return entry, finding.text


def _secret_values(options: SetupOptions, values: Mapping[str, str]) -> list[str]:
    """Return the values that nobody is to see. Others, such as who has scanned a code, are said."""
    module = channel_modules()[options.channel]
    fields = module.Settings.__dataclass_fields__
    return [values[variable] for name, variable in environment_names(module).items() if fields[name].type == "Secret"]


def _describe_typed(fault: ConfigFault) -> str:
    """Return what is wrong with a value that was typed: the file has no part in it."""
    name = fault.place.rpartition(".")[2]
    return f"{name}: {localized(fault.wrong)}" + (f" → {localized(fault.fix)}" if fault.fix else "")


def _configured(options: SetupOptions, config: Config) -> ChannelConfig:
    for entry in config.channels:
        if entry.name == options.channel:
            return entry
    raise SetupStopped(
        _("{source} turns channels.{channel} off → remove that line", source=config.source, channel=options.channel)
    )


def variables_of(entry: ChannelConfig) -> dict[str, str]:
    """Return the variables that give a channel its secrets, with their values."""
    names = environment_names(channel_modules()[entry.name])
    values = {variable: getattr(entry.settings, name) for name, variable in names.items()}
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in values.items()}


def _check_saved(options: SetupOptions, entry: ChannelConfig) -> None:
    """Raise SetupStopped if the environment has other secrets than those that were tried."""
    known = known_variables(options.file)
    if names := [name for name, value in variables_of(entry).items() if known.get(name) != value]:
        raise SetupStopped(
            _("{name} has another value in the environment, which overrides .env → unset it", name=names[0])
        )


def _placeholders(names: Iterable[str]) -> str:
    return list_items(f"${name}" for name in names)


# ------------------------------------------------------------ the first person


def bound_command(name: str, file: Path | None, *words: str) -> list[str]:
    """Return a command line of Fawn that ends with this process."""
    config = ("--config", str(file)) if file else ()
    return [sys.executable, "-m", "bot.bound_service", name, *config, *words]


@contextmanager
def _running_service(
    options: SetupOptions, data_dir: Path, kept: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes] | None]:
    """Wait until a service has connected the channel: the one that runs (None), or one of our own until the end.

    It gets first what it is to keep for the channel: only the service knows the key that seals it.
    """
    report = _call(data_dir, "status")
    if report is None and is_served(data_dir):
        report = _call(data_dir, "status")
    if report is not None:
        _hand_over(options.channel, data_dir, kept, None)
        if not kept or options.channel not in report["channels"]:
            say(_("Fawn is running here. Restart it now, so that it reads the new values."))
        _await_channel(options.channel, data_dir, None)
        yield None
        return
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = bound_command("run", options.file, "--gives-way")
    with (data_dir / LOG_NAME).open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _hand_over(options.channel, data_dir, kept, process)
        _await_channel(options.channel, data_dir, process)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_served(data_dir: Path) -> bool:
    """Return whether a service listens, once none starts there any more. Raises SetupStopped."""
    try:
        return await_service(data_dir)
    except NotRunning as error:
        raise SetupStopped(str(error)) from None


def _hand_over(channel: str, data_dir: Path, kept: Mapping[str, str], process: subprocess.Popen[bytes] | None) -> None:
    """Have the service keep this for a channel. Raises SetupStopped."""
    while kept:
        answer = _look(data_dir, "channel.keep", process, channel=channel, kept=dict(kept))
        if answer and "error" in answer:
            raise SetupStopped(answer["error"])
        if answer:
            return
        time.sleep(LOOK_SECONDS)


def _await_channel(channel: str, data_dir: Path, process: subprocess.Popen[bytes] | None) -> None:
    while True:
        report = _look(data_dir, "status", process)
        if report and report["channels"].get(channel, {}).get("health") == Health.READY:
            return
        time.sleep(LOOK_SECONDS)


@dataclass(frozen=True, slots=True)
class _Request:
    """A person who waits; `proved` if they sent the word."""

    code: str
    name: str
    proved: bool


def _first_request(listed: Answer, channel: str, word: str, decided: Set[_Request]) -> _Request | None:
    """Return who is to be decided about next: who has sent the word comes before anybody else."""
    requests = (
        _Request(each["code"], f"{each['name']} ({each['person']})", word in each["words"])
        for each in listed["people"]
        if each["channel"] == channel and each["code"]
    )
    return max((each for each in requests if each not in decided), key=lambda each: each.proved, default=None)


def _let_first_person_in(
    options: SetupOptions, data_dir: Path, word: str, process: subprocess.Popen[bytes] | None
) -> str:
    """Wait for the first operator, and return their name: who sent the word, or whom the terminal makes one.

    Anybody else whom the terminal lets in is paired, and the wait goes on. The question about a stranger closes when
    somebody sends the word. Raises SetupStopped, EOFError and KeyboardInterrupt.
    """
    decided: set[_Request] = set()
    while True:
        listed = _look(data_dir, "pair.list", process) or {"people": ()}
        if (request := _first_request(listed, options.channel, word, decided)) is None:
            time.sleep(LOOK_SECONDS)
            continue

        def holds(asked: _Request = request) -> bool:
            now = _look(data_dir, "pair.list", process)
            return now is None or _first_request(now, options.channel, word, decided) == asked

        try:
            rights = _decide(request, holds) if options.interactive else _Rights(request.proved, request.proved)
        except QuestionVoid:
            continue
        decided.add(request)
        if not rights.let_in:
            continue
        answer = _call(data_dir, "pair.accept", code=request.code, operator=rights.operator, word=word)
        if answer and "error" not in answer:
            if rights.operator:
                return request.name
            say(_("{name} is in, but is no operator. Waiting for you there …", name=request.name))


class _Rights(NamedTuple):
    let_in: bool
    operator: bool


def _decide(request: _Request, holds: Callable[[], bool]) -> _Rights:
    """Ask what a person may. Raises QuestionVoid, EOFError and KeyboardInterrupt."""
    if request.proved:
        let_in = confirm_while(_(LET_IN, name=request.name), holds, default=True)
        return _Rights(let_in, let_in)
    let_in = confirm_while(_(LET_IN_UNPROVED, name=request.name), holds, default=False)
    return _Rights(let_in, let_in and confirm_while(_(MAKE_OPERATOR, name=request.name), holds, default=False))


def _look(data_dir: Path, operation: str, process: subprocess.Popen[bytes] | None, **arguments: Any) -> Answer | None:
    """Ask the service; None while it starts. Raises SetupStopped if ours has ended."""
    if process and process.poll() not in (None, GAVE_WAY):  # after that, the other service is asked
        lines = (data_dir / LOG_NAME).read_text("utf-8", "replace").splitlines()[-SHOWN_LOG_LINES:]
        raise SetupStopped("\n".join([_("Fawn has ended:"), *lines]))
    return _call(data_dir, operation, **arguments)


def _call(data_dir: Path, operation: str, **arguments: Any) -> Answer | None:
    """Ask the service; None while none runs or it is about to end."""
    try:
        return asyncio.run(call_service(data_dir, operation, arguments))
    except (NotRunning, ConnectionError, json.JSONDecodeError):
        return None
