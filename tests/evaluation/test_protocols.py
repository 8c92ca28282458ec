import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.compute.processes import Processes
from hgld.datasets.image_labels import ImageLabels
from hgld.datasets.readers.dyml import LEVELS
from hgld.datasets.readers.revisited import RevisitedGroundTruth
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import (
    EvaluationConfig,
    EvaluationFiles,
    RankingConfig,
    evaluate_files,
    evaluate_retrieval,
    evaluate_tasks,
)
from hgld.evaluation.evaluation_files import get_protocol
from hgld.evaluation.metrics import revisited_average_precision, revisited_precision_at
from hgld.evaluation.protocols import (
    benchmark_tasks,
    labelled_leave_one_out,
    labelled_retrieval,
    revisited_tasks,
    tasks_by_level,
)
from hgld.evaluation.settings import PROTOCOLS
from hgld.io.text_array import TextArray
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings, write_embeddings
from tests.commands import run_hgld

CONFIG = EvaluationConfig()


def embedded(n_images: int, seed: int, *, prefix: str = "", dim: int = 6) -> Embeddings:
    vectors = torch.from_numpy(np.random.default_rng(seed).standard_normal((n_images, dim)))
    ids = TextArray([f"{prefix}{number:03}" for number in range(n_images)])
    return Embeddings(vectors, ids, None, Path("images.npy"))


