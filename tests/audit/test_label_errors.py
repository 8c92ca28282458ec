"""Labels that neighbours contradict, beside loops over all images, on points of which some are named wrongly."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from hgld.audit import LabelErrorsConfig, LevelErrors, find_label_errors, label_errors_table
from hgld.audit.label_errors import MIN_RANDOM
from hgld.audit.nearest_images import blocks_of, centred, mean_direction
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld
from tests.datasets.pictures import manifest_of

#: Class of each twelve images, and its group: class 5 is called b and looks like those called a.
GROUPS = ("a", "a", "a", "b", "b", "b", "b")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    centres = {"a": rng.normal(size=16), "b": rng.normal(size=16)}
    rows, vectors = [], []
    for number, group in enumerate(GROUPS):
        looks_like = "a" if number == 5 else group
        centre = 2 * centres[looks_like] + rng.normal(size=16)
        for image in range(12):
            name = f"{number}-{image:02}.png"
            Image.new("RGB", (8, 8), (30 * number, 20 * image, 0)).save(tmp_path / name)
            label = 2 if (number, image) == (0, 3) else number  # the wrong finest label
            rows.append(f"{name},all,c{label},{GROUPS[label]}")
            vectors.append(centre + 0.3 * rng.normal(size=16))
    rows.append("single.png,all,c9,b")
    vectors.append(rng.normal(size=16))
    (tmp_path / "manifest.csv").write_text("\n".join(["path,split,kind,group", *rows]))
    write_embeddings(tmp_path / "e.npy", torch.from_numpy(np.stack(vectors)), [row.split(",")[0] for row in rows])
    return tmp_path


@pytest.fixture
def manifest(folder: Path) -> Manifest:
    return read_manifest(folder / "manifest.csv")


def embeddings(folder: Path) -> torch.Tensor:
    return torch.from_numpy(np.load(folder / "e.npy"))


def test_wrong_labels_are_first(folder: Path, manifest: Manifest) -> None:
    table = label_errors_table(manifest, find_label_errors(manifest, embeddings(folder))).to_pandas()
    images, classes = (table[table["level"] == level] for level in ("kind", "group"))
    assert images.iloc[0][["id", "label", "other_label"]].tolist() == ["0-03.png", "c2", "c0"]
    assert classes.iloc[0][["class", "label", "other_label"]].tolist() == ["c5", "b", "a"]
    assert (table["other_share"] > table["share"]).all()


@pytest.mark.parametrize(("k", "temperature"), [(3, 0.07), (10, 0.3), (200, 1.0)])
def test_shares_are_those_of_a_loop_over_images(folder: Path, manifest: Manifest, k: int, temperature: float) -> None:
    vectors = embeddings(folder)
    units = centred(vectors, mean_direction(vectors)).double().numpy()
    cosines = units @ units.T
    labels = manifest.labels
    for level, errors in enumerate(find_label_errors(manifest, vectors, LabelErrorsConfig(k, temperature))):

        def shares(row: int, level: int = level) -> dict[int, float]:
            others = [each for each in range(len(labels)) if each != row]
            if level:
                others = [each for each in others if labels[each, 0] != labels[row, 0]]
            nearest = sorted(others, key=lambda each: -cosines[row, each])[:k]
            weights = np.exp(cosines[row, nearest] / temperature)
            result: dict[int, float] = {}
            for each, weight in zip(nearest, weights / weights.sum(), strict=True):
                result[labels[each, level]] = result.get(labels[each, level], 0) + weight
            return result

        margins = []
        for number, row in enumerate(errors.rows.tolist()):
            rows = [row] if not level else np.flatnonzero(labels[:, 0] == labels[row, 0]).tolist()
            means = pd.DataFrame([shares(each) for each in rows]).fillna(0).mean()
            label = int(labels[row, level])
            own_shares = [shares(each).get(label, 0.0) for each in rows]
            assert shares(row).get(label, 0.0) <= min(own_shares) + 1e-5, "the image that is contradicted most"
            own, others = means.get(label, 0.0), means.drop(label, errors="ignore")
            assert errors.own_shares[number] == pytest.approx(own, abs=1e-5)
            assert errors.other_shares[number] == pytest.approx(others.max() if len(others) else 0, abs=1e-5)
            margins.append(own - errors.other_shares[number])
        assert (np.diff(margins) >= -1e-5).all(), "the most contradicted first"
    assert not (manifest.ids[find_label_errors(manifest, vectors)[0].rows] == "single.png").any(), (
        "no other could confirm it"
    )


def test_random_margins_are_those_of_images_and_classes_with_random_labels(folder: Path, manifest: Manifest) -> None:
    vectors, config = embeddings(folder), LabelErrorsConfig(10, 0.3)
    rng = np.random.default_rng(0)
    for errors in find_label_errors(manifest, vectors, config):
        units = np.arange(len(manifest.labels)) if errors.level == 0 else manifest.labels[:, 0]
        for _ in range(10):
            row, other = rng.choice(errors.rows, size=2)
            labels = manifest.labels.copy()
            if labels[row, errors.level] == labels[other, errors.level]:
                continue
            labels[units == units[row], errors.level] = labels[other, errors.level]
            relabelled = find_label_errors(replace(manifest, labelling=labels), vectors, config)[errors.level]
            (margin,) = relabelled.margins[units[relabelled.rows] == units[row]]
            assert np.abs(errors.random_margins - margin).min() < 1e-12
        assert len(errors.random_margins) > 5_000


def error_rate_by_loops(errors: LevelErrors, drawn: list[float]) -> float:
    ratios: list[float] = []
    for margin in set(errors.margins.tolist()):
        random = sum(each <= margin for each in errors.random_margins.tolist()) / len(errors.random_margins)
        if random >= MIN_RANDOM:
            ratios.append(sum(each <= margin for each in drawn) / len(drawn) / random)
    return min(ratios)


def test_highest_error_rate_is_that_of_loops_over_drawn_classes(folder: Path, manifest: Manifest) -> None:
    finest, *coarser = find_label_errors(manifest, embeddings(folder), LabelErrorsConfig(10, 0.3))
    rng = np.random.default_rng(0)
    names = sorted(set(finest.labels.tolist()))
    rates = []
    for _ in range(20):
        drawn = [names[number] for number in rng.integers(len(names), size=len(names))]
        rates.append(
            error_rate_by_loops(finest, [m for name in drawn for m in finest.margins[finest.labels == name]])
        )
    expected = pytest.approx(np.quantile(rates, 0.9), abs=1e-12)
    assert finest.highest_error_rate(confidence=0.9, n_resamples=20) == expected
    assert all(math.isnan(errors.highest_error_rate()) for errors in coarser)


@pytest.mark.parametrize("share", [0.0, 0.15])
def test_random_wrong_labels_are_at_most_the_bound(share: float) -> None:
    """Clusters of 20 images around random directions, some of which get the label of another cluster."""
    n_held = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(15), 20)
        vectors = rng.normal(size=(15, 16))[labels] + rng.normal(size=(300, 16))
        wrong = rng.permutation(300)[: round(share * 300)]
        given = labels.copy()
        given[wrong] = (labels[wrong] + rng.integers(1, 15, len(wrong))) % 15
        images = manifest_of([f"{row}.png" for row in range(300)], {"class": [f"c{label}" for label in given]})
        (errors,) = find_label_errors(images, torch.from_numpy(vectors).float())
        n_held += errors.highest_error_rate() >= len(wrong) / 300
    assert n_held >= 19


def test_a_label_with_as_many_votes_as_another_is_not_contradicted(manifest: Manifest, folder: Path) -> None:
    errors = find_label_errors(manifest, embeddings(folder))[0]
    assert errors.n_contradicted
    assert not replace(errors, other_shares=errors.own_shares).n_contradicted


def test_command_writes_table_and_page(folder: Path) -> None:
    arguments = ["audit", "labels", folder / "manifest.csv", "--embeddings", folder / "e.npy", "-o", folder / "x.csv"]
    result = run_hgld(*arguments, "--page", folder / "page.html")
    assert re.search(r"kind: 1 of 84 images contradicted; at most \d\.\d % of the labels are wrong", result.stdout)
    assert re.search(r"of 8 classes contradicted$", result.stdout, re.MULTILINE)
    assert pd.read_csv(folder / "x.csv")["id"][0] == "0-03.png"
    html = (folder / "page.html").read_text()
    assert html.index("0-03.png") < html.index("All of c5: b")


def test_a_split_is_judged_by_its_own_images(folder: Path) -> None:
    """As if the manifest had no other images: those of another split neither vote nor are judged."""
    lines = (folder / "manifest.csv").read_text().splitlines()
    halves = [line.replace(",all,", f",{('train', 'test')[number % 2]},") for number, line in enumerate(lines)]
    (folder / "manifest.csv").write_text("\n".join(halves))
    (folder / "half.csv").write_text("\n".join([lines[0], *(line for line in halves if ",test," in line)]))
    options = ("--embeddings", folder / "e.npy", "-o")
    whole = run_hgld("audit", "labels", folder / "manifest.csv", *options, folder / "split.csv", "--split", "test")
    half = run_hgld("audit", "labels", folder / "half.csv", *options, folder / "half_errors.csv")
    assert whole.stdout.splitlines()[:2] == half.stdout.splitlines()[:2]
    assert "of 42 images contradicted" in whole.stdout
    assert (folder / "split.csv").read_bytes() == (folder / "half_errors.csv").read_bytes()
    refused = run_hgld(
        "audit", "labels", folder / "manifest.csv", *options, folder / "x.csv", "--split", "tset", code=1
    )
    assert 'there is no split "tset" among the images; expected test or train' in refused.stderr


def test_a_search_in_blocks_finds_the_same(manifest: Manifest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = embeddings(folder)
    whole = find_label_errors(manifest, vectors)
    monkeypatch.setattr("hgld.audit.nearest_images.blocks_of", lambda n: blocks_of(n, 8))
    found = find_label_errors(manifest, vectors)
    # The last bits of cosines differ, and with them the order of labels with almost the same margin.
    order, expected_order = found[0].rows.argsort(), whole[0].rows.argsort()
    np.testing.assert_array_equal(found[0].neighbours[order], whole[0].neighbours[expected_order])
    for errors, expected in zip(found, whole, strict=True):
        np.testing.assert_allclose(errors.margins, expected.margins, atol=1e-6)


def test_files_that_do_not_fit_are_refused_before_any_work(folder: Path) -> None:
    manifest, vectors = folder / "manifest.csv", np.load(folder / "e.npy")

    def refused(*options: object) -> str:
        return run_hgld("audit", "labels", manifest, "-o", folder / "errors.csv", *options, code=1).stderr

    assert "none.npy: no such file" in refused("--embeddings", folder / "none.npy")
    assert "nowhere: no such folder" in refused("--embeddings", folder / "e.npy", "--images", folder / "nowhere")
    ids = (folder / "e.ids.txt").read_text().splitlines()
    (folder / "few.ids.txt").write_text("\n".join([*ids[1:], ""]))
    np.save(folder / "few.npy", vectors[1:])
    assert "1 of the 85 images of the manifest are not embedded; embed these, too, or leave them out" in refused(
        "--embeddings", folder / "few.npy"
    )
    vectors[7, 2] = np.nan
    np.save(folder / "nan.npy", vectors)
    (folder / "nan.ids.txt").write_text("\n".join([*ids, ""]))
    assert "nan.npy: 1 embedding with NaN or infinite values: 0-07.png; embed" in refused(
        "--embeddings", folder / "nan.npy"
    )
    assert (
        "manifest.csv: is an input, and would be overwritten"
        in run_hgld("audit", "labels", manifest, "-o", manifest, "--embeddings", folder / "e.npy", code=1).stderr
    )


def test_wrong_inputs_are_explained(folder: Path, manifest: Manifest) -> None:
    with pytest.raises(ConfigurationError, match="`neighbours` is 0 and `temperature` 0.07; expected at least 1"):
        LabelErrorsConfig(neighbours=0)
    with pytest.raises(InputError, match="no class has two images"):
        find_label_errors(manifest.take(np.array([0, 12, 24])), embeddings(folder)[[0, 12, 24]])
