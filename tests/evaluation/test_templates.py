"""Averages of media and templates, against a slow loop."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import ConfigurationError
from hgld.evaluation import EvaluationConfig, EvaluationFiles, evaluate_files
from hgld.rejection.rejected_queries import RejectionConfig, evaluate_with_rejection
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld
from tests.datasets.pictures import picture

Vector = npt.NDArray[np.float64]


def unit(vector: Vector) -> Vector:
    result: Vector = vector / np.linalg.norm(vector)
    return result


def slow_templates(vectors: Vector, faces: list[tuple[str, str, str]]) -> dict[str, tuple[str, Vector]]:
    """Return subject and average of each template, from the medium, template and subject of each face."""
    media: dict[tuple[str, str, str], list[Vector]] = defaultdict(list)
    for vector, face in zip(vectors, faces, strict=True):
        media[face].append(unit(vector))
    templates: dict[tuple[str, str], list[Vector]] = defaultdict(list)
    for (_, template, subject), frames in media.items():
        templates[template, subject].append(unit(np.sum(frames, axis=0)))
    return {template: (subject, unit(np.sum(parts, axis=0))) for (template, subject), parts in templates.items()}


def slow_ap(query: Vector, subject: str, gallery: dict[str, tuple[str, Vector]]) -> float:
    order = sorted(gallery.values(), key=lambda item: -float(item[1] @ query))
    hits = [other == subject for other, _ in order]
    ranks = [rank for rank, hit in enumerate(hits, 1) if hit]
    return float(np.mean([number / rank for number, rank in enumerate(ranks, 1)])) if ranks else float("nan")


def faces_of(rng: np.random.Generator, n: int, prefix: str) -> list[tuple[str, str, str]]:
    """Return faces of up to 3 subjects x 3 templates x 2 media; every subject has one."""
    faces = [(f"{prefix}{s}00", f"{prefix}{s}0", str(s)) for s in range(3)]
    for s, t, m in rng.integers(0, [3, 3, 2], size=(n, 3)).tolist():
        faces.append((f"{prefix}{s}{t}{m}", f"{prefix}{s}{t}", str(s)))
    return faces


def write(folder: Path, name: str, vectors: Vector, faces: list[tuple[str, str, str]], n_levels: int) -> None:
    ids = [f"{name}{row}" for row in range(len(faces))]
    write_embeddings(folder / f"{name}.npy", torch.from_numpy(vectors), ids)
    columns = pd.DataFrame(faces, columns=["medium", "template", "subject"])
    columns.insert(0, "id", ids)
    columns.drop(columns=["template"] if n_levels == 2 else []).to_csv(folder / f"{name}.csv", index=False)


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000))
def test_templates_are_ranked_by_the_means_of_their_media(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, rng = tmp_path_factory.mktemp("templates"), np.random.default_rng(seed)
    sides = {}
    for name in ("probe", "gallery"):
        faces = faces_of(rng, 20, name[0])
        vectors = rng.normal(size=(len(faces), 5))
        write(folder, name, vectors, faces, 3)
        sides[name] = slow_templates(vectors, faces)
    files = EvaluationFiles(
        query_embeddings=folder / "probe.npy",
        gallery_embeddings=folder / "gallery.npy",
        labels=folder / "gallery.csv",
        query_labels=folder / "probe.csv",
    )
    (result,) = evaluate_files(files, "templates").results
    expected = {
        name: slow_ap(average, subject, sides["gallery"]) for name, (subject, average) in sides["probe"].items()
    }
    assert result.per_query["AP"].to_dict() == pytest.approx(expected, abs=1e-6)
    assert result.counts["gallery"] == len(sides["gallery"])


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000))
def test_each_medium_is_ranked_against_all_others(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The protocol of Smooth-AP: a photograph, or the mean of a video's frames, is one instance."""
    folder, rng = tmp_path_factory.mktemp("media"), np.random.default_rng(seed)
    faces = faces_of(rng, 20, "")
    vectors = rng.normal(size=(len(faces), 5))
    write(folder, "all", vectors, faces, 2)
    media = slow_templates(vectors, [(medium, medium, subject) for medium, _, subject in faces])
    files = EvaluationFiles(embeddings=folder / "all.npy", labels=folder / "all.csv")
    (result,) = evaluate_files(files, "templates").results
    expected = {
        name: slow_ap(average, subject, {other: item for other, item in media.items() if other != name})
        for name, (subject, average) in media.items()
    }
    assert result.per_query["AP"].to_dict() == pytest.approx(expected, abs=1e-6, nan_ok=True)
    assert result.counts["images"] == len(faces)


