"""Copies of pictures of noise, correlations beside scikit-learn's one pair at a time, and wrong inputs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter, zoom

from hgld.audit import (
    ALTERATIONS,
    Duplicates,
    DuplicatesConfig,
    find_duplicates,
    measure_recall,
    thumbnail_correlations,
)
from hgld.audit.duplicates import thumbnail
from hgld.audit.nearest_images import blocks_of
from hgld.audit.pages import write_duplicates_page
from hgld.datasets.manifest import read_manifest
from hgld.errors import ConfigurationError, InputError
from tests.commands import run_hgld

LABELS = ("oak,tree", "elm,tree", "rose,flower")


def picture(seed: int) -> Image.Image:
    """Smooth noise with details, as of photographs."""
    rng = np.random.default_rng(seed)
    coarse, fine = (zoom(rng.uniform(0, 255, (n, n, 3)), (96 / n, 120 / n, 1), order=1) for n in (3, 12))
    return Image.fromarray(np.clip(0.4 * coarse + 0.6 * fine, 0, 255).astype(np.uint8))


def embed(images: Sequence[Image.Image]) -> torch.Tensor:
    """Embeddings that hardly change with crops and mirror images: grey values of nine symmetric fields."""
    values = [np.asarray(image.convert("L").resize((3, 3), Image.Resampling.BOX), np.float32) for image in images]
    return torch.from_numpy(np.stack([(each + each[:, ::-1]).ravel() for each in values]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty pictures of three classes, the same one again in the test, and a mirrored crop under another label."""
    rows = []
    for number in range(20):
        picture(number).save(tmp_path / f"{number:02}.png")
        rows.append(f"{number:02}.png,train,{LABELS[number % 3]}")
    picture(4).save(tmp_path / "same.png")
    crop = ALTERATIONS["cropped to 95 % of both sides"](ALTERATIONS["mirrored"](picture(7)))
    crop.save(tmp_path / "crop.png")
    rows += [f"same.png,test,{LABELS[4 % 3]}", f"crop.png,train,{LABELS[2]}"]
    (tmp_path / "manifest.csv").write_text("\n".join(["path,split,kind,group", *rows]))
    return tmp_path


def found_in(folder: Path, *, with_embeddings: bool = True) -> tuple[Duplicates, torch.Tensor]:
    manifest = read_manifest(folder / "manifest.csv")
    embeddings = embed([Image.open(folder / path) for path in manifest.paths])
    return find_duplicates(manifest, folder, embeddings if with_embeddings else None), embeddings


def test_copies_are_found_across_splits_and_labels(folder: Path) -> None:
    found, _ = found_in(folder)
    ids = found.manifest.ids
    assert [ids[pair].tolist() for pair in found.pairs] == [["04.png", "same.png"], ["07.png", "crop.png"]]
    assert found.same_pixels.tolist() == found.across_splits.tolist() == [True, False]
    assert found.across_labels.tolist() == [False, True]
    table = found.to_arrow().to_pandas()
    assert table.columns.tolist() == ["copy_group", "id", "split", "kind", "group", "same_pixels", "leave_out"]
    assert table[table["leave_out"]]["id"].tolist() == ["04.png", "crop.png"], "the training gives way to the test"


def test_equal_images_of_one_colour_are_found(folder: Path) -> None:
    """They have no details to correlate: the same file twice, and the same pixels in another format."""
    for name, colour, size in (
        ("grey.png", 90, 30),
        ("again.png", 90, 30),
        ("grey.bmp", 90, 30),
        ("other.png", 91, 30),
    ):
        Image.new("RGB", (size, size), (colour, colour, colour)).save(folder / name)
    Image.new("RGB", (31, 30), (90, 90, 90)).save(folder / "wider.png")
    names = ["grey.png", "again.png", "grey.bmp", "other.png", "wider.png"]
    with (folder / "manifest.csv").open("a") as file:
        file.writelines(f"\n{name},{'train' if name == 'grey.png' else 'test'},{LABELS[0]}" for name in names)
    for with_embeddings in (True, False):
        found, _ = found_in(folder, with_embeddings=with_embeddings)
        ids = found.manifest.ids
        pairs = [ids[pair].tolist() for pair in found.pairs if "grey.png" in ids[pair].tolist()]
        assert pairs == [["grey.png", "again.png"], ["grey.png", "grey.bmp"]]
        assert not {"other.png", "wider.png"} & set(ids[found.pairs.ravel()].tolist())
        assert found.same_pixels[-2:].all()
        assert (found.correlations[-2:] == 1).all()


