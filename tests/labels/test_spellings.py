"""Spellings that are one label, spellings that are proposed, and words that only look alike."""

import re
from itertools import combinations

import pytest

from hgld.errors import ConfigurationError
from hgld.labels.spellings import DecidedSpellings, Variant, unify_spellings
from hgld.labels.wording import normalised_words

WORDS = frozenset(("cooking", "cookie", "stationery", "stationary", "umbrella", "thermometer"))
#: Different words in many languages: with other vowel signs, tones, voicing, accents, signs, or without a plural.
DIFFERENT = [
    "केला काला किला कोला",
    "बाजार बाजरा",
    "কলা কালা",
    "மலை மாலை",
    "ข้าว ขาว ข่าว เข่า",
    "ใกล้ ไกล",
    "か が",
    "はし ばし ぱし",
    "ハス バス パス",
    "ビル ビール",
    "ma má mà mả mã mạ",
    "عَلَم عِلْم",
    "שָׁנָה שֵׁנָה",
    "año ano",
    "sad sąd",
    "kar kâr",
    "pêche péché",
    "schon schön",
    "мой мои",
    "C C++ C#",
    "F# F",
    "A+ A A-",
    "5 -5 +5 ±5",
    "10² 102",
    "50% 50",
    "1-2 12",
    "3.5 35",
    ".NET NET",
    "arms arm",
    "glasses glass",
    "news new",
    "customs custom",
    "goods good",
    "physics physic",
    "lens len",
    "mews mew",
    "fils fil",
    "dachs dach",
    "años año",
]


@pytest.mark.parametrize("texts", DIFFERENT)
def test_different_words_stay_apart(texts: str) -> None:
    words = texts.split()
    labels, variants = unify_spellings(words, range(len(words), 0, -1), WORDS)
    assert labels == words
    assert not any(row.merged for row in variants)


@pytest.mark.parametrize(
    "texts", ["केला काला किला कोला", "ข้าว ขาว ข่าว", "か が", "C C++ C#", "A+ A A-", "5 -5", "año ano"]
)
def test_suggestions_compare_different_words_as_different(texts: str) -> None:
    for first, second in combinations(texts.split(), 2):
        assert normalised_words(first) != normalised_words(second)
        assert normalised_words(f"big {first}") != normalised_words(f"big {second}")


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("Lake", "lake", "case or spaces"),
        ("ice  cream", "ice cream", "case or spaces"),
        ("t-shirt", "T shirt", "hyphens"),
        ("beach_towel", "beach towel", "hyphens"),
        ("covid-19", "covid 19", "hyphens"),
        ("open‑air", "open-air", "Unicode form or invisible characters"),
        ("Ｃafe", "cafe", "Unicode form or invisible characters"),
        ("cafe\u0301", "café", "Unicode form or invisible characters"),
        ("castle / fort", "castle/fort", "Unicode form or invisible characters"),
        ("−5", "-5", "Unicode form or invisible characters"),
        ("straße", "Strasse", "case or spaces"),
        ("water\u200bfall", "waterfall", "Unicode form or invisible characters"),
        ("water\u00adfall", "waterfall", "Unicode form or invisible characters"),
        ("\ufeffwaterfall\u2060", "waterfall", "Unicode form or invisible characters"),
        ("می\u200cخواهم", "میخواهم", "Unicode form or invisible characters"),
        ("cake tins", "cake tin", "plural"),
        ("Beach-Towels", "beach towel", "plural"),
        ("buses", "bus", "plural"),
    ],
)
def test_spellings_are_one_label_with_the_reason(first: str, second: str, why: str) -> None:
    assert unify_spellings([first, second], [1, 2]) == ([second] * 2, [Variant(first, second, why, merged=True)])
    assert len({*unify_spellings([first, second], [2, 1])[0]}) == 1


