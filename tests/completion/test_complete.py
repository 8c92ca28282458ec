import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hgld import tables
from hgld.completion import classifier
from hgld.completion.classifier import GroupVotes, References, fit_calibration, vote
from hgld.completion.complete import CompleteSummary, complete_file
from hgld.completion.inputs import (
    CompletionFiles,
    Vectors,
    find_completion_files,
    read_completion_inputs,
    read_photographs,
)
from hgld.completion.quality import calibration_error, evaluate_completion, hide_and_propose
from hgld.completion.settings import CompleteConfig
from hgld.errors import ConfigurationError, InputError
from hgld.tables.embeddings import read_embeddings, write_embeddings
from tests.commands import run_hgld
from tests.completion.landmark_photographs import (
    ROOTS,
    Landmark,
    labelled_landmarks,
    photographs_like,
    write_landmarks,
)

RANDOM = np.random.default_rng(7)
UNLABELLED = [
    Landmark("train", 100, None, photographs_like("lake", 3, RANDOM)),
    Landmark("train", 101, None, []),
    Landmark("train", 102, None, photographs_like("church", 1, RANDOM)),
    Landmark("index", 100, None, photographs_like("bridge", 2, RANDOM)),
    Landmark("train", 103, None, photographs_like("lake", 2, RANDOM), reason="multiple"),
    Landmark("train", 104, None, photographs_like("lake", 2, RANDOM), reason="excluded"),
]


@pytest.fixture
def files(tmp_path: Path) -> CompletionFiles:
    return write_landmarks(tmp_path, [*labelled_landmarks(45), *UNLABELLED])


Rows = dict[tuple[str, int], dict[str, Any]]


def proposals(path: Path) -> Rows:
    rows = tables.read_table(path, tables.COMPLETED).to_pylist()
    return {(row["split"], row["landmark_id"]): row for row in rows}


def complete(files: CompletionFiles, out: Path, config: CompleteConfig | None = None) -> tuple[CompleteSummary, Rows]:
    """Complete a hierarchy that has something to complete; return the summary, and the rows by landmark."""
    summary = complete_file(files, out, config)
    assert summary is not None
    return summary, proposals(out)


def test_every_landmark_without_a_group_has_a_row(files: CompletionFiles, tmp_path: Path) -> None:
    summary, rows = complete(files, tmp_path / "completed.parquet")
    assert (summary.landmarks, summary.proposed, summary.photographs) == (4, 3, 6)
    assert (summary.labelled, summary.calibrated_on) == (45, 45)
    assert list(rows) == [("index", 100), ("train", 100), ("train", 101), ("train", 102)]
    assert {key: row["group"] for key, row in rows.items()} == {
        ("index", 100): "bridge",
        ("train", 100): "lake",
        ("train", 101): None,
        ("train", 102): "church",
    }
    lake, nothing = rows["train", 100], rows["train", 101]
    assert lake["photographs"] == 3
    assert 2 < float(str(lake["votes"])) <= 3
    assert 0.5 < float(str(lake["score"])) < 1
    nearest = lake["nearest"]
    assert isinstance(nearest, list)
    assert nearest[0]["group"] == "lake"
    assert nearest == sorted(nearest, key=lambda row: -row["similarity"])
    assert all(int(row["name"].removeprefix("train/")) % 3 == list(ROOTS).index(row["group"]) for row in nearest)
    assert (nothing["photographs"], nothing["votes"], nothing["score"], nothing["nearest"]) == (0, 0, None, [])


def test_changed_ids_and_splits_are_changed_inputs(files: CompletionFiles, tmp_path: Path) -> None:
    out = tmp_path / "completed.parquet"
    train = replace(files, image_landmarks=[tmp_path / "train.csv"])
    complete_file(train, out)
    assert complete_file(replace(files, image_landmarks=[("train", tmp_path / "train.csv")]), out) is None
    ids = files.embeddings[0].with_suffix(".ids.txt")
    ids.write_text(ids.read_text().replace("train-102-0", "unlisted"))
    assert complete(train, out)[1]["train", 102]["photographs"] == 0
    # Labelled landmarks 0 to 44 are of train; with the other split there are none with photographs.
    with pytest.raises(InputError, match="0 labelled landmarks have photographs"):
        complete_file(replace(files, image_landmarks=[("index", tmp_path / "train.csv")]), out)


