"""Groups of copies and near views among pictures of noise, the commands around them, and wrong inputs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from hgld.audit import ALTERATIONS, Duplicates, DuplicatesConfig, find_duplicates, measure_recall
from hgld.audit.nearest_images import blocks_of
from hgld.audit.pages import write_duplicates_page
from hgld.datasets.manifest import read_manifest
from hgld.errors import ConfigurationError, InputError
from tests.audit.test_alignment import scene, with_person
from tests.commands import run_hgld

LABELS = ("oak,tree", "elm,tree", "rose,flower")


def picture(seed: int) -> Image.Image:
    return scene(seed, 160, 128)


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


def groups_of(found: Duplicates, relation: str = "copy") -> list[list[str]]:
    """The ids of each group, the kept image first."""
    ids = found.manifest.ids
    return [[ids[group.kept], *ids[group.others].tolist()] for group in found.of(relation)]


@pytest.mark.parametrize("with_embeddings", [True, False])
def test_copies_are_found_across_splits_and_labels(folder: Path, with_embeddings: bool) -> None:
    found, _ = found_in(folder, with_embeddings=with_embeddings)
    assert groups_of(found) == [["07.png", "crop.png"], ["same.png", "04.png"]]
    assert [group.same_pixels.tolist() for group in found.groups] == [[False], [True]]
    assert [found.is_across_splits(group) for group in found.groups] == [False, True]
    assert [found.is_across_labels(group) for group in found.groups] == [True, False]
    table = found.to_arrow().to_pandas()
    expected = ["relation", "duplicate_group", "id", "split", "kind", "group", "same_pixels", "kept", "leave_out"]
    assert table.columns.tolist() == expected
    assert table[table["leave_out"]]["id"].tolist() == ["crop.png", "04.png"], "the training gives way to the test"


def add_images(folder: Path, images: dict[str, Image.Image], split: str = "train") -> None:
    with (folder / "manifest.csv").open("a") as file:
        for name, image in images.items():
            image.save(folder / name)
            file.write(f"\n{name},{split},{LABELS[0]}")


def test_equal_images_of_one_colour_are_found(folder: Path) -> None:
    """They have no details to compare: the same file twice, and the same pixels in another format."""
    grey = Image.new("RGB", (30, 30), (90, 90, 90))
    add_images(folder, {"grey.png": grey})
    others = {"other.png": Image.new("RGB", (30, 30), (91, 91, 91)), "wider.png": grey.resize((31, 30))}
    add_images(folder, {"again.png": grey, "grey.bmp": grey, **others}, split="test")
    for with_embeddings in (True, False):
        found, _ = found_in(folder, with_embeddings=with_embeddings)
        assert groups_of(found)[-1] == ["again.png", "grey.png", "grey.bmp"]
        assert found.groups[-1].same_pixels.all()
        assert not {"other.png", "wider.png"} & set(found.to_arrow()["id"].to_pylist())
    blank = "\n".join(f"{name},train,{LABELS[0]}" for name in ("grey.png", "again.png", "wider.png"))
    (folder / "manifest.csv").write_text(f"path,split,kind,group\n{blank}")
    assert groups_of(find_duplicates(read_manifest(folder / "manifest.csv"), folder)) == [["grey.png", "again.png"]]


def test_chains_of_copies_are_not_one_group(folder: Path) -> None:
    """The middle of three parts of a scene is a crop of neither of the others, which do not show the same."""
    whole = scene(50, 300, 200)
    parts = {"a.png": whole.crop((0, 0, 240, 200)), "b.png": whole, "c.png": whole.crop((60, 0, 300, 200))}
    add_images(folder, {name: parts[name] for name in ("a.png", "c.png")})
    apart, _ = found_in(folder)
    assert not {"a.png", "c.png"} & {name for group in groups_of(apart) for name in group}
    add_images(folder, {"b.png": parts["b.png"]})
    found, _ = found_in(folder)
    assert groups_of(found)[-1] == ["b.png", "a.png", "c.png"], "both are crops of the image that is kept"
    add_images(
        folder, {"d.png": parts["a.png"].crop((0, 0, 200, 200)), "e.png": parts["a.png"].crop((40, 0, 240, 200))}
    )
    found, _ = found_in(folder)
    for group in found.of("copy"):
        kept = group.kept
        for row in group.others.tolist():
            assert np.isin(found.manifest.ids[[kept, row]], apart.manifest.ids).all() or group.agreements.min() > 0.9


def test_a_burst_is_not_a_group_of_copies(folder: Path) -> None:
    """Each frame is shifted from the one before it, so that neighbours hardly differ and the ends do."""
    whole = scene(51, 400, 200)
    frames = {f"frame{number}.png": whole.crop((25 * number, 0, 25 * number + 200, 200)) for number in range(8)}
    add_images(folder, frames)
    found, _ = found_in(folder)
    assert not {name for group in groups_of(found) for name in group} & frames.keys()
    near_views = groups_of(found, "near view")
    assert near_views
    assert max(map(len, near_views)) < len(frames)
    assert not found.excluded("copy")[-len(frames) :].any()


def test_near_views_of_copies_are_near_views_of_the_kept_image(folder: Path) -> None:
    frames = {"still.png": with_person(scene(52), 20), "moved.png": with_person(scene(52), 120)}
    add_images(folder, frames)
    add_images(folder, {"still.jpg": frames["still.png"]}, split="test")
    found, _ = found_in(folder)
    assert groups_of(found)[-1] == ["still.jpg", "still.png"]
    assert groups_of(found, "near view") == [["still.jpg", "moved.png"]]
    table = found.to_arrow().to_pandas()
    assert not table[table["relation"] == "near view"]["leave_out"].any()


def test_a_pair_does_not_depend_on_other_images(folder: Path) -> None:
    """Beside many copies of both, two images are what they are alone."""
    pair = {"still.png": with_person(scene(52), 20), "moved.png": with_person(scene(52), 120)}
    add_images(folder, pair)
    alone, _ = found_in(folder)
    copies = {}
    for quality in range(30, 60, 5):
        for name, image in pair.items():
            copies[f"{quality}-{name}"] = image.resize((quality * 4, quality * 3))
    add_images(folder, copies)
    found, _ = found_in(folder)
    groups = [group for group in groups_of(found) if any("moved" in name or "still" in name for name in group)]
    assert sorted(len(group) for group in groups) == [7, 7]
    for group in groups:
        assert len({name.rpartition("-")[2] for name in group}) == 1
    assert groups_of(alone, "near view") == [["still.png", "moved.png"]]
    assert [len(group) for group in groups_of(found, "near view")] == [2]


def test_altered_copies_are_found(folder: Path) -> None:
    found, embeddings = found_in(folder)
    for options in ((embeddings, embed), ()):
        shares = measure_recall(found.manifest, folder, *options, n_images=10)
        assert shares.keys() == ALTERATIONS.keys()
        assert min(shares.values()) == 1, shares


@pytest.mark.parametrize("with_embeddings", [True, False])
def test_a_search_in_blocks_finds_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, with_embeddings: bool
) -> None:
    """Also pairs of which each image is in another block, beside an image that cannot be read."""
    whole, _ = found_in(folder, with_embeddings=with_embeddings)
    (folder / "crop.png").write_bytes(b"no picture")
    monkeypatch.setattr("hgld.audit.nearest_images.blocks_of", lambda n: blocks_of(n, 8))
    monkeypatch.setattr("hgld.audit.duplicates._BLOCK", 8)
    manifest = read_manifest(folder / "manifest.csv")
    embeddings = embed([picture(number) for number in (*range(20), 4, 7)]) if with_embeddings else None
    found = find_duplicates(manifest, folder, embeddings)
    assert groups_of(found) == [["same.png", "04.png"]]
    assert found.groups[0].agreements.tolist() == whole.groups[1].agreements.tolist()
    assert [*found.unreadable] == ["crop.png"]


def test_the_most_alike_copies_are_first_on_the_page(folder: Path) -> None:
    """Within each kind of copies, wherever they are in the manifest, and before near views."""
    with_logo = picture(3)
    with_logo.paste(scene(98, 18, 14), (60, 60))
    add_images(folder, {"03-again.png": with_logo, "06-again.png": picture(6)})
    frames = {"still.png": with_person(scene(52), 20), "moved.png": with_person(scene(52), 120)}
    add_images(folder, frames)
    found, _ = found_in(folder)
    write_duplicates_page(found, folder / "page.html", folder)
    html = (folder / "page.html").read_text()
    places = [html.index(name) for name in ("04.png", "07.png", "06.png", "03.png", "Near views", "still.png")]
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
    run("embed-images", *model, "--manifest", folder / "manifest.csv", "-o", folder / "all.npy")
    (folder / "clean.csv").write_text("".join((folder / "manifest.csv").read_text().rpartition("\n")[:1]))
    options = ("--images", folder, "--page", folder / "page.html", "--embeddings", folder / "all.npy", "--recall")
    shown = run("audit", "duplicates", folder / "clean.csv", "-o", folder / "copies.csv", *options)
    assert (
        "2 groups of copies: 2 to leave out, 1 with the same pixels; 1 group across splits, 1 across labels" in shown
    )
    assert "0 groups of near views: 0 besides the kept ones" in shown
    assert "mirrored" in shown
    html = (folder / "page.html").read_text()
    assert html.index("across splits") < html.index("04.png") < html.index("across labels") < html.index("crop.png")
    shown = run("manifest", "leave-out", folder / "clean.csv", folder / "copies.csv", "-o", folder / "clean.parquet")
    assert "20 images (1 test, 19 train)" in shown
    assert "excluded: 2 images named in copies.csv" in shown
    kept = read_manifest(folder / "clean.parquet").ids
    assert {"04.png", "crop.png"}.isdisjoint(kept)
    shown = run("audit", "duplicates", folder / "manifest.csv", "-o", folder / "copies.parquet")
    assert "1 image could not be read: broken.png" in shown
    assert pd.read_parquet(folder / "copies.parquet")["id"].tolist() == ["07.png", "crop.png", "same.png", "04.png"]


def test_near_views_are_left_out_on_request(folder: Path) -> None:
    frames = {"still.png": with_person(scene(52), 20), "moved.png": with_person(scene(52), 120)}
    add_images(folder, frames)
    run("audit", "duplicates", folder / "manifest.csv", "-o", folder / "copies.csv")
    leave_out = (
        "manifest",
        "leave-out",
        folder / "manifest.csv",
        folder / "copies.csv",
        "-o",
        folder / "kept.parquet",
    )
    assert "excluded: 2 images" in run(*leave_out)
    assert {*frames} < {*read_manifest(folder / "kept.parquet").ids}
    assert "excluded: 3 images" in run(*leave_out, "--near-views")
    assert "still.png" in read_manifest(folder / "kept.parquet").ids
    assert "moved.png" not in read_manifest(folder / "kept.parquet").ids
    (folder / "ids.csv").write_text("id,leave_out\n04.png,true")
    shown = run_hgld(*leave_out[:3], folder / "ids.csv", "-o", folder / "x.parquet", "--near-views", code=1).stderr
    assert "ids.csv: near views need the columns leave_out, relation and kept" in shown


def test_wrong_inputs_are_explained(folder: Path) -> None:
    for name in ("copy_agreement", "near_view_agreement"):
        for value in (94, 1.5, 0, -1, float("nan"), float("inf")):
            with pytest.raises(ConfigurationError, match=f"`{name}` is .*; expected a share above 0, up to 1"):
                DuplicatesConfig(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match='no split "Train" among the images; expected test or train'):
        find_duplicates(read_manifest(folder / "manifest.csv"), folder, config=DuplicatesConfig(train_split="Train"))
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