def test_thumbnails_find_all_but_crops(folder: Path) -> None:
    found, _ = found_in(folder, with_embeddings=False)
    assert found.manifest.ids[found.pairs[0]].tolist() == ["04.png", "same.png"]
    assert np.isnan(found.cosines).all()


def test_altered_copies_are_found(folder: Path) -> None:
    found, embeddings = found_in(folder)
    shares = measure_recall(found, folder, embeddings, embed, n_images=10)
    assert shares.keys() == ALTERATIONS.keys()
    assert min(shares.values()) >= 0.9, shares
    alone = measure_recall(found, folder, n_images=10)
    assert alone["half the size"] == 1 > alone["mirrored"]


@pytest.mark.parametrize("seed", range(3))
def test_correlations_are_those_of_every_crop_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    thumbnails = rng.integers(0, 256, (2, 32, 32), dtype=np.uint8)
    thumbnails[1] = np.asarray(Image.fromarray(thumbnails[0, 2:30, 4:32]).resize((32, 32)))[:, ::-1]
    first, second = (values - gaussian_filter(values, 2.0) for values in thumbnails.astype(np.float32))
    best = -1.0
    for whole, part in ((first, second), (second, first)):
        for flipped in (part, part[:, ::-1].copy()):
            for side in (32, 30, 28, 26):
                small = torch.nn.functional.interpolate(
                    torch.from_numpy(flipped)[None, None], (side, side), mode="bilinear", antialias=True
                )
                for top in range(33 - side):
                    for left in range(33 - side):
                        window = whole[top : top + side, left : left + side]
                        best = max(best, np.corrcoef(window.ravel(), small.numpy().ravel())[0, 1])
    pairs = np.array([[0, 1], [1, 0], [0, 0]])
    assert thumbnail_correlations(thumbnails, pairs) == pytest.approx([best, best, 1.0], abs=1e-5)
    assert best > 0.5
    blank = np.zeros((2, 32, 32), np.uint8)
    assert thumbnail_correlations(blank, np.array([[0, 1]])).tolist() == [0]


def test_correlation_does_not_depend_on_other_pairs() -> None:
    thumbnails = np.stack([thumbnail(picture(seed)) for seed in range(6)])
    pairs = np.array([[first, second] for first in range(6) for second in range(first)])
    alone = [thumbnail_correlations(thumbnails, pair[None])[0] for pair in pairs]
    assert thumbnail_correlations(thumbnails, pairs).tolist() == alone
    assert thumbnail_correlations(thumbnails, pairs[:0]).tolist() == []


@pytest.mark.parametrize("with_embeddings", [True, False])
def test_a_search_in_blocks_finds_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, with_embeddings: bool
) -> None:
    """Also pairs of which each image is in another block, beside an image that cannot be read."""
    whole, _ = found_in(folder, with_embeddings=with_embeddings)
    (folder / "crop.png").write_bytes(b"no picture")
    monkeypatch.setattr("hgld.audit.nearest_images.blocks_of", lambda n: blocks_of(n, 8))
    manifest = read_manifest(folder / "manifest.csv")
    embeddings = embed([picture(number) for number in (*range(20), 4, 7)]) if with_embeddings else None
    found = find_duplicates(manifest, folder, embeddings)
    assert [found.manifest.ids[pair].tolist() for pair in found.pairs] == [["04.png", "same.png"]]
    assert found.correlations.tolist() == whole.correlations[:1].tolist()
    assert [*found.unreadable] == ["crop.png"]