def test_other_reasons_are_read_on_request(files: CompletionFiles, tmp_path: Path) -> None:
    config = CompleteConfig(reasons=["excluded", "multiple"])
    only_excluded = find_completion_files(files.hierarchy, files.embeddings, files.image_landmarks, ["excluded"])
    assert only_excluded.removed is None, "no table is read that no reason needs"
    more = find_completion_files(files.hierarchy, files.embeddings, files.image_landmarks[:1], config.reasons)
    _, rows = complete(more, tmp_path / "completed.parquet", config)
    assert {key: row["reason"] for key, row in rows.items()} == {
        ("train", 103): "multiple",
        ("train", 104): "excluded",
    }


def test_landmarks_completed_before_are_proposed_again_and_teach_nothing(
    files: CompletionFiles, tmp_path: Path
) -> None:
    expected = complete(files, tmp_path / "completed.parquet")[1]
    rows = tables.read_table(files.hierarchy, tables.HIERARCHY).to_pylist()
    completed = rows[0] | {"landmark_id": 100, "hierarchical_label": "church"}
    rows = [row | {"label_source": "instance_of"} for row in rows] + [completed | {"label_source": "photographs"}]
    schema = tables.HIERARCHY.schema.append(tables.HIERARCHY.optional.field("label_source"))
    table = pa.Table.from_pylist(rows, schema=schema)
    tables.write_table(files.hierarchy, tables.HIERARCHY, table, tables.Provenance("test"))
    assert complete(files, tmp_path / "again.parquet")[1] == expected


def test_several_files_of_embeddings_are_one_set(files: CompletionFiles, tmp_path: Path) -> None:
    _, expected = complete(files, tmp_path / "one.parquet")
    whole = read_embeddings(files.embeddings[0])
    assert whole.ids is not None
    parts = [tmp_path / "a.npy", tmp_path / "b.safetensors"]
    for path, rows in zip(parts, (slice(0, 50), slice(50, None)), strict=True):
        write_embeddings(path, whole.vectors[rows], whole.ids[rows])
    assert complete(replace(files, embeddings=parts), tmp_path / "two.parquet")[1] == expected


def test_images_of_no_landmark_of_the_tables_are_ignored(files: CompletionFiles, tmp_path: Path) -> None:
    _, expected = complete(files, tmp_path / "one.parquet")
    whole = read_embeddings(files.embeddings[0])
    assert whole.ids is not None
    # One image that is not listed, and one of a landmark that is in no table.
    vectors = torch.cat([whole.vectors, torch.full((2, 8), torch.nan)])
    write_embeddings(files.embeddings[0], vectors, [*whole.ids.tolist(), "unlisted", "elsewhere"])
    with (tmp_path / "train.csv").open("a") as stream:
        stream.write("elsewhere,999\nnot-embedded,100\n")
    assert complete(files, tmp_path / "two.parquet")[1] == expected


def test_landmark_ids_in_the_embeddings_suffice_for_one_split(tmp_path: Path) -> None:
    files = write_landmarks(tmp_path, [*labelled_landmarks(30), UNLABELLED[0]])
    _, expected = complete(files, tmp_path / "listed.parquet")
    whole = read_embeddings(files.embeddings[0])
    assert whole.ids is not None
    numbers = np.array([int(name.split("-")[1]) for name in whole.ids.tolist()])
    path = tmp_path / "with_ids.parquet"
    write_embeddings(path, whole.vectors, whole.ids, numbers)
    assert complete(replace(files, embeddings=[path], image_landmarks=[]), tmp_path / "direct.parquet")[1] == expected


def test_landmark_ids_in_the_embeddings_need_one_split(files: CompletionFiles, tmp_path: Path) -> None:
    """Numbers of landmarks are those of a split: the same number is another landmark in the other split."""
    whole = read_embeddings(files.embeddings[0])
    assert whole.ids is not None
    numbers = np.array([int(name.split("-")[1]) for name in whole.ids.tolist()])
    path = tmp_path / "with_ids.parquet"
    write_embeddings(path, whole.vectors, whole.ids, numbers)
    message = "landmark ids without a split, but there are landmarks of train and index; name the landmark of each"
    with pytest.raises(ConfigurationError, match=message):
        complete_file(replace(files, embeddings=[path], image_landmarks=[]), tmp_path / "completed.parquet")
    assert not (tmp_path / "completed.parquet").exists()


