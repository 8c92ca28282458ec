"""Photographs out of tar files: of a folder, by its index, and of a mirror."""

import hashlib
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hgld.errors import ConfigurationError, InputError, SourceError
from hgld.gldv2.image_index import index_images
from hgld.gldv2.photograph_list import PhotographList
from hgld.gldv2.photographs import TABLE_NAME, fetch_photographs, plan_photographs
from hgld.gldv2.settings import DownloadConfig, PhotographsConfig
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.gldv2.file_server import Fault, FileServer
from tests.gldv2.photograph_files import contents_of, real_photographs, rows_of

Serve = Callable[..., FileServer]
ABSENT = "0123456789abcdef"
QUICK = DownloadConfig(max_retries=1, timeout_s=10, backoff_s=0.01)


@pytest.fixture
def photographs(shared: Path) -> dict[str, bytes]:
    return real_photographs(shared, 6)


@pytest.fixture
def copy(photographs: dict[str, bytes], tmp_path: Path) -> Path:
    """A folder with three tar files of two photographs each, and their MD5, as at the host."""
    folder, names = tmp_path / "copy", list(photographs)
    (folder / "train").mkdir(parents=True)
    (folder / "md5sum/train").mkdir(parents=True)
    for number in range(3):
        path = folder / f"train/images_00{number}.tar"
        with tarfile.open(path, "w") as archive:
            for name in names[2 * number : 2 * number + 2]:
                (tmp_path / "file").write_bytes(photographs[name])
                archive.add(tmp_path / "file", "/".join((*name[:3], f"{name}.jpg")))
        md5 = hashlib.md5(path.read_bytes()).hexdigest()
        (folder / f"md5sum/train/md5.images_00{number}.txt").write_text(f"{md5}  images_00{number}.tar\n")
    return folder


@pytest.fixture
def wanted(photographs: dict[str, bytes]) -> PhotographList:
    first, _, third, *_ = photographs
    facts = {
        first: {"url": "https://a", "author": "Jö", "license": "https://creativecommons.org/licenses/by/3.0"},
        third: {"license": "CC BY 3.0"},
    }
    return PhotographList([third, ABSENT, first], facts)


def test_folder_and_its_index_give_the_same(
    copy: Path, wanted: PhotographList, photographs: dict[str, bytes], tmp_path: Path
) -> None:
    index_images(copy, copy / "images.parquet")
    for name, place in (("a", copy), ("b", copy / "images.parquet")):
        config = PhotographsConfig(source=place)
        plan = plan_photographs(wanted, tmp_path / name, config)
        n_bytes = sum(len(photographs[image_id]) for image_id in wanted.ids if image_id != ABSENT)
        assert (plan.work.absent, plan.work.n_bytes, plan.work.shards) == (1, n_bytes, 2)
        summary = not_none(fetch_photographs(wanted, tmp_path / name, config))
        assert summary.statuses == {"ok": 2, "not_in_tar_files": 1}
        assert fetch_photographs(wanted, tmp_path / name, config) is None
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")
    contents = contents_of(tmp_path / "a")
    assert contents == {"/".join((*key[:3], f"{key}.jpg")): photographs[key] for key in wanted.ids if key != ABSENT}
    rows = rows_of(tmp_path / "a")
    third, _, first = wanted.ids
    assert rows[first] == {
        "status": "ok", "url": "https://a", "page": None, "author": "Jö", "licence": None,
        "licence_url": "https://creativecommons.org/licenses/by/3.0", "uploaded_at": None,
        "source": "train/images_000.tar", "shard": "train/images_000.tar", "width": 224, "height": 224,
        "sha1": hashlib.sha1(photographs[first]).hexdigest(),
    }  # fmt: skip
    assert (rows[third]["licence"], rows[third]["licence_url"]) == ("CC BY 3.0", None)
    assert rows[third]["source"] == "train/images_001.tar"


def test_photograph_that_cannot_be_read_is_listed(copy: Path, photographs: dict[str, bytes], tmp_path: Path) -> None:
    path = copy / "train/images_000.tar"
    first = next(iter(photographs))
    data = path.read_bytes()
    path.write_bytes(data.replace(photographs[first], bytes(len(photographs[first]))))
    summary = not_none(fetch_photographs(PhotographList([first]), tmp_path / "out", PhotographsConfig(source=copy)))
    assert summary.statuses == {"unreadable": 1}


def test_mirror_is_searched_file_by_file(
    copy: Path, wanted: PhotographList, serve: Serve, photographs: dict[str, bytes], tmp_path: Path
) -> None:
    server = serve(copy)
    config = PhotographsConfig("shards", shards=(0, 1, 2), base_url=server.url, download=QUICK)
    third, _, first = wanted.ids
    plan = plan_photographs(wanted, tmp_path / "out", config)
    assert (plan.work.shards, plan.work.n_bytes) == (3, 3_000_000_000)
    assert not server.requests
    # Without the absent one the last file is not needed.
    summary = not_none(fetch_photographs(PhotographList([third, first]), tmp_path / "out", config))
    assert (summary.statuses, set(server.sent) & {"train/images_002.tar"}) == ({"ok": 2}, set())
    summary = not_none(fetch_photographs(wanted, tmp_path / "out", config))
    assert summary.statuses == {"ok": 2, "not_in_tar_files": 1}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [TABLE_NAME, "train"]
    assert len(contents_of(tmp_path / "out")) == 2


