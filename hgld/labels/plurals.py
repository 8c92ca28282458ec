"""Singulars of English nouns.

The ending of a plural depends on its singular: ``buses`` is the plural of ``bus``, and ``fuses`` is
the plural of ``fuse``. Rules choose the ending, and lists name the exceptions. Words that end in s
without being a plural (lens, news), and plurals that name another thing than the singular does
(arms, glasses), are their own singulars.
"""

from __future__ import annotations

import re
from functools import lru_cache

_ENGLISH_LETTERS = re.compile("[a-z]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Words in s that have no singular, and words of other languages that look like English plurals.
_NO_PLURALS = _words(
    """
    alias asbestos athens atlas bellows biceps biogas bias canvas chaos christmas cosmos cyclops eaves ethos
    forceps gallows gas hades herpes innings james kansas lens logos mars means measles mews molasses mumps
    mythos naos naples news pampas pancreas pathos pharos physics quadriceps rabies rhinoceros scabies series
    shambles species speos summons temenos texas thames thermos tholos triceps tripos venus wales acoustics
    aerobics aeronautics athletics ballistics classics cybernetics dynamics economics electronics ergonomics
    ethics genetics gymnastics hydraulics linguistics logistics mathematics maths mechanics numismatics optics
    phonetics politics robotics semantics statistics tactics thermodynamics concours cours dachs discours fils
    flachs fois fonds fuchs gras hals kurs lachs lebens luchs mops parcours poids puls temps vers
    """
)
#: Plurals that name another thing than their singular: arms are weapons, and glasses are worn.
_OTHER_THINGS = _words(
    """
    antipodes arms braces brains briefs checkers clothes colours customs damages darts dominoes draughts funds
    glasses goods grounds guts looks manners minutes morals odds outskirts pants quarters riches savings shorts
    slacks spectacles spirits stocks surroundings suspenders thanks tights trunks woods works
    """
)
#: Plurals of nouns in s and z, which lose ``es`` where most plurals with the same ending lose
#: ``s``.
_LOSE_ES = _words(
    """
    acropolises aliases amaryllises atlases biases biogases canvases chrysalises christmases clematises
    epidermises gases ibises irises lenses mantises metropolises necropolises pancreases pelvises portcullises
    rhinoceroses summonses thermoses topazes trellises
    """
)
#: Plurals of nouns in e, i, o and u, which lose only ``s``, unlike most words with the same ending.
_LOSE_S = _words(
    """
    abuses accuses axes battleaxes broadaxes chartreuses excuses fuses hypotenuses masseuses muses pickaxes
    poleaxes recluses refuses reuses ruses uses aches apaches avalanches backaches barouches brioches caches
    cartouches cliches creches douches earaches gouaches headaches heartaches microfiches moustaches mustaches
    niches pastiches psyches quiches stomachaches toothaches tranches aloes backhoes canoes does floes foes hoes
    horseshoes oboes overshoes roes shoes sloes snowshoes tiptoes toes aunties beanies birdies bogies bookies
    brasseries brownies budgies caddies calories collies cookies coteries cowries eyries foodies genies goalies
    groupies hippies hoodies junkies laddies lassies magpies menageries movies neckties newbies nighties
    patisseries pinkies pixies prairies reveries rookies rotisseries selfies smoothies sorties sweeties townies
    veggies zombies alibis bikinis bonsais chilis corgis emojis khakis kiwis martinis minis rabbis safaris
    salamis samurais saris skis sufis taxis tipis tsunamis yetis zucchinis bayous bureaus caribous chateaus emus
    gateaus gnus gurus haikus kudus menus plateaus tableaus tutus zebus
    """
)
#: Plurals of Latin nouns in um and us.
_LATIN_A = _words(
    """
    aquaria auditoria bacteria columbaria curricula emporia errata gymnasia herbaria mausolea memoranda
    millennia planetaria podia sanatoria solaria stadia strata symposia terraria vivaria
    """
)
_LATIN_I = _words(
    """
    alumni bacilli cacti foci fungi gladioli hippopotami loci nuclei octopi radii sarcophagi stimuli syllabi
    termini thesauri tumuli
    """
)
_LATIN_AE = _words(
    "algae alumnae amphorae antennae formulae lacunae larvae nebulae novae vertebrae"
)
#: Plurals of compounds with man.
_MEN = _words(
    """
    businessmen businesswomen cavemen chairmen clergymen craftsmen doormen draughtsmen firemen fishermen footmen
    foremen gentlemen gunmen horsemen huntsmen milkmen noblemen policemen policewomen postmen salesmen seamen
    snowmen sportsmen statesmen watchmen women workmen
    """
)
#: Nouns in f and fe whose plural ends in ves.
_NOUNS_IN_F = _words(
    """
    bookshelf calf dwarf elf half hoof housewife jackknife knife leaf life loaf midwife penknife scarf sheaf shelf
    thief werewolf wharf wife wolf
    """
)
_IRREGULAR = {
    "analyses": "analysis",
    "apices": "apex",
    "appendices": "appendix",
    "busses": "bus",
    "children": "child",
    "codices": "codex",
    "crises": "crisis",
    "criteria": "criterion",
    "diagnoses": "diagnosis",
    "dormice": "dormouse",
    "feet": "foot",
    "fezzes": "fez",
    "gasses": "gas",
    "geese": "goose",
    "grandchildren": "grandchild",
    "hypotheses": "hypothesis",
    "indices": "index",
    "lice": "louse",
    "matrices": "matrix",
    "men": "man",
    "metamorphoses": "metamorphosis",
    "mice": "mouse",
    "neuroses": "neurosis",
    "oases": "oasis",
    "oxen": "ox",
    "parentheses": "parenthesis",
    "phenomena": "phenomenon",
    "prostheses": "prosthesis",
    "quizzes": "quiz",
    "syntheses": "synthesis",
    "teeth": "tooth",
    "theses": "thesis",
    "vertices": "vertex",
    "vortices": "vortex",
}
for _noun in _NOUNS_IN_F:
    _IRREGULAR[_noun.removesuffix("e").removesuffix("f") + "ves"] = _noun


@lru_cache(maxsize=100_000)
def singular(word: str) -> str:
    """Return the singular of an English noun in lower case; the word itself unless it is a plural.

    >>> [singular(word) for word in ("lakes", "churches", "cities", "buses", "fuses", "wolves", "policemen")]
    ['lake', 'church', 'city', 'bus', 'fuse', 'wolf', 'policeman']
    >>> [singular(word) for word in ("lens", "news", "arms", "glass", "años")]
    ['lens', 'news', 'arms', 'glass', 'años']
    """
    if word in _NO_PLURALS or word in _OTHER_THINGS or not _ENGLISH_LETTERS.fullmatch(word):
        return word
    return _singular_of_plural(word)


def likely_singular(word: str) -> str:
    """Return the singular of a word of any language that may be a plural.

    Unlike :func:`singular`, it also changes plurals that name another thing than their singular.

    >>> likely_singular("jalapeños"), likely_singular("glasses"), likely_singular("news")
    ('jalapeño', 'glass', 'news')
    """
    if word in _NO_PLURALS:
        return word
    return _singular_of_plural(word)


def _singular_of_plural(word: str) -> str:
    """Apply the lists of exceptions, then the rules."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _LOSE_ES:
        return word[:-2]
    if word in _LOSE_S:
        return word[:-1]
    if word in _LATIN_A:
        return word[:-1] + "um"
    if word in _LATIN_I:
        return word[:-1] + "us"
    if word in _LATIN_AE:
        return word[:-1]
    if word in _MEN:
        return word[:-3] + "man"
    if word.endswith("eaux") and word != "bordeaux":
        return word[:-1]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes", "tzes", "oes")):
        return word[:-2]
    if word.endswith("uses") and not word.endswith(("auses", "ouses")):
        return word[:-2]
    if word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
