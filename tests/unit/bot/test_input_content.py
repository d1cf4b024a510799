"""Blocks of an input, in the forms of LangChain's, OpenAI's and Anthropic's clients."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from bot.api.langgraph.content import InputFile, read_content
from bot.api.langgraph.shapes import content_of_input, earlier_of_input
from bot.http.route import HttpProblem

RAW = b"%PDF-1.4 hello"
B64 = base64.b64encode(RAW).decode()
SAID = {"type": "text", "text": "read it"}


@pytest.mark.parametrize(
    ("block", "file"),
    [
        (
            {"type": "file", "source_type": "base64", "mime_type": "application/pdf", "data": B64}
            | {"metadata": {"filename": "a.pdf"}},
            ("a.pdf", "application/pdf"),
        ),
        (
            {
                "type": "image",
                "source_type": "base64",
                "mime_type": "image/png",
                "data": B64,
                "metadata": {"name": "a.png"},
            },
            ("a.png", "image/png"),
        ),
        ({"type": "image", "base64": B64, "mime_type": "image/webp"}, ("", "image/webp")),
        ({"type": "file", "base64": B64, "extras": {"filename": "b.pdf"}}, ("b.pdf", "application/octet-stream")),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{B64}"}}, ("", "image/png")),
        ({"type": "image_url", "image_url": f"data:image/jpeg;base64,{B64}"}, ("", "image/jpeg")),
        ({"type": "image", "url": f"data:image/gif;base64,{B64}"}, ("", "image/gif")),
        ({"type": "input_audio", "input_audio": {"data": B64, "format": "wav"}}, ("", "audio/wav")),
        (
            {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{B64}", "filename": "c.pdf"}},
            ("c.pdf", "application/pdf"),
        ),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": B64}},
            ("", "image/png"),
        ),
        (
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": B64},
                "title": "D",
            },
            ("D", "application/pdf"),
        ),
        ({"type": "video", "base64": B64}, ("", "video/mp4")),
        (
            {"type": "file", "mime_type": "text/plain", "data": f"data:text/plain;charset=utf-8;base64,{B64}"},
            ("", "text/plain"),
        ),
    ],
)
def test_a_block_with_data_is_a_file(block: dict[str, Any], file: tuple[str, str]) -> None:
    found = read_content([SAID, block])
    assert (found.text, found.files) == ("read it", (InputFile(*file, RAW),))
    alone = content_of_input({"messages": [{"role": "user", "content": [block]}]})
    assert (alone.text, len(alone.files)) == ("", 1)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([SAID, {"type": "text", "text": "and this"}], "read it\nand this"),
        (["a", "b"], "a\nb"),
        ([SAID, {"type": "image_url", "image_url": {"url": "https://e.com/a.png"}}], "read it\nhttps://e.com/a.png"),
        ([SAID, {"type": "image", "source_type": "url", "url": "https://e.com/a.png"}], "read it\nhttps://e.com/a.png"),
        ([{"type": "text-plain", "text": "words"}], "words"),
        (None, ""),
    ],
)
def test_text_and_addresses_are_text(content: Any, text: str) -> None:
    assert read_content(content).text == text


@pytest.mark.parametrize(
    "content",
    [[SAID, {"type": "image"}], [SAID, 7], [{"type": "tool_use"}], [{"type": "image", "base64": "no base64!"}]],
)
def test_a_block_that_cannot_be_read_says_what_to_send(content: Any) -> None:
    with pytest.raises(HttpProblem) as told:
        content_of_input({"messages": [{"role": "user", "content": content}]})
    assert told.value.status == 422


def test_files_said_before_are_named_in_the_context() -> None:
    file = {"type": "file", "base64": B64, "metadata": {"filename": "a.pdf"}}
    said = [
        {"role": "user", "content": [SAID, file]},
        {"role": "assistant", "content": "read"},
        {"role": "user", "content": "so?"},
    ]
    assert [each.text for each in earlier_of_input({"messages": said})] == ["read it\n[a.pdf]", "read"]
