"""Figures and retrieval strips of a comparison by GLDv2's protocol: test photographs against the index."""

import csv
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from hgld.benchmark import comparison_figures
from hgld.benchmark.comparison_figures import draw_comparison, read_evaluated_images, write_strips
from hgld.benchmark.runs import BenchmarkSettings, read_benchmark, table_runs
from hgld.benchmark.statistics import MethodResults
from hgld.evaluation.gldv2_retrieval import LANDMARKS, SOLUTION
from hgld.figures.comparisons import ClassMeans, draw_class_means
from hgld.gldv2.image_index import index_images
from hgld.gldv2.tar_images import ImageReader
from tests.benchmark.comparisons import train_and_evaluate, untrained
from tests.datasets.pictures import picture
from tests.gldv2.test_image_index import write_tar

SUBSET = Path(__file__).parents[2] / "data" / "subsets" / "washington"
#: Landmark without hierarchical label.
UNLABELLED = 9
HIERARCHY = "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made\n"
#: Photographs by id, by landmark.
Photographs = Mapping[int, Mapping[str, bytes]]


def write_gldv2(folder: Path, photographs: Photographs, hierarchy: str) -> BenchmarkSettings:
    """Write the first photograph of each landmark as test image, the others as index, and an untrained comparison."""
    tests = {
        name: (landmark, images[name]) for landmark, images in photographs.items() for name in [next(iter(images))]
    }
    index = {
        name: (landmark, data)
        for landmark, images in photographs.items()
        for name, data in images.items()
        if name not in tests
    }
    for part, images in (("test", tests), ("index", index)):
        write_tar(folder / part / "images_000.tar", {f"{name}.jpg": data for name, (_, data) in images.items()})
        index_images(folder / part, folder / part / "images.parquet")
    lines = [f"{name},{landmark}" for name, (landmark, _) in index.items()]
    (folder / LANDMARKS).write_text("\n".join(["id,landmark_id", *lines]) + "\n")
    lines = ["id,images,Usage"]
    for number, (query, (landmark, _)) in enumerate(tests.items()):
        positives = " ".join(name for name, (other, _) in index.items() if other == landmark)
        lines.append(f"{query},{positives},{'Private' if number % 3 else 'Public'}")
    lines.append(f"{'e' * 16},None,Ignored")
    (folder / SOLUTION).write_text("\n".join(lines) + "\n")
    (folder / "index_label_to_hierarchical.csv").write_text(hierarchy)

    training = untrained(folder / "training")
    for name, dim in (("wide", 16), ("narrow", 2)):
        changes = {"model": training["model"] | {"dim": dim}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(training | changes))
    comparison = {
        "title": "GLDv2",
        "methods": {name: {"title": name.title(), "training": f"{name}.yaml"} for name in ("narrow", "wide")},
        "seeds": [0],
        "evaluation": {
            "name": "gldv2-retrieval",
            "queries": str(folder / "test" / "images.parquet"),
            "gallery": str(folder / "index" / "images.parquet"),
            "ground_truth": str(folder),
            "hierarchy": str(folder / "index_label_to_hierarchical.csv"),
        },
        "pictures": {"baseline": "narrow", "method": "wide", "n_queries": 6},
    }
    (folder / "comparison.yaml").write_text(yaml.safe_dump(comparison))
    return read_benchmark(folder / "comparison.yaml")


def compare(settings: BenchmarkSettings, out: Path) -> list[MethodResults]:
    methods = []
    for name, (run,) in table_runs(settings, out).items():
        evaluated = train_and_evaluate(settings, run)
        methods.append(MethodResults(name, settings.methods[name].title, None, False, (evaluated,)))
    return methods


def generated() -> tuple[Photographs, str]:
    """Return ten landmarks of noise, the last without hierarchical label."""
    photographs = {
        landmark: {
            name: picture(name, file_format="JPEG")
            for name in (f"{16 * landmark + number:016x}" for number in range(13))
        }
        for landmark in range(UNLABELLED + 1)
    }
    rows = [
        f"{landmark},http://commons.wikimedia.org/wiki/Category:Place_{landmark},x,"
        f"{('lake,natural', 'church,human-made', 'bridge,human-made')[landmark % 3]}\n"
        for landmark in range(UNLABELLED)
    ]
    return photographs, HIERARCHY + "".join(rows)