@pytest.mark.parametrize(
    ("variant", "label", "why"),
    [
        ("cafe", "café", "accents"),
        ("Muesli", "Müsli", "accents"),
        ("Kaesemesser", "Käse-Messer", None),
        ("St Mary", "St. Mary", "punctuation or another spelling"),
        ("theater", "theatre", "punctuation or another spelling"),
        ("glass", "glasses", "perhaps a plural"),
        ("jalapeños", "jalapeño", "perhaps a plural"),
        ("Creme brulees", "crème brûlée", "accents"),
        ("umbrela stand", "umbrella stand", "typing mistake"),
        ("thermomteer", "thermometer", "typing mistake"),
        ("boats", "boots", None),
        ("tannery", "cannery", None),
        ("old power mill", "old tower mill", None),
        ("umbreila stand", "umbrella stand", None),
        ("cooking sheet", "cookie sheet", None),
        ("size 12 screw", "size 10 screw", None),
        ("drill hammer", "hammer drill", None),
        ("stationary", "stationery", None),
        ("ก็ข้าวผัดกุ้ง", "ก็ขาวผัดกุ้ง", None),
    ],
)
def test_labels_that_differ_by_more_are_proposed_at_most(variant: str, label: str, why: str | None) -> None:
    labels, variants = unify_spellings([label, label, variant], [1, 1, 1], WORDS)
    assert labels == [label, label, variant]
    assert variants == ([] if why is None else [Variant(variant, label, why, merged=False)])


def test_a_label_has_no_invisible_characters() -> None:
    assert unify_spellings(["lake\u200b", "lake"], [4, 3])[0] == ["lake", "lake"]
    assert unify_spellings(["\u200bCha\u0302teau\u00a0 d'Eau "], [1])[0] == ["Château d'Eau"]
    assert unify_spellings(["می\u200cخواهم"], [1])[0] == ["می\u200cخواهم"], "a joiner is part of this spelling"


def test_people_decide() -> None:
    texts = ["lights", "light", "Light", "cafe", "café", "caffe"]
    counts = [3, 2, 1, 2, 1, 1]
    decided = DecidedSpellings(
        apart=[("Lights", "light")],
        merged=[Variant("cafe", "café", "accents", True), Variant("caffe", "café", "by hand", True)],
    )
    labels, variants = unify_spellings(texts, counts, decided=decided)
    assert labels == ["lights", "light", "light", "café", "café", "café"]
    assert variants == [
        Variant("Light", "light", "case or spaces", merged=True),
        Variant("cafe", "café", "accents", merged=True),
        Variant("caffe", "café", "by hand", merged=True),
    ]
    assert unify_spellings(["cafe", "café"], [1, 1], decided=DecidedSpellings(apart=[("cafe", "café")]))[1] == []
    renamed = DecidedSpellings(merged=[Variant("coast", "shore", "", True), Variant("gone", "coast", "", True)])
    assert unify_spellings(["coast"], [1], decided=renamed)[0] == ["shore"]


@pytest.mark.parametrize(
    ("decided", "message"),
    [
        (DecidedSpellings(apart=[("Polish", "polish")]), '"Polish" and "polish" cannot be kept apart'),
        (
            DecidedSpellings(merged=[Variant("a", "b", "", True), Variant("b", "a", "", True)]),
            "merged in a circle: a, b, a",
        ),
        (
            DecidedSpellings(merged=[Variant("a", "b", "", True), Variant("a", "c", "", True)]),
            '"a" is merged with "b" and with "c"',
        ),
        (
            DecidedSpellings(apart=[("a", "b")], merged=[Variant("a", "c", "", True), Variant("b", "c", "", True)]),
            'kept apart, but both are merged with "c"',
        ),
    ],
)
def test_contradictory_decisions_are_refused(decided: DecidedSpellings, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        unify_spellings(["a", "b", "c", "Polish", "polish"], [1] * 5, decided=decided)


def test_long_words_are_compared_as_a_whole() -> None:
    words = ["x" * 20_000, "x" * 20_001, "y z" * 20_000, "lake"]
    assert unify_spellings(words, [1] * 4) == (words, [])
