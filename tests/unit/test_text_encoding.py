"""Tables and pages in the encodings of the world are read in their own letters, wherever Fawn reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.parsing.child import ParserProcess
from sandbox.inside.text_encoding import codec_of, decode_text

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills/public/data-analysis/scripts"
TABLES = [
    ("cp1252", "Name;Straße;Ort\nMüller;Hauptstraße 5;Köln\nGröße;Bär;Grüße aus Österreich\n"),
    ("cp1252", "Prénom;Ville\nRené;Orléans\nHélène;Besançon – l’été où\n"),
    ("cp1252", "Año;Población\nPeña;Málaga\nNúñez;¿Cómo?\n"),
    ("cp1252", "item;price\nTea;3 €\nCake – big;5 €\n"),
    ("cp1252", "Namn;Ort\nÅsa;Malmö\nSøren;Århus æble\n"),
    ("cp1250", "Imię;Miasto\nŁukasz;Łódź\nŻaneta;Kraków święto\n"),
    ("cp1250", "Jméno;Město\nJiří;Plzeň\nŘehoř;Žďár čeština\n"),
    ("cp1250", "Név;Város\nJenő;Győr\nŐrs;Székesfehérvár tűz\n"),
    ("cp1251", "Имя;Город\nИван;Москва\nОльга;Санкт-Петербург\n"),
    ("cp1251", "Ім'я;Місто\nЇжак;Київ\nГанна;Львів\n"),
    ("koi8-r", "Имя;Город\nИван;Москва\nОльга;Санкт-Петербург\n"),
    ("cp1253", "Όνομα;Πόλη\nΓιάννης;Αθήνα\n"),
    ("cp1254", "Ad;Şehir\nAyşe;İstanbul\nÇağrı;Muğla\n"),
    ("cp932", "名前;都市\n田中;東京\n山田ハナコ;おおさか\n"),
    ("euc_jp", "名前;都市\n田中さん;東京です\n山田ハナコ;おおさか\n"),
    ("gb18030", "姓名;城市\n张伟;北京\n王芳;上海 朱镕基\n"),
    ("big5hkscs", "姓名;城市\n張偉;臺北\n王芳;高雄的資料\n"),
    ("cp949", "이름;도시\n김철수;서울\n박영희;부산광역시\n"),
    ("utf-16-le", "Name;Ort\nMüller;Köln\n"),
    ("cp1251", "ГОРОД;МОСКВА\nИТОГО;НЕТ\n"),
    ("cp1252", "Città;è\nperché;più\n"),
    ("cp1252", "São Paulo;ação\nJoão;Conceição\n"),
    ("cp1252", "id,name\n1,Jörg\n"),
    ("cp1250", "Müller;Łódź\nGröße;Kraków\nŚwięta;Żółć\n"),
]


@pytest.mark.parametrize(("codec", "text"), TABLES)
def test_a_table_is_read_in_its_own_letters(codec: str, text: str) -> None:
    assert decode_text(text.encode(codec)) == (text, codec)


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_wins(codec: str) -> None:
    assert decode_text("Größe;東京".encode(codec), "cp1252")[0] == "Größe;東京"


PAGES = [
    ("utf-8", "utf-8", "Köln 東京"),
    ("iso-8859-1", "cp1252", "„Köln“ 5 €"),
    ("windows-1251", "cp1251", "Москва"),
    ("gb2312", "gb18030", "朱镕基"),
    ("x-sjis", "cp932", "髙島屋"),
    ("euc-kr", "cp949", "똠방각하"),
    ("big5", "big5hkscs", "臺北"),
    ("koi8-r", "koi8-r", "Москва"),
]


@pytest.mark.parametrize(("label", "codec", "text"), PAGES)
@pytest.mark.parametrize(
    "head",
    [
        '<meta charset="{}">',
        "<META http-equiv=Content-Type content='text/html; charset={}'>",
        '<?xml version="1.0" encoding="{}"?>',
    ],
)
def test_a_page_is_read_as_it_declares(label: str, codec: str, text: str, head: str) -> None:
    page = f"{head.format(label)}<p>{text}</p>"
    assert decode_text(page.encode(codec), markup=True)[0] == page
    assert codec_of(label.upper()) == codec


LIES = [  # what copied templates and servers with one charset for all pages declare
    ("Größe und Maße: München, Köln", "cp1252"),
    ("L’été à Besançon, où l’œuvre coûte 5 €", "cp1252"),
    ("Zażółć gęślą jaźń, święta w Łodzi", "cp1250"),
    ("Москва — столица России", "cp1251"),
    ("北京是中华人民共和国的首都，人口众多。", "gb18030"),
    ("東京は日本の首都です。おいしい寿司があります。", "cp932"),
    ("서울은 대한민국의 수도이다. 인구가 많다.", "cp949"),
]
ALIKE = [{"cp1250", "cp1252"}, {"cp1251", "koi8-r"}, {"gb18030", "cp949", "euc_jp", "big5hkscs"}]
LABELS: tuple[str, ...] = (
    "utf-8",
    "iso-8859-1",
    "windows-1251",
    "koi8-r",
    "gb2312",
    "shift_jis",
    "euc-jp",
    "big5",
    "euc-kr",
    "utf-16",
)


LABELS += ("iso-2022-jp", "hz-gb-2312", "x-user-defined", "utf-7", "nonsense")
LYING = [
    (text, codec, label)
    for text, right in LIES
    for codec in ("utf-8", right)
    for label in LABELS
    if not any({codec, codec_of(label)} <= family for family in ALIKE)  # there, what is declared is believed
]


@pytest.mark.parametrize(("text", "codec", "label"), LYING)
def test_a_page_that_lies_about_its_letters_is_read(text: str, codec: str, label: str) -> None:
    page = f'<html><head><meta charset="{label}"></head><p>{text} {text}</p></html>'
    data = page.encode(codec)
    assert decode_text(data, markup=True)[0] == page
    assert decode_text(data, codec_of(label), markup=True)[0] == page


def test_a_few_broken_characters_change_no_encoding() -> None:
    page = f'<meta charset="utf-8"><p>{"Größe und Maße " * 20}'.encode() + b"\xe4\xfc</p>"
    assert decode_text(page, markup=True)[1] == "utf-8"
    assert decode_text("Köln".encode("cp1252"), "utf-8") == ("Köln", "cp1252")
    assert decode_text("髙".encode("cp932"), "cp932") == ("髙", "cp932")  # too little to doubt what is declared


def test_what_is_declared_wrongly_is_still_read() -> None:
    page = '<meta charset="big5">Größe und Maße, Übergrößen'
    assert decode_text(page.encode(), markup=True) == (page, "utf-8")
    assert decode_text(b"caf\xe9 \x81", "utf-8")[0].startswith("caf")


def test_japanese_mail_and_cut_texts_are_read() -> None:
    assert decode_text("こんにちは".encode("iso2022_jp")) == ("こんにちは", "iso2022_jp")
    assert decode_text("東京".encode()[:-1])[1] == "utf-8"


@pytest.mark.parametrize("data", [b"", b"\xff", bytes(range(256)), b"\x00" * 100, b"\x80" * 100_000])
def test_any_bytes_have_a_text(data: bytes) -> None:
    decode_text(data)
    decode_text(data, markup=True)


async def test_pages_are_read_by_the_same_rule() -> None:
    parser = ParserProcess()
    for codec, text in TABLES:
        answer, _ = await parser.run("text", text.encode(codec), codec="")
        assert answer["text"] == text
    page = (
        f'<html><head><meta charset="x-sjis"></head><body><article>{"<p>髙島屋の売上</p>" * 20}</article></body></html>'
    )
    answer, _ = await parser.run("html", page.encode("cp932"), codec="", url="https://example.com/")
    assert "髙島屋" in answer["text"]


def test_the_skills_have_the_same_decoder(tmp_path: Path) -> None:
    for number, (codec, text) in enumerate(TABLES):
        (tmp_path / f"{number}.csv").write_bytes(text.encode(codec))
    script = (
        "import json, pathlib, sys, table_reader as t;"
        "print(json.dumps([t.read_csv(pathlib.Path(p)) for p in sys.argv[1:]]))"
    )
    paths = [f"{tmp_path}/{number}.csv" for number in range(len(TABLES))]
    done = subprocess.run([sys.executable, "-c", script, *paths], cwd=SKILL, capture_output=True, check=True)
    for rows, (_codec, text) in zip(json.loads(done.stdout), TABLES, strict=True):
        assert ",".join(cell for row in rows for cell in row) == text.strip().replace(";", ",").replace("\n", ",")
