from collections.abc import Iterator
from pathlib import Path

import pytest

from hgld import load_hierarchy
from hgld.errors import SourceError
from hgld.hierarchy.files import OFFICIAL_COLUMNS
from tests.gldv2.file_server import Fault, FileServer

NAMES = [f"{split}_label_to_hierarchical.csv" for split in ("train", "index")]


def write(path: Path, *landmarks: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{number},http://c/{number},lake,lake,natural\r\n" for number in landmarks]
    path.write_text(",".join(OFFICIAL_COLUMNS) + "\r\n" + "".join(rows), newline="")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A host with three train landmarks and one of index; the cache is empty."""
    for name, landmarks in zip(NAMES, ([1, 2, 3], [1]), strict=True):
        write(tmp_path / "host" / "metadata" / name, *landmarks)
    server = FileServer([tmp_path / "host"])
    monkeypatch.setenv("HGLD_GLDV2_URL", server.url)
    monkeypatch.setenv("HGLD_CACHE", str(tmp_path / "cache"))
    yield server
    server.close()


def test_released_labels_are_downloaded_once(server: FileServer, tmp_path: Path) -> None:
    server.faults[f"metadata/{NAMES[0]}"] = [Fault(reset_after=40)]
    tree = load_hierarchy("h-gldv2")
    assert repr(tree).splitlines()[0] == "Hierarchy of 4 landmarks (index 1, train 3) in 3 levels"
    n_requests = len(server.requests)
    assert load_hierarchy("h-gldv2") == tree == load_hierarchy(tmp_path / "cache" / "h-gldv2")
    assert len(server.requests) == n_requests
    cached = tmp_path / "cache" / "h-gldv2" / NAMES[0]
    assert cached.read_bytes() == (tmp_path / "host" / "metadata" / NAMES[0]).read_bytes()


def test_offline_error_explains_alternatives(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HGLD_GLDV2_URL", "http://127.0.0.1:1")
    with pytest.raises(SourceError, match=r"(?s)could not be downloaded: .*\nwithout a network, obtain train_label"):
        load_hierarchy("h-gldv2")