def _nan(vectors: torch.Tensor) -> None:
    vectors[3, 2] = torch.nan


def _zeros(vectors: torch.Tensor) -> None:
    vectors[3] = 0


@pytest.mark.parametrize("spoil", [_nan, _zeros])
def test_vectors_without_a_direction_are_refused(
    spoil: Callable[[torch.Tensor], None], files: CompletionFiles, tmp_path: Path
) -> None:
    whole = read_embeddings(files.embeddings[0])
    assert whole.ids is not None
    vectors = whole.vectors.clone()
    spoil(vectors)
    write_embeddings(files.embeddings[0], vectors, whole.ids)
    with pytest.raises(InputError, match=rf"1 embeddings have NaN .* only zeros: {whole.ids[3]};"):
        complete_file(files, tmp_path / "completed.parquet")


def test_problems_of_the_inputs_are_named(files: CompletionFiles, tmp_path: Path) -> None:
    out = tmp_path / "completed.parquet"
    no_index = write_landmarks(tmp_path, [*labelled_landmarks(20), UNLABELLED[0]], name="train.npy")
    with pytest.raises(ConfigurationError, match="images of the split index, but there are landmarks of train only"):
        complete_file(replace(no_index, image_landmarks=[("index", tmp_path / "train.csv")]), out)
    files = write_landmarks(tmp_path, [*labelled_landmarks(20), *UNLABELLED])
    with pytest.raises(InputError, match="has no landmark ids; name the landmark of each image in `image_landmarks`"):
        complete_file(replace(files, image_landmarks=[]), out)
    (tmp_path / "other.csv").write_text("id,landmark_id\nx,1\n")
    with pytest.raises(InputError, match="none of these images is of a landmark"):
        complete_file(replace(files, image_landmarks=[("train", tmp_path / "other.csv")]), out)


@pytest.mark.parametrize(
    ("landmarks", "message"),
    [
        ([*labelled_landmarks(19), UNLABELLED[0]], "19 labelled landmarks have photographs; expected 20 or more"),
        (labelled_landmarks(20), "no landmark lacks a group for the reason unlabelled"),
    ],
)
def test_too_little_to_compare_or_to_propose(tmp_path: Path, landmarks: list[Landmark], message: str) -> None:
    with pytest.raises(InputError, match=message):
        complete_file(write_landmarks(tmp_path, landmarks), tmp_path / "completed.parquet")


def test_landmarks_without_photographs_alone_get_rows_without_proposals(tmp_path: Path) -> None:
    files = write_landmarks(tmp_path, [*labelled_landmarks(20), UNLABELLED[1]])
    summary, rows = complete(files, tmp_path / "completed.parquet")
    assert (summary.landmarks, summary.proposed, summary.photographs) == (1, 0, 0)
    (row,) = rows.values()
    assert (row["photographs"], row["group"], row["score"]) == (0, None, None)


def test_the_only_landmark_of_a_group_counts_as_wrong(tmp_path: Path) -> None:
    """Nobody else can find its group; calibration would be too bold if it left such landmarks out."""
    first, *others = labelled_landmarks(21, noise=0.01)
    others = [replace(landmark, group="lake") for landmark in others]
    files = write_landmarks(tmp_path, [first, *others, UNLABELLED[0]])
    summary, _ = complete(files, tmp_path / "completed.parquet")
    assert summary.accuracy == pytest.approx(20 / 21)