def labelled(n_images: int, seed: int, *, unlabelled: int = 0) -> ImageLabels:
    """Labels of three levels; the first images have none."""
    fine = np.random.default_rng(seed).integers(12, size=n_images)
    labels = np.stack([fine, fine // 3, fine // 6], axis=1)
    known = np.arange(n_images) >= unlabelled
    labels[~known] = -1
    return ImageLabels(labels, ("landmark", "group", "root"), known)


def test_leave_one_out_excludes_images_without_labels() -> None:
    images, labels = embedded(50, 1), labelled(50, 2, unlabelled=8)
    (result,) = evaluate_tasks([labelled_leave_one_out(images, labels)])
    alone = evaluate_retrieval(images.vectors[8:], labels.labels[8:])
    assert result.means == pytest.approx(alone.means)
    assert result.counts["images_without_labels"] == 8
    assert result.per_query.index.tolist() == [f"{number:03}" for number in range(8, 50)]


def test_retrieval_excludes_unlabelled_images_and_the_query_itself() -> None:
    queries, gallery = embedded(20, 3), embedded(60, 4)  # the ids of the queries are in the gallery, too
    query_labels, gallery_labels = labelled(20, 5, unlabelled=4), labelled(60, 6, unlabelled=9)
    (result,) = evaluate_tasks([labelled_retrieval(queries, query_labels, gallery, gallery_labels)])
    assert queries.ids is not None
    assert gallery.ids is not None
    alone = evaluate_retrieval(
        queries.vectors[4:],
        query_labels.labels[4:],
        gallery.vectors[9:],
        gallery_labels.labels[9:],
        query_ids=queries.ids[4:],
        gallery_ids=gallery.ids[9:],
    )
    assert result.means == pytest.approx(alone.means)
    pd.testing.assert_frame_equal(result.per_query, alone.per_query)
    assert result.counts["queries_without_labels"] == 4
    assert result.counts["gallery_without_labels"] == 9
    assert result.counts["queries_in_gallery"] == 16


def test_split_of_a_manifest_is_evaluated_and_the_rest_counted(tmp_path: Path) -> None:
    images = embedded(8, 1)
    write_embeddings(tmp_path / "e.npy", images.vectors, [f"{number:03}" for number in range(8)])
    rows = [f"{number:03},{'test' if number < 4 else 'train'},{number % 2}" for number in range(6)]
    (tmp_path / "m.csv").write_text("\n".join(["path,split,class", *rows]))
    result = run_hgld(
        "evaluate", f"--embeddings={tmp_path / 'e.npy'}", f"--manifest={tmp_path / 'm.csv'}", "--split=test", "--json"
    )
    (found,) = json.loads(result.stdout)["results"]
    alone = evaluate_retrieval(images.vectors[:4], np.arange(4) % 2)
    assert found["means"] == pytest.approx(alone.means)
    assert found["counts"]["images_without_labels"] == 4


@pytest.fixture
def truth() -> RevisitedGroundTruth:
    rng = np.random.default_rng(11)
    lists: dict[str, list[np.ndarray]] = {"easy": [], "hard": [], "junk": []}
    for query in range(7):
        kinds = rng.permutation(40)[:18]
        for kind, some in zip(lists, np.split(kinds, [6, 12]), strict=True):
            lists[kind].append(np.sort(some if (kind, query) != ("easy", 2) else some[:0]))
    return RevisitedGroundTruth(
        tuple(f"{number:03}" for number in range(40)),
        tuple(f"q{number:03}" for number in range(7)),
        np.zeros((7, 4)),
        *(RaggedIndices.from_lists(lists[kind]) for kind in ("easy", "hard", "junk")),
    )


def take(images: Embeddings, rows: slice) -> Embeddings:
    assert images.ids is not None
    return Embeddings(images.vectors[rows], images.ids[rows], None, images.path)


def test_revisited_agrees_with_rankings_counted_one_by_one(truth: RevisitedGroundTruth) -> None:
    queries, gallery = embedded(7, 12, prefix="q"), embedded(45, 13)
    distractors = take(gallery, slice(40, None))
    results = evaluate_tasks(revisited_tasks(queries, take(gallery, slice(40)), truth, distractors))
    assert [result.name for result in results] == ["easy", "medium", "hard"]
    vectors = gallery.vectors.numpy() / np.linalg.norm(gallery.vectors.numpy(), axis=1, keepdims=True)
    for result in results:
        for query in range(7):
            positives, ignored = (
                set(pairs.row(query).tolist()) for pairs in (truth.positives(result.name), truth.ignored(result.name))
            )
            ranking = [item for item in np.argsort(-vectors @ queries.vectors[query].numpy()) if item not in ignored]
            ranks = np.array([rank for rank, item in enumerate(ranking) if item in positives], np.int64)
            expected = [
                revisited_average_precision(ranks),
                *(revisited_precision_at(ranks, k) for k in (1, 5, 10)),
            ]
            np.testing.assert_allclose(result.per_query.iloc[query, :4].to_numpy(float), expected)
    assert results[0].counts["without_positives_l1"] == 1
    assert np.isnan(results[0].per_query["mAP"].iloc[2])


def test_revisited_gallery_is_that_of_the_ground_truth_whatever_the_block_size(truth: RevisitedGroundTruth) -> None:
    queries, gallery = embedded(7, 12, prefix="q"), embedded(45, 13)
    plain = evaluate_tasks(revisited_tasks(queries, take(gallery, slice(40)), truth))
    in_blocks = EvaluationConfig(ranking=RankingConfig(block_size=2))
    for result, other in zip(plain, evaluate_tasks(revisited_tasks(queries, gallery, truth), in_blocks), strict=True):
        pd.testing.assert_frame_equal(result.per_query, other.per_query)
        assert result.means == other.means
    few = Embeddings(torch.ones(2, 3), None, None, Path("r1m.npy"))
    with pytest.raises(InputError, match=r"r1m.npy: has 3 dimensions, but the gallery has .* with the same model"):
        revisited_tasks(queries, gallery, truth, few)


def test_revisited_names_ignore_folders_and_suffixes(truth: RevisitedGroundTruth) -> None:
    queries, gallery = embedded(7, 12, prefix="q"), embedded(40, 13)
    plain = evaluate_tasks(revisited_tasks(queries, gallery, truth))
    assert gallery.ids is not None
    order = np.random.default_rng(0).permutation(40)
    jpgs = Embeddings(
        gallery.vectors[order], TextArray([f"jpg/{image}.jpg" for image in gallery.ids[order]]), None, Path("g")
    )
    assert [result.means for result in evaluate_tasks(revisited_tasks(queries, jpgs, truth))] == [
        pytest.approx(result.means) for result in plain
    ]
    twice = Embeddings(gallery.vectors, TextArray([f"{number}/a.jpg" for number in range(40)]), None, Path("g"))
    with pytest.raises(InputError, match="39 ids differ from others in folder and suffix alone"):
        evaluate_tasks(revisited_tasks(queries, twice, truth))
    with pytest.raises(InputError, match="20 of the 40 gallery images of the ground truth are not embedded"):
        evaluate_tasks(revisited_tasks(queries, embedded(20, 13), truth))
    with pytest.raises(ConfigurationError, match="the metrics of easy, medium, hard are mAP, mP@1, mP@5, mP@10"):
        evaluate_tasks(revisited_tasks(queries, gallery, truth), EvaluationConfig(metrics=("H-AP",)))


def test_dyml_levels_and_their_mean(tmp_path: Path) -> None:
    rng = np.random.default_rng(21)
    ids = []
    for level in LEVELS:
        folder = tmp_path / f"bmk_{level}"
        folder.mkdir()
        for file, names in (("query", range(6)), ("gallery", range(30))):
            rows = [f"{name}.jpg, {name % 5}" for name in names]
            (folder / f"{file}.csv").write_text("\n".join(["fname, labels", *rows]) + "\n")
            ids += [f"bmk_{level}/{file}/{name}.jpg" for name in names]
    vectors = torch.from_numpy(rng.standard_normal((len(ids), 5)))
    write_embeddings(tmp_path / "all.npy", vectors, ids)
    files = EvaluationFiles(embeddings=tmp_path / "all.npy", ground_truth=tmp_path)
    evaluation = evaluate_files(files, "dyml", CONFIG)
    assert [result.name for result in evaluation.results] == list(LEVELS)
    row_of = {image: row for row, image in enumerate(ids)}
    for result in evaluation.results:
        queries = vectors[[row_of[f"bmk_{result.name}/query/{name}.jpg"] for name in range(6)]]
        gallery = vectors[[row_of[f"bmk_{result.name}/gallery/{name}.jpg"] for name in range(30)]]
        alone = evaluate_retrieval(
            queries,
            np.arange(6) % 5,
            gallery,
            np.arange(30) % 5,
            query_ids=np.arange(6),  # a query does not retrieve itself
            gallery_ids=np.arange(30),
            metrics=["AP", "ASI", "R@1"],
        )
        assert result.means == pytest.approx(alone.means)
    assert evaluation.mean is not None
    assert evaluation.mean["ASI"] == pytest.approx(np.mean([result.means["ASI"] for result in evaluation.results]))


def test_dyml_warns_where_no_query_is_in_the_gallery(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for level in LEVELS:
        (tmp_path / f"bmk_{level}").mkdir()
        (tmp_path / f"bmk_{level}" / "query.csv").write_text("fname, labels\nq.jpg, 1\n")
        (tmp_path / f"bmk_{level}" / "gallery.csv").write_text("fname, labels\na.jpg, 1\nb.jpg, 2\n")
    ids = [f"bmk_{level}/{image}" for level in LEVELS for image in ("query/q.jpg", "gallery/a.jpg", "gallery/b.jpg")]
    images = Embeddings(torch.eye(9), TextArray(ids), None, tmp_path / "e.npy")
    assert len(benchmark_tasks(images, images, tmp_path)) == 3
    assert "no query has the name of a gallery image" in caplog.text


def test_dyml_on_images_with_labels_of_all_levels() -> None:
    images, labels = embedded(40, 31), labelled(40, 32, unlabelled=3)
    results = evaluate_tasks(tasks_by_level(images, labels))
    assert [result.name for result in results] == ["landmark", "group", "root"]
    for column, result in enumerate(results):
        alone = evaluate_retrieval(images.vectors[3:], labels.labels[3:, column], metrics=["AP", "ASI", "R@1"])
        assert result.means == pytest.approx(alone.means)


ONE, TWO = {"embeddings": "a.npy"}, {"query_embeddings": "a.npy", "gallery_embeddings": "b.npy"}


@pytest.mark.parametrize(
    ("files", "protocol", "message"),
    [
        ({}, None, "expected either `embeddings`, or `query_embeddings` and `gallery_embeddings`"),
        ({**ONE, "gallery_embeddings": "b.npy"}, None, "found `embeddings` and `gallery_embeddings`"),
        (ONE, "retrieval", "needs `query_embeddings` and `gallery_embeddings` and does not use `embeddings`"),
        (ONE, "roxford", r"needs `query_embeddings`, `gallery_embeddings` and `ground_truth` \(gnd"),
        (TWO, "rparis", r"the protocol rparis needs `ground_truth` \(gnd_rparis6k.pkl\)"),
        (TWO, "gldv2-retrieval", "the folder of retrieval_solution"),
        (TWO, "leave-one-out", "needs `embeddings` and does not use `gallery_embeddings` and `query_embeddings`"),
        (TWO, "dyml", r"the protocol dyml needs `ground_truth` \(the folder"),
        ({**ONE, "ground_truth": "x"}, None, "the protocol leave-one-out does not use `ground_truth`"),
        ({**ONE, "ground_truth": "x", "labels": "y"}, "dyml", "the protocol dyml does not use `labels`"),
        (ONE, "sop", "there is no protocol 'sop'"),
    ],
)
def test_files_that_a_protocol_cannot_use_are_refused(
    files: dict[str, str], protocol: str | None, message: str
) -> None:
    given: dict[str, Any] = {name: Path(path) for name, path in files.items()}
    with pytest.raises(ConfigurationError, match=message):
        evaluate_files(EvaluationFiles(**given), protocol, CONFIG)


def test_embeddings_without_labels_are_refused(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "a.npy", torch.eye(3), ["a", "b", "c"])
    with pytest.raises(ConfigurationError, match="does not say which landmark an image shows; give `labels`"):
        evaluate_files(EvaluationFiles(embeddings=tmp_path / "a.npy"), None, CONFIG)


def test_single_process_gathers_its_own_value() -> None:
    assert Processes().gather("x") == ["x"]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_have_their_name_and_declare_existing_inputs(name: str) -> None:
    protocol = get_protocol(name)
    assert protocol.name == name
    fields = set(EvaluationFiles.__dataclass_fields__)
    for inputs in protocol.inputs:
        assert fields.issuperset({*inputs.required, *inputs.optional})
        assert not set(inputs.required).intersection(inputs.optional)
    assert fields.issuperset(protocol.descriptions)


def test_protocol_names_are_listed_without_torch() -> None:
    script = "import sys, hgld.evaluation.settings; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
