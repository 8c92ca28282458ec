"""The addresses that a command prints and opens, in a real browser."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.support.wait import WebDriverWait

from hgld.cli.served_page import announced_page
from tests.review.page.screens import no_script


@dataclass
class OpenedServer:
    """A command that opened a browser: a program that keeps its arguments in a file."""

    process: subprocess.Popen[str]
    output: IO[str]
    arguments: Path

    def opened(self) -> str:
        """Return what the browser was told to open."""
        end = time.monotonic() + 15
        while not (self.arguments.exists() and (text := self.arguments.read_text()).endswith("\n")):
            assert time.monotonic() < end, "no browser was opened"
            time.sleep(0.02)
        return text.strip()


@pytest.fixture
def opened_server(tables: Callable[..., Path], tmp_path: Path) -> Iterator[OpenedServer]:
    program, arguments = tmp_path / "browser", tmp_path / "arguments"
    program.write_text(f'#!/bin/sh\necho "$@" > {arguments}\n')
    program.chmod(0o755)
    command = [sys.executable, "-m", "hgld", "review", str(tables()), "--annotator", "ada"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"BROWSER": str(program)})
    assert process.stdout is not None
    yield OpenedServer(process, process.stdout, arguments)
    process.send_signal(signal.SIGINT)
    process.wait(15)
    process.stdout.close()
    assert list((tmp_path / "review").glob(".open*")) == [], "nothing is left"


@pytest.mark.slow
@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_private_file_leads_the_browser_to_the_page_and_is_deleted(
    opened_server: OpenedServer, browser: Chrome, script: bool
) -> None:
    wait = WebDriverWait(browser, 8, 0.02)
    first = opened_server.output.readline().strip()
    key = first.partition("?key=")[2]
    url = opened_server.opened()
    assert key
    assert key not in url, "which other users of the machine can read"
    path = Path(url.removeprefix("file://"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key in path.read_text()
    with nullcontext() if script else no_script(browser):
        browser.get(url)
        if not script:
            wait.until(lambda _: "/open?key=" in browser.current_url)
            browser.find_element("css selector", "form button").click()
        wait.until(lambda _: browser.find_elements("css selector", ".row"))
        assert "key" not in browser.current_url
        assert not path.exists()
        opened_server.output.readline()
        second = opened_server.output.readline().split()[-1]
        assert first != second
        browser.get(first)
        assert browser.find_elements("css selector", ".row"), "an old address leads this browser to the page"
        browser.delete_all_cookies()
        browser.get(first)
        assert browser.title == "Refused · hgld"
        assert browser.find_elements("css selector", "form") == []
        if script:
            browser.get(second)
            wait.until(lambda _: browser.find_elements("css selector", ".row"))
    browser.get_log("browser")  # type: ignore[no-untyped-call]


def test_browser_in_windows_gets_the_address_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From within WSL, Windows does not find the file."""
    opened: list[str] = []
    monkeypatch.setattr("platform.release", lambda: "5.15.90.1-microsoft-standard-WSL2")
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("threading.Thread.start", lambda thread: thread.run())
    with announced_page(True, tmp_path) as announce:
        announce("http://127.0.0.1:1/open?key=a")
    assert opened == ["http://127.0.0.1:1/open?key=a"]
    assert list(tmp_path.iterdir()) == []


def test_page_opens_although_nobody_reads_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_pipe(_: str) -> None:
        raise BrokenPipeError

    with announced_page(False, tmp_path) as announce:
        announce("http://127.0.0.1:1/open?key=a")
        monkeypatch.setattr("typer.echo", broken_pipe)
        announce("http://127.0.0.1:1/open?key=b")
