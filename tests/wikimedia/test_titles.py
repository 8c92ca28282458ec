"""Titles in URLs and their normal form."""

import json
import shutil
import subprocess
import unicodedata
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hgld.wikimedia.titles import is_sendable, normalise_title, title_of_url, title_path

COMMONS = "https://commons.wikimedia.org"


@pytest.mark.parametrize(
    "url",
    [
        "http://commons.wikimedia.org/wiki/Category:Mount_Rainier",
        "https://commons.wikimedia.org/wiki/Category:Mount_Rainier",
        "https://commons.m.wikimedia.org/wiki/Category:Mount_Rainier",
        "http://upload.wikimedia.org/wiki/Category:Mount_Rainier",
        "HTTPS://Commons.Wikimedia.org/wiki/Category:Mount_Rainier",
        "https://commons.wikimedia.org/wiki/Category:Mount%20Rainier",
        "https://commons.wikimedia.org/wiki/Category:mount__Rainier_",
        "https://commons.wikimedia.org/wiki/category:Mount_Rainier#Media",
        "https://commons.wikimedia.org/wiki/Category:Mount_Rainier?uselang=de",
        "https://commons.wikimedia.org/w/index.php?title=Category:Mount_Rainier&action=view",
        " https://commons.wikimedia.org/wiki/Category:Mount_Rainier ",
        "https://commons.wikimedia.org/wiki/Category%3AMount_Rainier",
        "https://commons.wikimedia.org/w/index.php?title=Category:Mount_Rainier&amp;section=1",
        "https://commons.wikimedia.org/w/index.php?&title=Category:Mount_Rainier&&uselang=de&",
        "commons.wikimedia.org/wiki/Category:Mount_Rainier",
        "//commons.m.wikimedia.org/wiki/Category:Mount_Rainier?debug",
    ],
)
def test_all_urls_of_a_category_give_one_title(url: str) -> None:
    assert title_of_url(url) == "Category:Mount Rainier"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "Category:Mount_Rainier",
        "ftp://commons.wikimedia.org/wiki/Category:Mount_Rainier",
        "https://en.wikipedia.org/wiki/Category:Mount_Rainier",
        "https://commons.wikimedia.org.example.org/wiki/Category:Mount_Rainier",
        "https://commons.wikimedia.org/wiki/File:Mount_Rainier.jpg",
        "https://commons.wikimedia.org/wiki/Category:",
        "https://commons.wikimedia.org/",
        "https://commons.wikimedia.org/wiki/Category:%FF",
        "https://[broken/wiki/Category:X",
    ],
)
def test_invalid_url_says_what_was_expected(url: str) -> None:
    with pytest.raises(ValueError, match="expected one such as https://"):
        title_of_url(url)


@pytest.mark.parametrize(
    "query",
    [
        "useformat=mobile",
        "withJS=MediaWiki:X.js&withCSS=MediaWiki:X.css",
        "withgadget=x",
        "feed=rss",
        "useparsoid=1",
        "unhide=1",
        "_x_tr_sl=auto&_x_tr_tl=de",
        "srsltid=abc",
        "action=edit&redlink=1",
        "wpDestFile=&x[]=1",
        "anything=1",
    ],
)
def test_parameters_other_than_the_title_are_dropped(query: str) -> None:
    assert title_of_url(f"{COMMONS}/wiki/Category:Lake_Union?{query}") == "Category:Lake Union"
    assert title_of_url(f"{COMMONS}/w/index.php?title=Category:Lake_Union&{query}") == "Category:Lake Union"


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("Category:Where_is_Edge?", "Category:Where is Edge?"),
        ("Category:Where_is_Edge?#Media", "Category:Where is Edge?"),
        ("Category:Where_is_Edge?_(film)", "Category:Where is Edge? (film)"),
        ("Category:Edge?_Ledge?", "Category:Edge? Ledge?"),
        ("Category:Edge?=&Ledge", "Category:Edge?=&Ledge"),
        ("Category:Edge%3F?uselang=de", "Category:Edge?"),
        ("Category:Edge?uselang=de&filefrom=Q&utm_source=x", "Category:Edge"),
    ],
)
def test_raw_question_mark_belongs_to_the_title_unless_parameters_follow(path: str, title: str) -> None:
    assert title_of_url(f"{COMMONS}/wiki/{path}") == title


