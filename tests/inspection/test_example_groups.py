"""Example photographs of groups: which are chosen, and who is named for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hgld.datasets.manifest import write_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.figures.photographs import ExampleGroup
from hgld.inspection import example_groups
from hgld.inspection.example_groups import ExamplesConfig, draw_examples_file
from hgld.tables import Provenance
from tests.commands import run_hgld
from tests.datasets.pictures import manifest_of, save_pictures

#: Images of the landmarks of each group, by root.
GROUPS = {
    "natural": {"lake": {"lake1": 3, "lake2": 1, "lake3": 1}, "beach": {"beach1": 9}},
    "human-made": {"church": {"church1": 2}, "bridge": {"bridge1": 1, "bridge2": 2}, "tower": {"tower1": 1}},
}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    rows = [
        (f"{landmark}_{number}.jpg", landmark, group, root)
        for root, groups in GROUPS.items()
        for group, landmarks in groups.items()
        for landmark, n_images in landmarks.items()
        for number in range(n_images)
    ]
    ids, landmarks, groups, roots = (list(column) for column in zip(*rows, strict=True))
    save_pictures(tmp_path, *ids)
    (tmp_path / "beach1_0.jpg").write_bytes(b"no image")
    path = tmp_path / "manifest.parquet"
    write_manifest(
        path, manifest_of(ids, {"landmark": landmarks, "group": groups, "root": roots}), Provenance("test")
    )
    return path


def drawn(
    monkeypatch: pytest.MonkeyPatch, manifest: Path, config: ExamplesConfig
) -> Mapping[str, Sequence[ExampleGroup]]:
    columns: dict[str, Sequence[ExampleGroup]] = {}
    monkeypatch.setattr(example_groups, "draw_examples", lambda _, drawn: columns.update(drawn))
    draw_examples_file(manifest, manifest.parent / "out.png", config)
    return columns


def test_the_largest_groups_of_each_root_are_shown(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = drawn(monkeypatch, manifest, ExamplesConfig(n_groups=2, n_photographs=4))
    assert {root: [group.title for group in groups] for root, groups in columns.items()} == {
        "natural": ["beach", "lake"],
        "human-made": ["bridge", "church"],
    }
    assert list(columns) == ["natural", "human-made"]
    assert [group.note for group in columns["natural"]] == ["1 landmark, 9 images", "3 landmarks, 5 images"]
    assert [len(group.photographs) for group in columns["human-made"]] == [3, 2]
    assert {photo.size for groups in columns.values() for group in groups for photo in group.photographs} == {
        (220, 220)
    }
    roots = drawn(monkeypatch, manifest, ExamplesConfig(level="root", n_groups=1))
    assert [group.title for group in roots[""]] == ["natural"]


@pytest.mark.parametrize("seed", [3])
def test_photographs_are_of_different_landmarks_where_there_are_enough(manifest: Path, seed: int) -> None:
    sources = manifest.parent / "train.csv"
    names = sorted(path.name for path in manifest.parent.glob("*.jpg"))
    sources.write_text("id,url,landmark_id\n" + "".join(f"{name},https://e.org/{name}|x,1\n" for name in names))
    config = ExamplesConfig(n_photographs=3, seed=seed)
    picture, credits = draw_examples_file(manifest, manifest.parent / "out.png", config, sources=sources)
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = [line.strip("| ").split(" | ") for line in credits.read_text().splitlines()]
    assert rows[0] == ["group", "photograph", "url"]
    shown: dict[str, list[str]] = {}
    for group, name, url in rows[2:]:
        shown.setdefault(group, []).append(name)
        assert url == rf"https://e.org/{name}\|x"
    assert {name.split("_")[0] for name in shown["lake"]} == {"lake1", "lake2", "lake3"}
    assert {name.split("_")[0] for name in shown["bridge"][:2]} == {"bridge1", "bridge2"}
    assert len(shown["beach"]) == 3
    assert "beach1_0.jpg" not in shown["beach"]  # unreadable


def test_what_cannot_be_drawn(manifest: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out.png")
    result = run_hgld("examples", manifest, "-o", out, "--groups", "0", code=1)
    assert "--groups is 0; expected 1 or more" in result.stderr
    with pytest.raises(ConfigurationError, match='`level` is "landmark"; expected one of group, root'):
        draw_examples_file(manifest, Path(out), ExamplesConfig(level="landmark"))
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(InputError, match="none of its photographs can be read; name their folder with `root`"):
        draw_examples_file(manifest, Path(out), root=tmp_path / "elsewhere")
    (tmp_path / "sources.csv").write_text("id,place\na,b\n")
    with pytest.raises(InputError, match="expected the column id and some of page, url, author"):
        draw_examples_file(manifest, Path(out), sources=tmp_path / "sources.csv")
    write_manifest(manifest, manifest_of(["a.jpg"], {"landmark": ["1"]}), Provenance("test"))
    with pytest.raises(ConfigurationError, match="the level landmark alone"):
        draw_examples_file(manifest, Path(out))
    assert not Path(out).exists()
