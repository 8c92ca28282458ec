"""Names of the dataset's files, shard numbers and MD5 files."""

from pathlib import Path

import pytest

from hgld.errors import ConfigurationError, SourceError
from hgld.gldv2.download import metadata_files, parse_shards, read_md5, shard_files


@pytest.mark.parametrize(("split", "count", "last"), [("train", 500, 499), ("index", 100, 99), ("test", 20, 19)])
def test_shard_files_of_each_split(split: str, count: int, last: int) -> None:
    files = shard_files(split)
    assert len(files) == count
    assert files[-1].path == f"{split}/images_{last:03}.tar"
    assert files[-1].remote_paths == (files[-1].path,)
    assert files[-1].md5_path == f"md5sum/{split}/md5.images_{last:03}.txt"
    with pytest.raises(ConfigurationError, match=f"{split} has no shard {count}; its shards are 0 to {last}"):
        shard_files(split, [0, count])


def test_local_and_remote_paths_of_csv_files() -> None:
    assert metadata_files("train")[0].remote_paths == ("metadata/train.csv", "train.csv")
    places = {file.path: file.remote_paths[0] for file in metadata_files("test")}
    assert places == {
        "test.csv": "metadata/test.csv",
        "recognition_solution_v2.1.csv": "ground_truth/recognition_solution_v2.1.csv",
        "retrieval_solution_v2.1.csv": "ground_truth/retrieval_solution_v2.1.csv",
    }


def test_parse_shard_numbers_and_ranges() -> None:
    assert list(parse_shards("0:4")) == [0, 1, 2, 3, 4]
    assert list(parse_shards("3, 0")) == [3, 0]
    assert [file.path[-7:-4] for file in shard_files("train", [3, 0, 3])] == ["000", "003"]


@pytest.mark.parametrize("text", ["", "4:0", "a", "-1", "1:", "0,,2", "1:2:3", "١"])
def test_parse_invalid_shards(text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected numbers and first:last"):
        parse_shards(text)


def test_read_md5(tmp_path: Path, shared: Path) -> None:
    real = shared / "wa_gldv2" / "md5sum" / "train" / "md5.images_000.txt"
    assert read_md5(real) == "b4ce6f81e867ca51c98d0e9da991161e"
    path = tmp_path / "md5.txt"
    path.write_text("B4CE6F81E867CA51C98D0E9DA991161E")
    assert read_md5(path) == "b4ce6f81e867ca51c98d0e9da991161e"
    path.write_text("<html>Not here</html>")
    with pytest.raises(SourceError, match="expected an MD5 of 32 hex digits, but the server sent '<html>"):
        read_md5(path)