def test_the_most_alike_copies_are_first_on_the_page(folder: Path) -> None:
    """Within each kind of copies, wherever they are in the manifest."""
    picture(3).save(folder / "03-again.jpg", quality=20)
    picture(6).save(folder / "06-again.png")
    with (folder / "manifest.csv").open("a") as file:
        file.write(f"\n03-again.jpg,train,{LABELS[0]}\n06-again.png,train,{LABELS[0]}")
    found, _ = found_in(folder)
    assert found.manifest.ids[found.pairs[:, 0]].tolist() == ["03.png", "04.png", "06.png", "07.png"]
    write_duplicates_page(found, folder / "page.html", folder)
    html = (folder / "page.html").read_text()
    places = [html.index(name) for name in ("04.png", "07.png", "06.png", "03.png")]
    assert places == sorted(places)
    write_duplicates_page(found, folder / "page.html", folder, limit=1)
    html = (folder / "page.html").read_text()
    assert "06.png" in html
    assert "03.png" not in html


def run(*arguments: object) -> str:
    return run_hgld(*arguments).stdout


def test_commands_from_copies_to_a_clean_manifest(folder: Path) -> None:
    (folder / "broken.png").write_bytes(b"no picture")
    with (folder / "manifest.csv").open("a") as file:
        file.write("\nbroken.png,train,oak,tree")
    model = ("--model", "test_resnet", "--pretrained", "none", "--size", 32, "--workers", 0)
    run("embed-images", *model, "--images", folder / "manifest.csv", "-o", folder / "all.npy")
    (folder / "clean.csv").write_text("".join((folder / "manifest.csv").read_text().rpartition("\n")[:1]))
    options = ("--root", folder, "--page", folder / "page.html", "--embeddings", folder / "all.npy", "--recall")
    shown = run("audit", "duplicates", folder / "clean.csv", "-o", folder / "copies.csv", *options)
    assert "22 images, 4 of them in 2 groups of copies" in shown
    assert "2 pairs: 1 of the same pixels, 1 across splits, 1 across labels" in shown
    assert "mirrored" in shown
    html = (folder / "page.html").read_text()
    assert html.index("Across splits") < html.index("04.png") < html.index("Across labels") < html.index("crop.png")
    shown = run("manifest", "leave-out", folder / "clean.csv", folder / "copies.csv", "-o", folder / "clean.parquet")
    assert "20 images (1 test, 19 train)" in shown
    assert "excluded: 2 images named in copies.csv" in shown
    kept = read_manifest(folder / "clean.parquet").ids
    assert {"04.png", "crop.png"}.isdisjoint(kept)
    shown = run("audit", "duplicates", folder / "manifest.csv", "-o", folder / "copies.parquet")
    assert "1 image could not be read: broken.png" in shown
    assert pd.read_parquet(folder / "copies.parquet")["id"].tolist()[:2] == ["04.png", "same.png"]


def test_wrong_inputs_are_explained(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="`neighbours` is 0; expected at least 1"):
        DuplicatesConfig(neighbours=0)
    (folder / "broken.png").write_bytes(b"no picture")
    (folder / "broken.csv").write_text("path,split,kind\nbroken.png,train,oak")
    with pytest.raises(InputError, match="no image can be read; broken.png: "):
        find_duplicates(read_manifest(folder / "broken.csv"), folder)

    def refused(table: str) -> str:
        (folder / "table.csv").write_text(table)
        arguments = [
            "manifest",
            "leave-out",
            folder / "manifest.csv",
            folder / "table.csv",
            "-o",
            folder / "x.parquet",
        ]
        return run_hgld(*arguments, code=1).stderr

    assert "table.csv: 1 ids are not in" in refused("id\nnobody.png\n")
    assert "leave_out is maybe; expected true or false" in refused("id,leave_out\n04.png,maybe\n")
    ids = "\n".join(read_manifest(folder / "manifest.csv").ids)
    assert "table.csv: leaves no image of" in refused(f"id\n{ids}\n")
