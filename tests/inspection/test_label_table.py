"""AP per label, against a loop over labels and queries."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from hgld.cli.evaluate import format_label_table
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.evaluation_files import Evaluation
from hgld.evaluation.retrieval_task import RetrievalTask, leave_one_out_task, query_gallery_task
from hgld.hierarchy.label_sets import LabelSets
from hgld.inspection.label_table import average_precision_per_label, write_label_table
from hgld.tables import Provenance
from tests.commands import run_hgld
from tests.evaluation.oracles import average_precision

LEVEL_NAMES = ("class", "group")


def evaluation_of(task: RetrievalTask, metrics: tuple[str, ...] | None = None) -> Evaluation:
    return Evaluation(tuple(evaluate_tasks([task], EvaluationConfig(metrics=metrics))), (task,))


def expected_table(
    queries: np.ndarray, query_sets: list[set[int]], gallery: np.ndarray, gallery_sets: list[set[int]], own: bool
) -> dict[int, tuple[float, int, int, int]]:
    """By label: AP, queries with positives, queries without, and images of the gallery."""
    table = {}
    for label in sorted(set().union(*query_sets)):
        values = []
        for query in (q for q, labels in enumerate(query_sets) if label in labels):
            scores = gallery @ queries[query] / np.linalg.norm(gallery, axis=1)
            ranked = [item for item in np.argsort(-scores) if not (own and item == query)]
            values.append(average_precision([int(label in gallery_sets[item]) for item in ranked], 1))
        known = [value for value in values if not math.isnan(value)]
        n_images = sum(label in labels for labels in gallery_sets)
        mean = float(np.mean(known)) if known else math.nan
        table[label] = (mean, len(known), len(values) - len(known), n_images)
    return table


def check(table: pd.DataFrame, level: int, name: str, expected: dict[int, tuple[float, int, int, int]]) -> None:
    rows = table[table["level"] == level]
    assert set(rows["level_name"]) == {name}
    assert sorted(rows["label"]) == sorted(f"{name} {label}" for label in expected)
    known = rows["ap"].dropna()
    assert known.is_monotonic_increasing
    assert rows["ap"].isna().to_numpy()[: len(known)].sum() == 0  # labels without a value come last
    for row in rows.itertuples():
        ap, n_queries, n_without, n_images = expected[int(str(row.label).split()[1])]
        assert row.ap == pytest.approx(ap, abs=1e-6, nan_ok=True)
        assert (row.queries, row.queries_without_positives, row.gallery_images) == (n_queries, n_without, n_images)


def test_one_label_per_image() -> None:
    rng = np.random.default_rng(0)
    embeddings, classes = rng.normal(size=(40, 6)), rng.integers(9, size=40)
    classes[0] = 99  # a class of one image
    labels = np.stack([classes, classes % 3], axis=1)
    task = leave_one_out_task(torch.from_numpy(embeddings), labels, level_names=LEVEL_NAMES)
    table = average_precision_per_label(evaluation_of(task))
    for level, column in ((2, 0), (1, 1)):
        sets = [{int(label)} for label in labels[:, column]]
        check(table, level, LEVEL_NAMES[column], expected_table(embeddings, sets, embeddings, sets, own=True))
    assert table["level"].is_monotonic_decreasing
    assert table.loc[table["label"] == "class 99", ["queries", "queries_without_positives"]].to_numpy().tolist() == [
        [0, 1]
    ]


def test_several_labels_per_image() -> None:
    """A query counts once for each of its labels, and once for a group that several of them belong to."""
    rng = np.random.default_rng(1)
    queries, gallery = rng.normal(size=(15, 6)), rng.normal(size=(30, 6))
    sets = [[sorted(rng.choice(8, size=rng.integers(1, 4), replace=False)) for _ in range(n)] for n in (15, 30)]
    query_labels, gallery_labels = (
        LabelSets.from_lists([np.array([[label, label % 3] for label in labels]) for labels in part]) for part in sets
    )
    task = query_gallery_task(
        torch.from_numpy(queries), query_labels, torch.from_numpy(gallery), gallery_labels, level_names=LEVEL_NAMES
    )
    table = average_precision_per_label(evaluation_of(task))
    for level, column in ((2, 0), (1, 1)):
        query_sets, gallery_sets = (
            [{int(label) if column == 0 else int(label) % 3 for label in labels} for labels in part] for part in sets
        )
        expected = expected_table(queries, query_sets, gallery, gallery_sets, own=False)
        check(table, level, LEVEL_NAMES[column], expected)


def test_other_metrics_give_the_same_table() -> None:
    labels = np.array([[0, 0], [0, 0], [1, 0], [1, 0], [2, 1]])
    task = leave_one_out_task(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), labels)
    expected = average_precision_per_label(evaluation_of(task, ("AP", "AP_l1")))
    assert set(expected["level_name"]) == {"level 1", "level 2"}
    for metrics in (("AP_l2", "AP_l1"), ("AP", "H-AP"), ("AP_l1",), ("R@1",)):
        pd.testing.assert_frame_equal(average_precision_per_label(evaluation_of(task, metrics)), expected)


def test_what_the_table_needs() -> None:
    with pytest.raises(
        ConfigurationError, match="needs one ranking by labels of all levels, and this protocol has 0"
    ):
        average_precision_per_label(Evaluation((), ()))
    with pytest.raises(ConfigurationError, match='table.txt: the suffix is ".txt"'):
        write_label_table(pd.DataFrame(), Path("table.txt"), Provenance("evaluate", {}, {}))


def test_command_writes_and_prints_the_table(tmp_path: Path) -> None:
    rows = np.arange(24)
    np.save(tmp_path / "e.npy", np.random.default_rng(0).normal(size=(24, 4)))
    (tmp_path / "e.ids.txt").write_text("".join(f"i{row}\n" for row in rows))
    lines = [f"i{row},c{row // 4},{'lake' if row < 12 else 'church'}\n" for row in rows]
    (tmp_path / "labels.csv").write_text("id,species,kind\n" + "".join(lines))
    arguments = [
        "evaluate",
        "--no-intervals",
        f"--embeddings={tmp_path / 'e.npy'}",
        f"--manifest={tmp_path / 'labels.csv'}",
    ]
    for name in ("table.csv", "table.parquet"):
        result = run_hgld(*arguments, f"--per-label={tmp_path / name}")
        assert "species: 6 labels, mean AP" in result.output
        assert "kind: 2 labels" in result.output
    table = pd.read_csv(tmp_path / "table.csv")
    assert sorted(table.loc[table["level"] == 1, "label"]) == ["church", "lake"]
    assert (table["gallery_images"] == table["level"].map({2: 4, 1: 12})).all()
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "table.parquet"), table)
    assert b"per_label/1" in pq.read_schema(tmp_path / "table.parquet").metadata.values()
    assert 'the suffix is ".txt"' in run_hgld(*arguments, "--per-label=table.txt", code=1).output


def test_levels_without_positives_are_printed() -> None:
    table = pd.DataFrame(
        {"level": [1], "level_name": ["kind"], "label": ["lake"], "ap": [math.nan], "queries": [0]}
        | {"queries_without_positives": [1], "gallery_images": [1]}
    )
    assert format_label_table(table) == "kind: 1 labels, none has positives"
