"""Pictures are scaled without their metadata, and only models that see them get them."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest
from PIL import Image

from agent.core.context import ToolServices
from agent.core.pictures import scale_picture
from agent.messages import UploadedFile
from agent.parsing.child import ParserFailed, ParserProcess
from agent.policies.added_context import MAX_PICTURES
from agent.settings.models import ModelSettings
from agent.settings.sections import AgentSettings
from agent.tools.view_image import make as make_view_image
from tests.fakes.model import Answer, FakeModel, ToolCall
from tests.support.turn_context import FolderMachine, say
from tests.unit.agent.conftest import Bench, Workshop, view

STORED = "/mnt/user-data/workspace/.pictures/a.png"


def picture(size: tuple[int, int] = (40, 20), kind: str = "PNG", **more: Any) -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(out, kind, **more)
    return out.getvalue()


async def test_a_photo_is_scaled_turned_and_freed_of_its_metadata() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90°
    exif[0x010E] = "Jane's garden"
    noise = Image.merge("RGB", [Image.effect_noise((3000, 2000), 60) for _ in range(3)])
    out = io.BytesIO()
    noise.save(out, "JPEG", exif=exif, comment=b"secret")
    scaled = await scale_picture(ParserProcess(), out.getvalue())
    assert (scaled.mime, scaled.width, scaled.height) == ("image/jpeg", 2000, 3000)
    with Image.open(io.BytesIO(scaled.data)) as image:
        assert image.size == (1045, 1568)
        assert not image.getexif()
    assert b"garden" not in scaled.data
    assert b"secret" not in scaled.data


async def test_a_drawing_stays_sharp_and_keeps_its_size() -> None:
    scaled = await scale_picture(ParserProcess(), picture((400, 300)))
    with Image.open(io.BytesIO(scaled.data)) as image:
        assert (image.format, image.size) == ("PNG", (400, 300))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello", "not a picture in a known format"),
        (picture()[:60], "damaged"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture in a known format"),
        ("bomb", "too many pixels"),
    ],
)
async def test_bombs_and_damaged_pictures_are_refused(data: bytes | str, reason: str) -> None:
    if isinstance(data, str):
        out = io.BytesIO()
        Image.new("1", (20_000, 20_000)).save(out, "PNG")
        data = out.getvalue()
    with pytest.raises(ParserFailed, match=reason):
        await scale_picture(ParserProcess(), data)


async def make_bench(make: Workshop, model: FakeModel, sees: bool, **more: Any) -> Bench:
    entry = ModelSettings("main", base_url=f"{model.base_url}/v1", vision=sees)
    tool = make_view_image(AgentSettings(), ToolServices(True))
    assert tool is not None
    bench = await make(settings=(entry, *more.pop("others", ())), tools=[tool], **more)
    await bench.context()
    await bench.machine.sandbox.write(STORED, picture())
    return bench


def shown(message: dict[str, Any]) -> list[str]:
    """Return the pictures of a message that the client sent."""
    content = message["content"]
    return [] if isinstance(content, str) else [b["image_url"]["url"] for b in content if b["type"] == "image_url"]


UPLOAD = UploadedFile("a.png", "/mnt/user-data/uploads/a.png", 90, about="picture, 40×20", picture=STORED)
DATA_URL = f"data:image/png;base64,{base64.b64encode(picture()).decode()}"


async def test_a_model_that_sees_gets_the_picture_of_a_message(make: Workshop, model: FakeModel) -> None:
    bench = await make_bench(make, model, True)
    model.script = lambda body: Answer("a gradient")
    assert view(await bench.run(say("What is this?", uploads=[UPLOAD]))).text == "a gradient"
    sent = model.requests()[-1].messages[-1]
    assert shown(sent) == [DATA_URL]
    assert "picture, 40×20" in sent["content"][0]["text"]
    assert "base64" not in str(await bench.state()), "the state names the picture only"


async def test_a_model_that_does_not_see_is_told_so(make: Workshop, model: FakeModel) -> None:
    bench = await make_bench(make, model, False)
    model.script = lambda body: Answer("I can't see it")
    await bench.run(say("What is this?", uploads=[UPLOAD, UPLOAD]))
    assert (
        model.requests()[-1]
        .messages[-1]["content"]
        .endswith("[2 pictures not shown: you cannot see pictures. Tell the person if that matters.]")
    )


async def test_a_fallback_that_does_not_see_gets_words(make: Workshop, model: FakeModel) -> None:
    async with FakeModel(script=lambda body: Answer("blind")) as other:
        backup = ModelSettings("backup", base_url=f"{other.base_url}/v1", vision=False)
        bench = await make_bench(make, model, True, others=(backup,), fallback=("backup",))
        model.script = lambda body: Answer(status=401)
        await bench.run(say("What is this?", uploads=[UPLOAD]))
        assert shown(model.requests()[-1].messages[-1]) == [DATA_URL]
        assert "you cannot see pictures" in other.requests()[-1].messages[-1]["content"]


async def test_view_image_shows_a_picture_after_its_result(make: Workshop, model: FakeModel) -> None:
    bench = await make_bench(make, model, True)
    await bench.machine.sandbox.write("/mnt/user-data/outputs/plot.png", picture((30, 30)))
    answers = iter(
        [
            Answer(calls=(ToolCall("view_image", json.dumps({"path": "/mnt/user-data/outputs/plot.png"})),)),
            Answer("it rises"),
        ]
    )
    model.script = lambda body: next(answers)
    assert view(await bench.run(say("Plot it"))).text == "it rises"
    *_, result, between, pictures = model.requests()[-1].messages
    assert result["role"] == "tool"
    assert result["content"] == "/mnt/user-data/outputs/plot.png: 30×30 pixels. The picture follows."
    assert (between["role"], pictures["role"]) == ("assistant", "user")  # as strict servers want it
    assert len(shown(pictures)) == 1


async def test_view_image_says_what_is_wrong(make: Workshop, model: FakeModel) -> None:
    for vision, reason in ((False, "You cannot see pictures."), (True, "is not a picture in a known format")):
        bench = await make_bench(make, model, vision)
        assert isinstance(bench.machine, FolderMachine)
        await bench.machine.sandbox.write("/mnt/user-data/outputs/a.png", b"text")
        answers = iter(
            [
                Answer(calls=(ToolCall("view_image", json.dumps({"path": "/mnt/user-data/outputs/a.png"})),)),
                Answer("no"),
            ]
        )
        model.script = lambda body, answers=answers: next(answers)
        await bench.run(say("Look", f"m-{vision}"), conversation=f"c-{vision}")
        assert reason in model.requests()[-1].messages[-1]["content"]


async def test_only_the_newest_pictures_are_sent(make: Workshop, model: FakeModel) -> None:
    bench = await make_bench(make, model, True)
    model.script = lambda body: Answer("many")
    await bench.run(say("Look", uploads=[UPLOAD] * (MAX_PICTURES + 2)))
    sent = model.requests()[-1].messages[-1]
    assert len(shown(sent)) == MAX_PICTURES
    assert [block["text"] for block in sent["content"][1:3]] == [
        "[A picture is not shown any more; view_image shows it again.]"
    ] * 2


async def test_a_picture_that_was_deleted_is_named(make: Workshop, model: FakeModel) -> None:
    bench = await make_bench(make, model, True)
    model.script = lambda body: Answer("gone")
    gone = UploadedFile("b.png", "/mnt/user-data/uploads/b.png", 90, picture=STORED.replace("a.png", "b.png"))
    await bench.run(say("Look", uploads=[gone]))
    sent = model.requests()[-1].messages[-1]
    assert sent["content"][1]["text"].startswith("[A picture is not shown")


async def test_the_vision_model_takes_over_a_turn_with_a_picture(make: Workshop, model: FakeModel) -> None:
    async with FakeModel(script=lambda body: Answer("a gradient")) as seeing:
        vision = ModelSettings("eyes", base_url=f"{seeing.base_url}/v1", vision=True)
        bench = await make_bench(make, model, False, others=(vision,), vision="eyes")
        model.script = lambda body: Answer("blind")
        blocks = await bench.run(say("What is this?", uploads=[UPLOAD]))
        assert view(blocks).final().text == "a gradient\n\n_main can't see pictures. eyes answers instead._"
        assert not model.requests()
        assert view(await bench.run(say("And now?", "m2"))).text == "blind", "only pictures of the turn count"
        model.script = lambda body: Answer(calls=(ToolCall("view_image", json.dumps({"path": STORED})),))
        assert "a gradient" in view(await bench.run(say("Look again.", "m3"))).text
        assert shown(seeing.requests()[-1].messages[-1]) == [DATA_URL]


async def test_a_vision_model_that_fails_leaves_the_turn_to_the_others(make: Workshop, model: FakeModel) -> None:
    async with FakeModel(script=lambda body: Answer(status=401)) as seeing:
        vision = ModelSettings("eyes", base_url=f"{seeing.base_url}/v1", vision=True)
        bench = await make_bench(make, model, False, others=(vision,), vision="eyes")
        answers = iter([Answer(calls=(ToolCall("look", '{"text": "a"}'),)), Answer("I can't see it")])
        model.script = lambda body: next(answers)
        blocks = await bench.run(say("What is this?", uploads=[UPLOAD]))
        assert view(blocks).text == "I can't see it"
        assert len(seeing.requests()) == 1, "it is asked once in a turn"
