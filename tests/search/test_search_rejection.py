"""``hgld search --reject``: rejected queries, and detectors that do not fit a gallery."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import Result

from hgld.errors import ConfigurationError
from hgld.io.files import sha256_of
from hgld.pages.server import PageKeys
from hgld.rejection import DetectorRecord, build_detector, save_detector
from hgld.rejection.detector_files import Calibration, Figure
from hgld.rejection.risk_coverage import threshold_for_precision
from hgld.search.gallery import read_gallery
from hgld.search.query_model import load_query_model
from hgld.search.score_inputs import recorded_model
from hgld.search.searcher import Searcher, open_rejector
from hgld.search.served_page import search_app
from tests.commands import run_hgld
from tests.datasets.pictures import save_pictures
from tests.search.conftest import PATHS

FIGURE = Figure(value=0.5, interval=(0.4, 0.6))


def toy_detector(gallery_folder: Path, out: Path, *values: float | None, **changes: Any) -> Path:
    """Save a detector of the gallery of pictures with a threshold for each of its levels."""
    threshold = threshold_for_precision([0.0], [True], 0.5)
    calibration = Calibration(
        n_images={"known": 1, "far": 1},
        thresholds=tuple(replace(threshold, value=value) for value in values),
        gap=FIGURE,
        detection={"far": {"auroc": FIGURE}},
        n_votes=10,
    )
    embeddings = gallery_folder / "all.npy"
    record = DetectorRecord(
        n_images=9,
        index_sha256=sha256_of(embeddings),
        model=recorded_model(embeddings),
        level_names=("product", "kind"),
        calibration=calibration,
    )
    vectors = np.load(embeddings)[:, : changes.pop("dim", None)]
    labels = np.array([[n // 3, n // 6] for n in range(9)])
    save_detector(out, build_detector("top1_cosine").fit(vectors, labels), record.model_copy(update=changes))
    return out


def search(gallery_folder: Path, detector: Path, *arguments: object, code: int = 0) -> Result:
    return run_hgld("search", "--embeddings", gallery_folder / "all.npy", "--reject", detector, *arguments, code=code)


def test_rejected_queries_have_the_finest_label_that_is_sure(gallery_folder: Path, tmp_path: Path) -> None:
    """A picture of the gallery is accepted; another one is rejected at the product, and accepted at the kind."""
    (tmp_path / "queries").mkdir()
    shutil.copy(gallery_folder / "pictures" / PATHS[0], tmp_path / "queries" / "known.jpg")
    save_pictures(tmp_path / "queries", "zzz.jpg")
    sure = toy_detector(gallery_folder, tmp_path / "sure", -0.99999, 1.0)
    result = search(
        gallery_folder, sure, tmp_path / "queries", "--page", tmp_path / "p.html", "-o", tmp_path / "a.csv"
    )
    assert re.search(r"^known.jpg: a [01].\d\d, b [01].\d\d$", result.stdout, re.MULTILINE)
    assert re.search(r"^zzz.jpg: no such product; [ad] [01].\d\d$", result.stdout, re.MULTILINE)
    html = (tmp_path / "p.html").read_text()
    assert len(re.findall(r"<p>No such product: rejection score -?[\d.]+ above -1.</p>", html)) == 1
    assert "A label is left out where its rejection score" in html
    with (tmp_path / "a.csv").open() as stream:
        rows = {row["query"]: row for row in csv.DictReader(stream)}
    assert (rows["known.jpg"]["rejected"], rows["known.jpg"]["answer_product"]) == ("false", "b")
    assert (rows["zzz.jpg"]["rejected"], rows["zzz.jpg"]["answer_product"], rows["zzz.jpg"]["share_product"]) == (
        "true",
        "",
        "",
    )
    assert rows["zzz.jpg"]["answer_kind"] in ("a", "d")
    assert all(row["level"] in "01" for name, row in rows.items() if name == "zzz.jpg")


def test_rejection_in_json(gallery_folder: Path, tmp_path: Path) -> None:
    unsure = toy_detector(gallery_folder, tmp_path / "unsure", None, -0.99999)
    save_pictures(tmp_path, "zzz.jpg")
    queries = [tmp_path / "zzz.jpg", gallery_folder / "pictures" / PATHS[0]]
    for query, accepted_level in zip(queries, (None, "kind"), strict=True):
        (entry,) = json.loads(search(gallery_folder, unsure, query, "--json").stdout)["queries"]
        rejection = entry["rejection"]
        assert (rejection["rejected"], rejection["accepted_level"]) == (True, accepted_level)
        assert rejection["thresholds"] == [None, -0.99999]
        assert rejection["scores"] == [pytest.approx(-entry["results"][0]["score"], abs=1e-5)] * 2
        assert [level["level"] for level in entry["answer"]] == ([] if accepted_level is None else ["kind"])
        assert all(item["level"] == 0 for item in entry["results"]) == (accepted_level is None)
    result = search(gallery_folder, unsure, queries[0])
    assert "zzz.jpg: no such product, and no coarser label is sure\n" in result.stdout


def test_served_page_says_it(gallery_folder: Path, tmp_path: Path) -> None:
    embeddings = gallery_folder / "all.npy"
    gallery, keys = read_gallery(embeddings), PageKeys()
    rejector = open_rejector(toy_detector(gallery_folder, tmp_path / "d", -0.99999, 1.0), embeddings, gallery)
    model = load_query_model(embeddings, gallery.dim)
    app = search_app(Searcher(gallery, rejector=rejector), model, lambda _: None, keys, top=10)
    client = TestClient(app, base_url="http://127.0.0.1:8000")
    client.post("/open", data={"key": keys.key})
    save_pictures(tmp_path, "zzz.jpg")
    rejected = client.post("/search", content=(tmp_path / "zzz.jpg").read_bytes()).text
    assert re.search(r'<p class="rejection">No such product: rejection score -?[\d.]+ above -1.</p>', rejected)
    assert re.findall(r"<dt>(\w+)</dt>", rejected) == ["kind"]
    accepted = client.post("/search", content=(gallery_folder / "pictures" / PATHS[0]).read_bytes()).text
    assert "No such" not in accepted
    assert re.findall(r"<dt>(\w+)</dt>", accepted) == ["kind", "product"]


def test_answers_of_a_detector_that_accepts_all_are_as_before(gallery_folder: Path, tmp_path: Path) -> None:
    generous = toy_detector(gallery_folder, tmp_path / "generous", 1.0, 1.0)
    with_detector = search(gallery_folder, generous, gallery_folder / "pictures")
    without = run_hgld("search", "--embeddings", gallery_folder / "all.npy", gallery_folder / "pictures")
    assert with_detector.stdout == without.stdout


def test_detectors_that_do_not_fit_a_gallery_are_one_line(gallery_folder: Path, tmp_path: Path) -> None:
    model = recorded_model(gallery_folder / "all.npy")
    assert model is not None
    changes: dict[str, dict[str, Any]] = {
        "has no thresholds; fit it again with calibration images": {"calibration": None},
        "made by the model test_resnet, and .* fitted on embeddings of another, resnet50": {
            "model": model.model_copy(update={"weights_sha256": "0" * 64, "name": "resnet50"})
        },
        "made with the setting scales .* fitted on embeddings made with": {
            "model": model.model_copy(update={"settings": {"scales": [0.5]}})
        },
        "fitted on another index of 9 images than .*all.npy; fit it on this": {"index_sha256": "0" * 64},
        "fitted on embeddings of 95 dimensions, and .* has 96": {"dim": 95},
        "thresholds for the levels landmark, kind, and the gallery has product, kind; give the `labels` and the "
        "`hierarchy`": {"level_names": ("landmark", "kind")},
        "the score top1_cosine needs logits of a query, which a search does not have": {"inputs": ("logits",)},
    }
    gallery = read_gallery(gallery_folder / "all.npy")
    for message, change in changes.items():
        detector = toy_detector(gallery_folder, tmp_path / "d", 1.0, 1.0, **change)
        with pytest.raises(ConfigurationError, match=message) as caught:
            open_rejector(detector, gallery_folder / "all.npy", gallery)
        assert "\n" not in str(caught.value)
    result = search(gallery_folder, gallery_folder, gallery_folder / "pictures" / PATHS[0], code=1)
    assert result.stdout == ""
    assert "not a detector of hgld reject fit" in result.stderr


def test_other_numbers_of_votes_than_the_calibrated_are_refused(gallery_folder: Path, tmp_path: Path) -> None:
    detector = toy_detector(gallery_folder, tmp_path / "detector", 0.0, 0.0)
    result = search(gallery_folder, detector, "--serve", "--top", 4, code=1)
    assert "--top is 4, but the thresholds of the detector are for answers by the vote of 10" in result.output