def test_one_group_gives_the_score_of_the_rule_of_succession(tmp_path: Path) -> None:
    landmarks = [replace(landmark, group="lake") for landmark in labelled_landmarks(20)]
    files = write_landmarks(tmp_path, [*landmarks, UNLABELLED[2]])
    (row,) = complete(files, tmp_path / "completed.parquet", CompleteConfig(k=1000))[1].values()
    assert row["group"] == "lake"
    assert row["score"] == pytest.approx(21 / 22)
    assert (row["second_group"], row["second_votes"]) == (None, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"k": 0}, "`k` is 0"),
        ({"reasons": []}, "`reasons` is empty"),
        ({"reasons": ["unlabelled", "dropped"]}, "`reasons` is dropped"),
        ({"method": "guess"}, '`method` is "guess"'),
        ({"calibration_landmarks": 5}, "`calibration_landmarks` is 5"),
        ({"device": "cuda:99"}, 'device "cuda:99" cannot be used'),
    ],
)
def test_settings_out_of_range_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        CompleteConfig(**values)  # type: ignore[arg-type]


def test_hidden_groups_do_not_reach_their_proposals(tmp_path: Path) -> None:
    landmarks = labelled_landmarks(40, noise=0.8)
    config = CompleteConfig()

    def hidden_half(groups: list[str | None]) -> tuple[list[bool], list[float]]:
        changed = [replace(landmark, group=group) for landmark, group in zip(landmarks, groups, strict=True)]
        files = write_landmarks(tmp_path, changed)
        quality = hide_and_propose(read_completion_inputs(files, config.reasons), config, [hidden])
        return quality.group_right.tolist(), quality.score.tolist()

    hidden = np.arange(0, 40, 2)
    truth = [landmark.group for landmark in landmarks]
    lied = ["bridge" if number in hidden else group for number, group in enumerate(truth)]
    right, scores = hidden_half(truth)
    wrong, same_scores = hidden_half(lied)
    assert scores == same_scores
    assert right != wrong


def test_quality_counts_what_is_accepted(tmp_path: Path) -> None:
    files = write_landmarks(tmp_path, labelled_landmarks(90, noise=0.5))
    picture = tmp_path / "coverage.png"
    quality = evaluate_completion(files, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    everything, nothing = quality.accepted(0), quality.accepted(1.01)
    assert (everything.n_landmarks, everything.coverage) == (90, 1)
    assert everything.group_accuracy[0] == pytest.approx(quality.group_right.mean())
    assert everything.group_accuracy[1] < everything.group_accuracy[0] < everything.group_accuracy[2]
    assert everything.root_accuracy[0] >= everything.group_accuracy[0] > 0.6
    assert nothing.n_landmarks == 0
    assert np.isnan(nothing.group_accuracy[0])
    # A third of the landmarks is in each group, and two thirds are human-made.
    assert quality.baseline[0] <= 0.34
    assert quality.baseline[1] == pytest.approx(2 / 3)
    assert sum(count for _, _, count in quality.misses) == 90 - quality.group_right.sum()


@pytest.mark.parametrize(
    ("score", "right", "error"),
    [
        ([1.0, 0.0], [True, False], 0.0),
        ([1.0, 1.0], [True, False], 0.5),
        ([0.75, 0.75, 0.75, 0.75], [True, True, True, False], 0.0),
        ([0.95, 0.25], [True, True], (0.05 + 0.75) / 2),
    ],
)
def test_calibration_error_of_small_examples(score: list[float], right: list[bool], error: float) -> None:
    assert calibration_error(np.array(score), np.array(right)) == pytest.approx(error)


def test_the_command_proposes_and_evaluates(files: CompletionFiles, tmp_path: Path) -> None:
    def run(*options: object) -> str:
        images = [item for path in files.image_landmarks for item in ("--image-landmarks", path)]
        command = ["complete", files.hierarchy, "--embeddings", files.embeddings[0], *images, *options]
        return run_hgld(*command).stdout

    out = tmp_path / "completed.parquet"
    printed = run("-o", out)
    assert printed.startswith(
        "3 of 4 landmarks without a group have a proposal, from 6 photographs; 1 have no photographs\n"
    )
    assert run("-o", out) == f"{out}: up to date\n"
    printed = run("-o", tmp_path / "quality.parquet", "--evaluate")
    assert printed.startswith("45 labelled landmarks with photographs, a 10th of them hidden at a time\n")
    assert (tmp_path / "quality.coverage.png").is_file()
    assert not (tmp_path / "quality.parquet").exists()


@pytest.mark.slow
def test_zero_shot_with_the_two_towers_of_one_clip_model(tmp_path: Path) -> None:
    """Images are embedded by the image tower and texts by the text tower of a local checkpoint, of random weights."""
    import open_clip

    tiny = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }
    (tmp_path / "tiny-zero-shot.json").write_text(json.dumps(tiny))
    open_clip.add_model_config(tmp_path / "tiny-zero-shot.json")
    torch.manual_seed(0)
    model = open_clip.create_model("tiny-zero-shot").eval()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    tokens = open_clip.get_tokenizer("tiny-zero-shot")(["A picture of a lake", "A picture of a church building"])
    with torch.inference_mode():
        texts = model.encode_text(tokens).tolist()
        image = model.encode_image(torch.rand(1, 3, 32, 32)).tolist()
    landmarks = [
        *(replace(landmark, vectors=image) for landmark in labelled_landmarks(21)),
        Landmark("train", 100, None, [texts[0]]),
        Landmark("train", 101, None, [texts[1]]),
        Landmark("train", 102, None, image),
    ]
    files = write_landmarks(tmp_path, landmarks)
    encoder = f"open_clip:tiny-zero-shot/{tmp_path / 'weights.pt'}"
    config = CompleteConfig(method="zero-shot", k=1, encoder=encoder)
    summary, proposed = complete(files, tmp_path / "completed.parquet", config)
    assert summary.proposed == 3
    rows = list(proposed.values())
    assert [row["group"] for row in rows[:2]] == ["lake", "church"]
    nearest = rows[1]["nearest"]
    assert isinstance(nearest, list)
    assert nearest[0]["name"] == "church building"
    assert nearest[0]["similarity"] == pytest.approx(1, abs=1e-4)
    # Hidden landmarks have the same photograph, so the same proposal.
    assert summary.accuracy == pytest.approx(1 / 3)
    provenance = tables.read_provenance(tmp_path / "completed.parquet")
    assert provenance.parameters["encoder"] == encoder
    assert "checkpoint" in provenance.inputs
    whole = read_embeddings(files.embeddings[0])
    assert whole.ids is not None
    write_embeddings(files.embeddings[0], whole.vectors[:, :6].clone(), whole.ids)
    with pytest.raises(InputError, match="the texts have 8 dimensions and the photographs 6"):
        complete_file(files, tmp_path / "completed.parquet", config)


