"""The skill image-editing on real files: results are decoded again and their pixels compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.skills.conftest import SkillRunner

pytestmark = pytest.mark.slow

# A photo of a camera held on its side: left half red, right half blue, words in the middle, a place in its metadata.
PHOTO = """
from PIL import Image, ImageDraw
image = Image.new("RGB", (400, 200), "red")
ImageDraw.Draw(image).rectangle((200, 0, 400, 200), fill="blue")
for x in range(150, 250, 4):
    ImageDraw.Draw(image).line((x, 90, x, 110), fill="white")
exif = Image.Exif()
exif[0x0112], exif[0x010F] = 6, "Camera of Jane"
exif.get_ifd(0x8825)[1] = "N"
image.save("photo.jpg", exif=exif, quality=95)
Image.new("RGBA", (60, 30), (0, 128, 0, 0)).save("clear.png")
"""
LOOK = """
import json, sys
from PIL import Image
image = Image.open(sys.argv[1])
points = [tuple(map(int, point.split(","))) for point in sys.argv[2:]]
rgb = image.convert("RGB")
print(json.dumps({"format": image.format, "size": image.size, "exif": len(image.getexif()),
    "pixels": [rgb.getpixel(point) for point in points]}))
"""


@pytest.fixture
async def photos(runner: SkillRunner) -> SkillRunner:
    await runner.write(photo_py=PHOTO, look_py=LOOK)
    result = await runner.bash("python3 photo.py")
    assert result.exit_code == 0, result.output
    return runner


async def look(runner: SkillRunner, name: str, *points: str) -> Any:
    result = await runner.bash(f"python3 look.py {name} {' '.join(points)}")
    return json.JSONDecoder().raw_decode(result.output)[0]


def near(pixel: list[int], wanted: tuple[int, int, int]) -> bool:
    return all(abs(one - other) < 25 for one, other in zip(pixel, wanted, strict=True))


async def test_a_photo_is_upright_and_its_metadata_is_said_and_removed(photos: SkillRunner) -> None:
    found = await photos.json("image-editing", "edit_image.py info photo.jpg")
    assert (found["size"], found["turned_by_metadata"], found["place_in_metadata"]) == ([200, 400], True, True)
    assert found["metadata"]["Make"] == "Camera of Jane"
    made = await photos.json("image-editing", "edit_image.py edit photo.jpg --out upright.png")
    assert (made["size"], made["notes"]) == ([200, 400], ["metadata was removed"])
    seen = await look(photos, "upright.png", "100,20", "100,380")
    assert (seen["format"], seen["exif"]) == ("PNG", 0)
    assert near(seen["pixels"][0], (255, 0, 0))
    assert near(seen["pixels"][1], (0, 0, 255))
    await photos.json("image-editing", "edit_image.py edit photo.jpg --out kept.jpg --keep-metadata")
    kept = await photos.json("image-editing", "edit_image.py info kept.jpg")
    assert (kept["size"], kept["turned_by_metadata"], kept["place_in_metadata"]) == ([200, 400], False, True)


async def test_steps_are_applied_in_their_order(photos: SkillRunner) -> None:
    """The lower half of the upright photo, which is blue, at half its size, with a covered corner and a turn."""
    line = "edit photo.jpg --out part.png --step crop=0,50%,100%,50% --step resize=50% --step cover=0,0,20,20,lime"
    made = await photos.json("image-editing", f"edit_image.py {line} --step rotate=90")
    assert made["size"] == [100, 100]
    seen = await look(photos, "part.png", "95,5", "50,60", "5,5")
    assert near(seen["pixels"][0], (0, 255, 0))
    assert near(seen["pixels"][1], (0, 0, 255))
    assert near(seen["pixels"][2], (0, 0, 255))


async def test_nothing_that_can_be_read_is_left_in_a_blurred_area(photos: SkillRunner) -> None:
    before = await look(photos, "photo.jpg", *(f"{x},100" for x in range(160, 190)))
    assert max(pixel[1] for pixel in before["pixels"]) - min(pixel[1] for pixel in before["pixels"]) > 150
    await photos.json("image-editing", "edit_image.py edit photo.jpg --out blur.png --step blur=80,140,40,120")
    after = await look(photos, "blur.png", *(f"100,{y}" for y in range(160, 190)))
    steps = [abs(one[1] - other[1]) for one, other in zip(after["pixels"], after["pixels"][1:], strict=False)]
    assert max(steps) < 20
    outside = await look(photos, "blur.png", "10,20")
    assert near(outside["pixels"][0], (255, 0, 0))


async def test_annotations_are_drawn_and_a_size_limit_is_kept(photos: SkillRunner) -> None:
    steps = "--step box=20,20,100,60,lime --step arrow=150,300,60,90,yellow --step 'text=30,350,20,Here, look'"
    made = await photos.json("image-editing", f"edit_image.py edit photo.jpg --out noted.jpg {steps} --max-kb 8")
    assert made["bytes"] <= 8 * 1024
    seen = await look(photos, "noted.jpg", "70,20", "62,92", "28,362")
    assert seen["pixels"][0][1] > 150
    assert seen["pixels"][1][1] > 120
    assert min(seen["pixels"][2]) > 150  # the plate behind the words is white
    answer = await photos.json("image-editing", "edit_image.py edit photo.jpg --out a.png --max-kb 1", exit_code=1)
    assert "resize it, or write a .jpg" in answer["error"]


async def test_a_collage_by_json_has_every_picture_in_its_cell(photos: SkillRunner) -> None:
    """As `run_skill` calls it: JSON on stdin, files relative to the workspace."""
    asked = {
        "command": "collage",
        "files": ["photo.jpg", "clear.png", "photo.jpg"],
        "columns": 3,
        "cell": 100,
        "gap": 10,
    }
    await photos.write(input_json=json.dumps({**asked, "label": ["one", "two", "three"], "out": "collage.png"}))
    state = "SKILL_STATE=/mnt/user-data/workspace/.skills/image-editing"
    result = await photos.bash(
        f"cd /mnt/skills/image-editing && {state} python3 scripts/edit_image.py < /mnt/user-data/workspace/input.json"
    )
    made = json.JSONDecoder().raw_decode(result.output)[0]
    assert (made["size"], made["columns"], made["rows"]) == ([340, 144], 3, 1)
    seen = await look(photos, "collage.png", "60,20", "60,100", "170,60", "280,20")
    assert [near(pixel, (255, 0, 0)) for pixel in seen["pixels"]] == [True, False, False, True]
    assert seen["pixels"][2] == [255, 255, 255]  # the clear picture shows the background


async def test_what_cannot_be_edited_is_said_with_what_to_do(photos: SkillRunner) -> None:
    await photos.write(broken_jpg="not a picture", huge_py=HUGE)
    await photos.bash("python3 huge.py")
    for line, reason in (
        ("edit broken.jpg --out a.png", "not a picture that Pillow reads"),
        ("edit missing.jpg --out a.png", "There is no file missing.jpg."),
        ("edit huge.png --out a.png", "at most 80,000,000 are edited"),
        ("edit photo.jpg --out a.svg", ".svg is not written"),
        ("edit photo.jpg --out a.png --step melt=1", "There is no step 'melt'"),
        ("edit photo.jpg --out a.png --step crop=900,0,10,10", "outside of the picture of 200 × 400"),
        ("edit photo.jpg --out a.png --step resize=99999x", "is too large"),
        ("edit photo.jpg --out a.png --step box=0,0,5,5,nocolor", "is not a color"),
        ("collage photo.jpg --out a.png", "2 to 60 pictures"),
    ):
        answer = await photos.json("image-editing", f"edit_image.py {line}", exit_code=1)
        assert reason in answer["error"]
    answer = await photos.without_packages("image-editing", "edit_image.py info photo.jpg", exit_code=3)
    assert (answer["missing"], answer["fix"]) == (["pillow"], "pip install pillow")


# A head that claims 100,000 × 100,000 pixels, with hardly any data.
HUGE = """
import struct, zlib
def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
head = struct.pack(">IIBBBBB", 100000, 100000, 8, 2, 0, 0, 0)
data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"0" * 100)) + chunk(b"IEND", b"")
open("huge.png", "wb").write(bytes([137]) + b"PNG" + bytes([13, 10, 26, 10]) + data)
"""
