"""The page while the disk of its store is full, in a browser and without one."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest
from selenium.webdriver import Chrome

from tests.review.conftest import Label
from tests.review.page.page_server import Server
from tests.review.page.tab import open_tab, wait_for
from tests.test_storage import mounted

LABELS = tuple(Label(f"Q{number}", f"label {number}", 1, 1) for number in range(1, 5))


class Disk:
    """A small file system that only the server sees, at ``/proc/PID/root``."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._filler = Path(f"/proc/{server.process.pid}/root{folder}/filler")

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as filler, suppress(OSError):
            while filler.write(bytes(4096)):
                pass

    def clear(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk_folder(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@pytest.fixture
def server(tables: Callable[..., Path], disk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("TMPDIR", str(disk_folder))  # temporary files do not fit either
    arguments = ["review", str(tables(LABELS)), "--annotator", "ada", "--store", str(disk_folder / "ada.sqlite")]
    started = Server(arguments, mounted(disk_folder, "size=256k"))
    yield started
    started.stop()
    assert started.process.returncode == 0


@pytest.fixture
def disk(server: Server, disk_folder: Path) -> Disk:
    return Disk(server, disk_folder)


@pytest.mark.slow
def test_decision_waits_on_the_page_until_there_is_space_again(browser: Chrome, server: Server, disk: Disk) -> None:
    with open_tab(browser, server.address, ["503"]) as tab:
        tab.press("d")
        tab.wait_for_decisions(Q1="✕ drop")
        disk.fill()
        tab.press("u")
        wait_for(lambda: "the disk is full" in "".join(tab.texts("#unsaved small")), True)
        assert "nothing was changed" in tab.texts("#unsaved small")[0]
        assert tab.texts("#unsaved p") == ["1 change is not saved."]
        with pytest.raises(HTTPError) as raised:  # without script
            server.post("decide", choose="drop", focus="0:Q3", comment="x" * 500)
        assert raised.value.code == 503
        problem = raised.value.read().decode()
        assert "the disk is full); nothing was changed. Free some space, then try again" in problem
        assert server.get("").count('data-decision="drop"') == 1, "the page shows what is saved"
        assert len(server.get("decisions.csv").splitlines()) == 2, "which can be downloaded"
        tab.wait_for_decisions(Q1="✕ drop")
        disk.clear()
        tab.click("#unsaved [data-all]")
        tab.wait_for_decisions(Q1="✕ drop", Q2="? unsure")
        wait_for(lambda: tab.find("#unsaved").is_displayed(), False)
    server.post("decide", choose="drop", focus="0:Q3", comment="x" * 500)
    assert [row.split(",")[2] for row in server.get("decisions.csv").splitlines()[1:]] == ["drop", "unsure", "drop"]