def washington(shared: Path, index: Path, n_landmarks: int = 60, per_landmark: int = 5) -> tuple[Photographs, str]:
    """Return real photographs of Washington's landmarks with their labels; ``index`` is a file to write."""
    folder = shared / "wa_gldv2"
    hierarchy = (SUBSET / "train_label_to_hierarchical.csv").read_text(encoding="utf-8")
    labelled = {row["landmark_id"] for row in csv.DictReader(hierarchy.splitlines())}
    with (folder / "train_clean.csv").open(encoding="utf-8") as stream:
        images = {row["landmark_id"]: row["images"].split() for row in csv.DictReader(stream)}
    chosen = [name for name in images if name in labelled and len(images[name]) >= per_landmark][:n_landmarks]
    index_images(folder, index)
    reader = ImageReader(index, folder)
    photographs = {
        int(landmark): {name: reader.read(name) for name in images[landmark][:per_landmark]} for landmark in chosen
    }
    return photographs, hierarchy


@pytest.mark.slow
def test_figures_and_strips_of_generated_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photographs, hierarchy = generated()
    settings = write_gldv2(tmp_path, photographs, hierarchy)
    methods = compare(settings, tmp_path / "out")

    images = read_evaluated_images(settings.evaluation, methods[0].runs[0])
    assert len(images.task.queries) == UNLABELLED
    assert len(images.task.gallery) == 120
    assert images.class_names[0] == [str(landmark) for landmark in range(UNLABELLED)]
    assert images.class_names[2] == ("human-made", "natural")

    panels: list[ClassMeans] = []

    def draw_and_keep(path: Path, means: list[ClassMeans]) -> None:
        panels.extend(means)
        draw_class_means(path, means)

    monkeypatch.setattr(comparison_figures, "_MAX_CLASSES", 6)
    monkeypatch.setattr(comparison_figures, "draw_class_means", draw_and_keep)
    drawn = draw_comparison(settings, methods, tmp_path / "figures")
    assert [path.name for path in drawn] == ["scores.png", "precision_recall.png", "class_means.png"]
    assert [len(panel.categories) for panel in panels] == [6, 6]
    assert panels[0].categories == panels[1].categories
    assert panels[0].title.endswith("among the 5 nearest of 6 classes drawn from 9")
    page, strips = write_strips(settings, methods, tmp_path)
    assert strips.read_bytes().startswith(b"\x89PNG")
    html = page.read_text()
    assert "Of 9 queries, Wide has a higher H-AP" in html
    assert "not available" not in html
    assert set(re.findall(r"Place_?\s?(\d)", html)) <= {str(landmark) for landmark in range(UNLABELLED)}
    ids = {name for images_of in photographs.values() for name in images_of}
    tests = {next(iter(images_of)) for images_of in photographs.values()}
    queries = re.findall(r'<p><span class="id">([0-9a-f]{16})<', html)
    assert queries
    assert set(queries) <= tests
    ranked = {
        name for strip in re.findall(r'<ol class="items">.*?</ol>', html, re.DOTALL) for name in ids if name in strip
    }
    assert ranked
    assert not ranked & (tests | set(photographs[UNLABELLED]))  # neither test images nor those without a label

    for part in ("test", "index"):
        (tmp_path / part / "images_000.tar").unlink()
    page, _ = write_strips(settings, methods, tmp_path)
    assert "photographs are not available" in page.read_text()


@pytest.mark.slow
def test_figures_and_strips_of_photographs(shared: Path, tmp_path: Path) -> None:
    photographs, hierarchy = washington(shared, tmp_path / "images.parquet")
    settings = write_gldv2(tmp_path, photographs, hierarchy)
    methods = compare(settings, tmp_path / "out")
    drawn = draw_comparison(settings, methods, tmp_path / "figures")
    assert [path.name for path in drawn] == ["scores.png", "precision_recall.png", "class_means.png"]
    page, _ = write_strips(settings, methods, tmp_path)
    assert page.read_text().count("data:image/jpeg") == 6 + 6 * 2 * 10