N_GROUPS = 4


def photographs(vectors: NDArray[np.float32], landmark: NDArray[np.int64]) -> Vectors:
    return Vectors(torch.from_numpy(vectors), np.arange(len(vectors)), landmark)


def test_vectors_without_a_direction_are_unusable() -> None:
    vectors = np.array([[3, 4], [np.inf, 1], [0, 0], [np.nan, 1]], np.float32)
    assert photographs(vectors, np.zeros(4, np.int64)).unusable().tolist() == [1, 2, 3]


def test_files_of_different_models_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, dim in zip(paths, (8, 6), strict=True):
        write_embeddings(path, torch.ones(1, dim), [path.stem])
    landmarks = pa.table({"split": ["train"], "landmark_id": [1]})
    with pytest.raises(InputError, match=r"embeddings differ in dimension \(.*a.parquet: 8, .*b.parquet: 6\)"):
        read_photographs(paths, [], landmarks)


def references(vectors: NDArray[np.float32], item: NDArray[np.int64], *, are_landmarks: bool = True) -> References:
    n = int(item.max()) + 1
    names = [f"train/{number}" for number in range(n)]
    groups = np.arange(n) % N_GROUPS
    return References(photographs(vectors, item), groups, names, are_landmarks)


def votes_by_hand(
    queries: Vectors, gallery: References, k: int, temperature: float
) -> tuple[dict[int, list[float]], dict[int, list[int]]]:
    """Votes by landmark and its nearest items, one photograph and one reference at a time."""
    votes: dict[int, list[float]] = {}
    best: dict[int, dict[int, float]] = {}
    for row, landmark in enumerate(queries.item.tolist()):
        query = queries.unit(slice(row, row + 1))[0]
        scored = []
        for position, item in enumerate(gallery.vectors.item.tolist()):
            if not (gallery.are_landmarks and item == landmark):
                scored.append(
                    (-float(query @ gallery.vectors.unit(slice(position, position + 1))[0]), position, item)
                )
        nearest = sorted(scored)[:k]
        total = sum(np.exp(-score / temperature) for score, _, _ in nearest)
        row_votes = votes.setdefault(landmark, [0.0] * N_GROUPS)
        similarities = best.setdefault(landmark, {})
        for score, _, item in nearest:
            row_votes[int(gallery.groups[item])] += float(np.exp(-score / temperature) / total)
            similarities[item] = max(similarities.get(item, -1.0), -score)
    order = {landmark: sorted(items, key=lambda item: (-items[item], item))[:5] for landmark, items in best.items()}
    return votes, order