def test_interrupted_search_of_a_mirror_resumes(
    copy: Path, serve: Serve, photographs: dict[str, bytes], tmp_path: Path
) -> None:
    server = serve(copy)
    server.faults["train/images_002.tar"] = [Fault(status=503)] * 2
    config = PhotographsConfig("shards", shards=(0, 1, 2), base_url=server.url, download=QUICK)
    wanted = PhotographList([*photographs, ABSENT])
    with pytest.raises(SourceError, match="run the same command again later to resume"):
        fetch_photographs(wanted, tmp_path / "out", config)
    summary = not_none(fetch_photographs(wanted, tmp_path / "out", config))
    assert (summary.statuses, summary.fetched) == ({"ok": 6, "not_in_tar_files": 1}, 2)
    assert [len(server.gets(f"train/images_00{number}.tar")) for number in range(3)] == [1, 1, 3]
    assert len(contents_of(tmp_path / "out")) == 6


def test_files_searched_for_other_photographs_are_searched_again(
    copy: Path, serve: Serve, photographs: dict[str, bytes], tmp_path: Path
) -> None:
    server = serve(copy)
    server.faults["train/images_001.tar"] = [Fault(status=503)] * 2
    config = PhotographsConfig("shards", shards=(0, 1), base_url=server.url, download=QUICK)
    first, second, *_ = photographs
    with pytest.raises(SourceError):
        fetch_photographs(PhotographList([first, ABSENT]), tmp_path / "out", config)
    summary = not_none(fetch_photographs(PhotographList([first, second]), tmp_path / "out", config))
    assert summary.statuses == {"ok": 2}


def test_wrong_places(copy: Path, wanted: PhotographList, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"name those to search in `shards`, or 0:499 for all, which are 500 GB"
    ):
        plan_photographs(wanted, tmp_path / "out", PhotographsConfig("shards"))
    with pytest.raises(InputError, match="no tar files in this folder"):
        plan_photographs(wanted, tmp_path / "out", PhotographsConfig(source=copy / "md5sum"))
    with pytest.raises(
        ConfigurationError, match="absent: no such file or folder; expected commons, shards, a folder"
    ):
        PhotographsConfig(source=tmp_path / "absent")
    shutil.copy(copy / "md5sum/train/md5.images_000.txt", tmp_path / "x.parquet")
    with pytest.raises(InputError, match="not a Parquet file"):
        plan_photographs(wanted, tmp_path / "out", PhotographsConfig(source=tmp_path / "x.parquet"))
    with pytest.raises(ConfigurationError, match="`shards` are tar files of a mirror"):
        PhotographsConfig(source=copy, shards=(1,))
    with pytest.raises(ConfigurationError, match='`split` is "all"'):
        PhotographsConfig(source=copy, split="all")
    with pytest.raises(ConfigurationError, match="train has no shard 500"):
        plan_photographs(wanted, tmp_path / "out", replace(PhotographsConfig("shards"), shards=(500,)))


def test_command_for_the_photographs_of_washington(shared: Path, tmp_path: Path) -> None:
    options = ("--ids", "washington", "--from", shared / "wa_gldv2", "-o", tmp_path, "--plan")
    planned = run_hgld("fetch", "gldv2", *options).stdout
    assert planned.startswith("4,625 photographs; 4,625 to be copied from 2 tar files of ")
    assert not list(tmp_path.iterdir())


def test_command_writes_the_lists_of_a_part(copy: Path, tmp_path: Path) -> None:
    result = run_hgld("fetch", "gldv2", "--ids", "washington", "--from", copy, "-o", tmp_path / "out")
    assert "4,625 photographs (4,619 not to be had); 6 to be copied from 3 tar files" in result.stderr
    assert result.stdout.startswith("4,625 photographs: 6 in the folder, 4,619 not_in_tar_files; 6 added (")
    names = ["train.csv", "train_label_to_category.csv", "train_label_to_hierarchical.csv"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [TABLE_NAME, "train", *names]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--images",), "--split is missing: name train, index or test, or photographs by --ids"),
        (("--split", "train", "--plan"), "--plan, --from and --urls need --ids"),
        (("--ids", "x", "--metadata"), "--ids fetches single photographs; leave it out for --metadata, --images"),
        (
            ("--ids", "washington"),
            "asks every client to name its operator: give an e-mail address or a wiki user page",
        ),
        (("--ids", "washingtn"), "washingtn: no such file; expected ids such as 1272ef793ebba7a2"),
        (("--ids", "washington", "--from", "absent", "--plan"), "absent: no such file"),
        (("--ids", "washington", "--from", "shards"), "name those to search in --shards, or 0:499 for all"),
        (
            ("--ids", "washington", "--contact", "a@example.org", "--width", "512", "--plan"),
            "--width is 512, but Wiki",
        ),
    ],
)
def test_wrong_commands_end_in_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HGLD_CONTACT", raising=False)
    result = run_hgld("fetch", "gldv2", *arguments, "-o", tmp_path / "out", code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
