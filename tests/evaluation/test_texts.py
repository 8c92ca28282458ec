"""Texts as queries, beside plain NumPy, and inputs that cannot be ranked."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hgld.errors import ConfigurationError, HgldError, InputError
from hgld.evaluation.evaluation_files import evaluate_files
from hgld.evaluation.settings import EvaluationFiles
from hgld.tables.embeddings import write_embeddings

LABELS = ["oak,tree,plant", "elm,tree,plant", "rose,flower,plant", "cat,mammal,animal"]
NAMES = ["oak", "elm", "rose", "cat", "tree", "flower", "mammal", "plant", "animal"]


@pytest.fixture
def files(tmp_path: Path) -> EvaluationFiles:
    rng = np.random.default_rng(0)
    lines = [f"{image},{rng.choice(LABELS)}" for image in range(40)]
    lines[:4] = [f"{image},{label}" for image, label in enumerate(LABELS)]
    (tmp_path / "labels.csv").write_text("\n".join(["id,kind,group,root", *lines]))
    write_embeddings(tmp_path / "images.npy", torch.from_numpy(rng.normal(size=(40, 8))), list(map(str, range(40))))
    write_embeddings(tmp_path / "texts.npy", torch.from_numpy(rng.normal(size=(9, 8))), NAMES)
    return EvaluationFiles(
        query_embeddings=tmp_path / "texts.npy",
        gallery_embeddings=tmp_path / "images.npy",
        labels=tmp_path / "labels.csv",
    )


def unit(path: Path | None) -> np.ndarray:
    assert path is not None
    vectors = np.load(path)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_each_level_ranks_images_for_texts_and_texts_for_images(files: EvaluationFiles) -> None:
    results = evaluate_files(files, "texts").results
    assert [result.name for result in results] == [
        "kind to images", "images to kind", "group to images", "images to group", "root to images", "images to root",
    ]  # fmt: skip
    assert files.labels is not None
    rows = [line.split(",")[1:] for line in files.labels.read_text().splitlines()[1:]]
    scores = unit(files.query_embeddings) @ unit(files.gallery_embeddings).T
    for column in range(3):
        names = sorted({row[column] for row in rows})
        precisions: list[float] = []
        parents: list[float] = []
        for name in names:
            order = np.argsort(-scores[NAMES.index(name)])
            for level, values in ((column, precisions), (2, parents)):
                label = next(row[level] for row in rows if row[column] == name)
                hits = np.array([rows[image][level] == label for image in order])
                values.append((np.cumsum(hits) / np.arange(1, 41))[hits].mean())
        to_images, to_texts = results[2 * column : 2 * column + 2]
        assert to_images.means[f"AP_l{3 - column}"] == pytest.approx(np.mean(precisions))
        assert to_images.means["AP_l1"] == pytest.approx(np.mean(parents))
        best = [names[scores[[NAMES.index(name) for name in names], image].argmax()] for image in range(40)]
        right = [name == row[column] for name, row in zip(best, rows, strict=True)]
        assert to_texts.means == {"R@1": pytest.approx(np.mean(right))}


def test_levels_without_all_texts_are_left_out(files: EvaluationFiles, caplog: pytest.LogCaptureFixture) -> None:
    assert files.query_embeddings is not None
    ids = files.query_embeddings.with_suffix(".ids.txt")
    ids.write_text(ids.read_text().replace("elm", "larch"))
    results = evaluate_files(files, "texts").results
    assert results[0].name == "group to images"
    assert "no text for 1 of the 4 labels of the level kind, which is left out: elm" in caplog.text


def expect(error: type[HgldError], message: str, files: EvaluationFiles) -> None:
    with pytest.raises(error, match=message):
        evaluate_files(files, "texts")


def test_texts_and_labels_need_names(files: EvaluationFiles, tmp_path: Path) -> None:
    ids = tmp_path / "texts.ids.txt"
    ids.write_text("".join(f"{number}\n" for number in range(9)))
    expect(InputError, r"texts.npy: no level has a text .* its ids look like 0, 1, 2, …", files)
    ids.unlink()
    expect(
        ConfigurationError, r"texts.npy comes without ids; expected texts whose ids are the names of labels", files
    )
    write_embeddings(tmp_path / "texts.npy", torch.ones(9, 8), NAMES)
    assert files.labels is not None
    files.labels.write_text("id,landmark_id\n" + "".join(f"{image},7\n" for image in range(40)))
    expect(ConfigurationError, "`labels` are numbers without names", files)