@pytest.mark.parametrize("are_landmarks", [True, False])
@pytest.mark.parametrize("k", [1, 3, 100])
def test_votes_are_those_of_a_naive_count(k: int, are_landmarks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(classifier._BLOCKS, "cpu", (7, 5))
    random = np.random.default_rng(k)
    gallery = references(
        random.normal(size=(40, 6)).astype(np.float32), random.integers(0, 12, 40), are_landmarks=are_landmarks
    )
    queries = photographs(random.normal(size=(30, 6)).astype(np.float32), random.integers(0, 20, 30))
    result = vote(queries, gallery, N_GROUPS, k=k, temperature=0.1)
    votes, nearest = votes_by_hand(queries, gallery, k, 0.1)
    assert result.landmark.tolist() == sorted(votes)
    np.testing.assert_allclose(result.votes, [votes[landmark] for landmark in sorted(votes)], atol=1e-4)
    np.testing.assert_allclose(result.votes.sum(axis=1), result.photographs)
    for row, landmark in enumerate(result.landmark.tolist()):
        assert result.nearest["item"][result.nearest["row"] == row].tolist() == nearest[landmark]


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))
def test_blocks_and_ties_do_not_change_votes(k: int, n_queries: int, n_references: int) -> None:
    random = np.random.default_rng(0)
    # Vectors of few directions whose products are exact, so that many similarities are equal.
    directions = np.eye(3, dtype=np.float32)
    gallery = references(directions[random.integers(0, 3, 23)], random.integers(0, 9, 23))
    queries = photographs(directions[random.integers(0, 3, 11)], random.integers(0, 9, 11))
    expected = vote(queries, gallery, N_GROUPS, k=k, temperature=0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(classifier._BLOCKS, "cpu", (n_queries, n_references))
        result = vote(queries, gallery, N_GROUPS, k=k, temperature=0.1)
    np.testing.assert_array_equal(result.votes, expected.votes)
    assert result.nearest.equals(expected.nearest)


def test_photographs_with_nothing_to_compare_with_do_not_vote() -> None:
    vectors = np.eye(3, dtype=np.float32)
    alone = np.zeros(3, np.int64)
    result = vote(photographs(vectors, alone), references(vectors, alone), N_GROUPS, k=2, temperature=0.1)
    assert result.photographs.tolist() == [3]
    assert not result.votes.any()
    assert result.similarity.tolist() == [0.0]
    assert not len(result.nearest)


def made_up_votes(share: NDArray[np.float64], similarity: NDArray[np.float64]) -> GroupVotes:
    n = len(share)
    return GroupVotes(
        landmark=np.arange(n),
        photographs=np.ones(n, np.int64),
        votes=np.stack([share, 1 - share], axis=1),
        similarity=similarity,
        nearest=None,  # type: ignore[arg-type]
    )


def test_scores_are_the_probability_of_being_right() -> None:
    random = np.random.default_rng(0)
    share, similarity = random.uniform(0.5, 1, 20_000), random.uniform(size=20_000)
    probability = 1 / (1 + np.exp(-(6 * share + similarity - 5)))
    votes = made_up_votes(share, similarity)
    scores = fit_calibration(votes, random.uniform(size=20_000) < probability)(votes)
    assert np.abs(scores - probability).max() < 0.03


@pytest.mark.parametrize(("right", "score"), [(True, 21 / 22), (False, 1 / 22)])
def test_one_outcome_gives_one_score(right: bool, score: float) -> None:
    votes = made_up_votes(np.linspace(0.5, 1, 20), np.full(20, 0.7))
    np.testing.assert_allclose(fit_calibration(votes, np.full(20, right))(votes), score)
