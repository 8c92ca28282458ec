"""Suggestions for a list with a tree of its own, of which hgld has no vocabulary."""

from collections.abc import Mapping, Sequence

import numpy as np

from hgld.labels.group_examples import EmbeddedLabels
from hgld.labels.suggest import Suggestion, SuggestionInputs, suggest_groups
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group
from tests.labels.label_tables import classes_table, decision
from tests.labels.word_encoder import Words

LEVELS = ("style", "family", "texture")


def cheese(name: str, family: str, texture: str) -> Group:
    return Group(name, texture, "", between=(family,), levels=LEVELS)


CHEESES = (
    cheese("bloomy cow", "bloomy rind", "soft cheese"),
    cheese("bloomy goat", "bloomy rind", "soft cheese"),
    cheese("smear ripened", "washed rind", "soft cheese"),
    cheese("creamy veined", "marbled", "blue cheese"),
    cheese("firm veined", "crumbly", "blue cheese"),
    cheese("mountain wheel", "cooked", "hard cheese"),
    cheese("grana", "uncooked", "hard cheese"),
)
SOFT_CHEESE = cheese("soft cheese", "soft cheese", "soft cheese")


def suggest(
    labels: Sequence[str],
    decisions: Sequence[Decision] = (),
    superclasses: Mapping[str, Sequence[str]] | None = None,
    groups: Sequence[Group] = CHEESES,
) -> list[list[Suggestion]]:
    """Suggestions for labels whose ids are their texts; superclasses are names, too."""
    words = Words(2048)
    above = superclasses or {}
    named = {*labels, *(name for names in above.values() for name in names)}
    classes = {name: (name, above.get(name, ())) for name in sorted(named)}
    inputs = SuggestionInputs(
        labels=EmbeddedLabels(labels, labels, words.unit(labels)),
        landmarks=np.ones(len(labels), np.int64),
        groups=groups,
        vocabulary=(),
        classes=[classes_table(classes)],
        embed=words.unit,
    )
    return suggest_groups(inputs, decisions)


def textures(suggestions: Sequence[Suggestion], groups: Sequence[Group] = CHEESES) -> list[str]:
    texture_of = {group.key: group.path[-1] for group in groups}
    return [texture_of[suggestion.group] for suggestion in suggestions]


LABELS = ["roquefort", "stilton", "camembert", "brie", "gruyere", "emmental", "sbrinz", "comte", "feta", "gouda"]


def test_superclass_named_like_an_upper_level_puts_its_branch_first() -> None:
    superclasses = {
        "roquefort": ["blue cheese"],
        "stilton": ["veined blue cheese"],
        "gruyere": ["french product", "hard cheese"],
    }
    result = dict(zip(LABELS, suggest(LABELS, superclasses=superclasses), strict=True))
    assert textures(result["roquefort"])[0] == "blue cheese"
    assert textures(result["stilton"])[:2] == ["blue cheese", "blue cheese"]
    assert textures(result["gruyere"])[0] == "hard cheese"
    assert "as a subclass of blue cheese" in result["roquefort"][0].reason
    assert "in “blue cheese” with" in result["stilton"][1].reason


def test_superclass_of_a_superclass_counts_less() -> None:
    superclasses = {"roquefort": ["causses"], "causses": ["veined blue cheese"], "stilton": ["veined blue cheese"]}
    result = dict(zip(LABELS, suggest(LABELS, superclasses=superclasses), strict=True))
    assert textures(result["roquefort"])[:2] == ["blue cheese", "blue cheese"]
    assert "as a subclass of veined blue cheese" in result["roquefort"][0].reason
    assert result["roquefort"][0].score < result["stilton"][0].score


def test_names_that_say_nothing_make_nothing_likely() -> None:
    assert all(suggestions[0].score < 0.5 for suggestions in suggest(LABELS))


def test_one_decision_moves_the_suggestions_of_its_neighbours_to_the_branch() -> None:
    labels = [*LABELS, "pecorino romano", "pecorino sardo"]
    decided = [decision("pecorino romano", "pecorino romano", "grana")]
    first = suggest(labels, decided)[-1][0]
    before = {suggestion.group: suggestion.score for suggestion in suggest(labels)[-1]}
    assert first.group == "grana"
    assert first.score > before.get("grana", 0) + 0.1
    assert first.reason.startswith("like “pecorino romano” (decided grana)")


def test_decision_tells_of_the_other_groups_of_its_branch() -> None:
    labels = [*LABELS, "valley fourme", "valley bleu"]
    decided = [decision("valley fourme", "valley fourme", "creamy veined")]
    assert textures(suggest(labels)[-1]).count("blue cheese") < 2
    after = suggest(labels, decided)[-1]
    assert [suggestion.group for suggestion in after[:2]] == ["creamy veined", "firm veined"]


def test_decision_on_a_label_itself_leaves_its_suggestions_alone() -> None:
    labels = [*LABELS, "pecorino romano", "pecorino sardo"]
    own = decision("pecorino sardo", "pecorino sardo", "smear ripened")
    before, after = suggest(labels)[-1], suggest(labels, [own])[-1]
    assert [suggestion.group for suggestion in before] == [suggestion.group for suggestion in after]
    np.testing.assert_allclose([each.score for each in before], [each.score for each in after])


def test_group_above_others_is_suggested_where_the_evidence_ends_there() -> None:
    groups = (*CHEESES, SOFT_CHEESE)
    superclasses = {"camembert": ["soft cheese"], "brie": ["bloomy goat"]}
    result = dict(zip(LABELS, suggest(LABELS, (), superclasses, groups), strict=True))
    assert result["camembert"][0].group == "soft cheese"
    assert result["camembert"][0].score > 0.5
    assert textures(result["camembert"], groups) == ["soft cheese"] * 3
    assert result["brie"][0].group == "bloomy goat"


def test_dropped_neighbour_makes_every_group_less_likely() -> None:
    labels = [*LABELS, "pecorino romano", "pecorino sardo"]
    before = suggest(labels)[-1]
    after = suggest(labels, [decision("pecorino romano", "pecorino romano", None)])[-1]
    assert [suggestion.group for suggestion in before] == [suggestion.group for suggestion in after]
    assert all(less.score < more.score for less, more in zip(after, before, strict=True))
