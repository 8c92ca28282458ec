"""Singulars of English nouns."""

import pytest

from hgld.labels.plurals import likely_singular, singular

PAIRS = """
lake lakes, church churches, box boxes, city cities, day days, monkey monkeys, bus buses, minibus minibuses, gas
gases, lens lenses, campus campuses, virus viruses, canvas canvases, iris irises, atlas atlases, octopus
octopuses, walrus walruses, trellis trellises, rhinoceros rhinoceroses, glove gloves, cave caves, house houses,
lighthouse lighthouses, mouse mouses, mouse mice, fuse fuses, clause clauses, spouse spouses, nurse nurses,
corpse corpses, sense senses, cheese cheeses, base bases, vase vases, phrase phrases, exercise exercises,
tortoise tortoises, rose roses, glove gloves, cross crosses, fortress fortresses, dish dishes, bench benches,
arch arches, quiche quiches, cache caches, avalanche avalanches, headache headaches, loch lochs, stomach
stomachs, tax taxes, axe axes, quiz quizzes, waltz waltzes, prize prizes, potato potatoes, volcano volcanoes,
photo photos, shoe shoes, canoe canoes, zoo zoos, cookie cookies, pie pies, tie ties, movie movies, brownie
brownies, berry berries, menu menus, taxi taxis, ski skis, villa villas, pizza pizzas, leaf leaves, knife
knives, wolf wolves, shelf shelves, roof roofs, chef chefs, olive olives, man men, woman women, policeman
policemen, child children, foot feet, tooth teeth, goose geese, ox oxen, cactus cacti, cactus cactuses, stadium
stadia, stadium stadiums, criterion criteria, larva larvae, crisis crises, oasis oases, index indices, château
châteaux, chateau chateaux, bureau bureaus, dolmen dolmens, bee bees, mosque mosques, eye eyes
"""
OTHER_WORDS = """
news new arms glasses glass customs goods lens bus gas species series means physics mathematics athletics mews
gallows class basis chess abyss status tennis canvas iris bias specimen yamen dolmen children's 1990s c++ años
pierogi Lakes dachs fils
"""


@pytest.mark.parametrize("pair", [tuple(pair.split()) for pair in PAIRS.split(",")], ids="-".join)
def test_a_plural_has_the_singular_of_english(pair: tuple[str, str]) -> None:
    noun, plural = pair
    if noun.isascii():
        assert (singular(plural), singular(noun)) == (noun, noun)
    else:
        assert (singular(plural), singular(noun)) == (plural, noun), "a word with accents may be of any language"


@pytest.mark.parametrize(
    "word",
    OTHER_WORDS.split(),
)
def test_other_words_are_their_own_singular(word: str) -> None:
    assert singular(word) == word


def test_a_likely_singular_needs_no_english() -> None:
    assert [likely_singular(word) for word in ("arms", "käsekuchens", "news", "lens")] == [
        "arm",
        "käsekuchen",
        "news",
        "lens",
    ]