def test_averages_can_be_rejected(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    sides = {}
    for name in ("probe", "gallery"):
        faces = faces_of(rng, 20, name[0])
        vectors = rng.normal(size=(len(faces), 5))
        write(tmp_path, name, vectors, faces, 3)
        sides[name] = slow_templates(vectors, faces)
    gallery = np.stack([average for _, average in sides["gallery"].values()])
    subjects = [subject for subject, _ in sides["gallery"].values()]
    files = EvaluationFiles(
        query_embeddings=tmp_path / "probe.npy",
        gallery_embeddings=tmp_path / "gallery.npy",
        labels=tmp_path / "gallery.csv",
        query_labels=tmp_path / "probe.csv",
    )
    evaluation, _ = evaluate_with_rejection(
        files, "templates", EvaluationConfig(), RejectionConfig(), intervals=False
    )
    (result,) = evaluation.results
    for name, (subject, average) in sides["probe"].items():
        cosines = gallery @ average
        assert result.per_query.loc[name, "rejection_score"] == pytest.approx(-cosines.max(), abs=1e-6)
        assert result.per_query.loc[name, "right_l1"] == (subjects[cosines.argmax()] == subject)
    alone = EvaluationFiles(embeddings=tmp_path / "gallery.npy", labels=tmp_path / "gallery.csv")
    evaluation, _ = evaluate_with_rejection(
        alone, "templates", EvaluationConfig(), RejectionConfig(), intervals=False
    )
    (result,) = evaluation.results
    for name, row in zip(sides["gallery"], np.arange(len(gallery)), strict=True):
        others = np.delete(gallery @ gallery[row], row)
        assert result.per_query.loc[name, "rejection_score"] == pytest.approx(-others.max(), abs=1e-6)


def test_one_level_is_not_enough(tmp_path: Path) -> None:
    write(tmp_path, "all", np.eye(2), [("a", "a", "x"), ("b", "b", "x")], 2)
    pd.DataFrame({"id": ["all0", "all1"], "subject": ["x", "x"]}).to_csv(tmp_path / "all.csv", index=False)
    with pytest.raises(ConfigurationError, match="the level subject alone; expected at least two"):
        evaluate_files(EvaluationFiles(embeddings=tmp_path / "all.npy", labels=tmp_path / "all.csv"), "templates")
    with pytest.raises(ConfigurationError, match=r"needs `labels` \(medium and subject"):
        evaluate_files(EvaluationFiles(embeddings=tmp_path / "all.npy"), "templates")


@pytest.mark.slow
def test_ijb_c_from_its_lists_to_a_result(tmp_path: Path) -> None:
    lines = ["SUBJECT_ID,FILENAME,SIGHTING_ID,FACE_X,FACE_Y,FACE_WIDTH,FACE_HEIGHT"]
    for subject in range(3):
        names = [f"img/{subject}{n}.jpg" for n in range(4)] + [f"frames/{subject}_{frame}.png" for frame in range(3)]
        for name in names:
            lines.append(f"{subject},{name},1,4,3,10,9")
            (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "images" / name).write_bytes(picture(name, file_format="JPEG"))
    (tmp_path / "protocols").mkdir()
    (tmp_path / "protocols" / "ijbc_metadata.csv").write_text("\n".join(lines) + "\n")
    manifest, embeddings = str(tmp_path / "manifest.parquet"), str(tmp_path / "faces.npy")
    commands = [
        ["manifest", "ijb-c", str(tmp_path), "-o", manifest],
        [
            "embed-images",
            "--images",
            manifest,
            "-o",
            embeddings,
            "--model",
            "test_resnet",
            "--pretrained",
            "none",
            "--size",
            "32",
        ],
        ["evaluate", "--protocol", "templates", "--embeddings", embeddings, "--labels", manifest, "--json"],
    ]
    for command in commands:
        result = run_hgld(*command)
    (report,) = json.loads(result.stdout)["results"]
    assert report["counts"]["queries"] == 15
    assert report["counts"]["images"] == 21
