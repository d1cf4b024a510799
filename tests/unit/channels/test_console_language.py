"""What the console itself says is in the language that its person chose, from the next line on."""

from __future__ import annotations

from pathlib import Path

from catalogue import _, use_language
from channels.console.session import NO_STEPS
from channels.shared.texts import use_chosen_languages
from tests.fakes.server import until
from tests.support.rigs.console import ConsoleRig


async def test_the_console_speaks_the_language_that_was_chosen(tmp_path: Path) -> None:
    chosen = {"jane": "en"}
    use_chosen_languages(lambda thread, person: chosen.get(person, ""))
    with use_language("zh"):
        chinese = _(NO_STEPS)
    async with ConsoleRig.start(tmp_path) as rig:
        rig.mutter("/steps")
        await until(lambda: NO_STEPS in rig.screen, what="the English sentence")
        chosen["jane"] = "zh"
        rig.mutter("/steps")
        await until(lambda: chinese in rig.screen, what="the Chinese sentence")