@pytest.mark.parametrize(
    "path", ["Category:Edge??uselang=de", "Category:Edge?_(film)&action=view", "Category:Edge?uselang=de&Ledge"]
)
def test_question_mark_that_may_be_either_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"is ambiguous: .*write a question mark of the title as %3F"):
        title_of_url(f"{COMMONS}/wiki/{path}")


@pytest.mark.parametrize("query", ["title=Category:Edge&Ledge", "title=Category:Edge&title=Category:Ledge"])
def test_raw_ampersand_in_a_title_parameter_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match=r"is ambiguous: .*write an & of the title as %26"):
        title_of_url(f"{COMMONS}/w/index.php?{query}")


def test_title_parameter_is_decoded_strictly() -> None:
    assert title_of_url(f"{COMMONS}/w/index.php?title=Category:Where%3F&action=view") == "Category:Where?"
    assert title_of_url(f"{COMMONS}/w/index.php?title=Category:Where?") == "Category:Where?"
    with pytest.raises(ValueError, match="not UTF-8"):
        title_of_url(f"{COMMONS}/w/index.php?title=Category:%FF")


def test_url_that_was_copied_from_the_source_of_a_page() -> None:
    url = f"{COMMONS}/wiki/Category:Queen&#39;s_&amp;_King&#x27;s;_&copy"
    assert title_of_url(url) == "Category:Queen's & King's; &copy"


def test_unicode_composition_and_first_letter() -> None:
    decomposed = unicodedata.normalize("NFD", "Category:édifice d'Edge")
    assert normalise_title(decomposed) == "Category:Édifice d'Edge"
    assert normalise_title("Category:\u200eLeft to\u00a0right\u200e") == "Category:Left to right"


@pytest.mark.parametrize(
    ("first", "stored"),
    [("ა", "ა"), ("ß", "ß"), ("ǆ", "ǅ"), ("ﬁ", "Fi"), ("ŉ", "ʼN"), ("ῷ", "ῼ\u0342"), ("ⓐ", "Ⓐ"), ("ⅰ", "Ⅰ")],
)
def test_first_letter_is_in_title_case_as_at_wikimedia(first: str, stored: str) -> None:
    assert normalise_title(f"Category:{first}x") == f"Category:{stored}x"


def test_first_letter_of_every_script_is_that_of_php() -> None:
    """MediaWiki calls ``mb_convert_case``, but for the letters in Wikimedia's UcfirstOverrides.php."""
    if shutil.which("php") is None:
        pytest.skip("no PHP: apt-get install php-cli php-mbstring")
    code = (
        "for ($i = 0x61; $i < 0x110000; $i++) if ($c = mb_chr($i))"
        " if (($t = mb_convert_case($c, MB_CASE_TITLE)) !== $c) $m[$c] = $t; echo json_encode($m);"
    )
    printed = subprocess.run(["php", "-r", code], check=True, capture_output=True, timeout=60).stdout
    in_php = json.loads(printed) | {"ß": "ß"}
    # Capitals of the last years are unknown to some versions of PHP or Python: these letters are as old as both.
    letters = [
        letter for letter in map(chr, range(0x61, 0x30000)) if unicodedata.ucd_3_2_0.category(letter)[0] == "L"
    ]
    expected = {letter: unicodedata.normalize("NFC", in_php.get(letter, letter)) for letter in letters}
    assert {letter: normalise_title(f"Category:{letter}").partition(":")[2] for letter in letters} == expected


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
@example('100% "Edge"+Ledge & Sons? AC/DC; 1=2 #no')
def test_normalise_title_is_idempotent_and_survives_a_url(text: str) -> None:
    title = normalise_title(f"Category:{text}")
    assert normalise_title(title) == title
    path = title_path(title)
    assert path.isascii()
    assert urlsplit(f"{COMMONS}/wiki/{path}").path == f"/wiki/{path}"
    if title != "Category:":
        assert title_of_url(f"{COMMONS}/wiki/{path}") == title


@pytest.mark.parametrize("bad", ["|", "\x1f", "\n", "\x00", "\x7f"])
def test_unsendable_titles(bad: str) -> None:
    assert not is_sendable(f"Category:A{bad}B")
