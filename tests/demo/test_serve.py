"""``hgld demo --serve``: a server that other terminals can use."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from hgld.cli.demo import format_served


def test_variables_are_those_of_the_scrape() -> None:
    commons, wikidata, _ = format_served("http://127.0.0.1:8000").splitlines()
    assert commons == "export HGLD_COMMONS_URL=http://127.0.0.1:8000/commons"
    assert wikidata == "export HGLD_WIKIDATA_URL=http://127.0.0.1:8000/wikidata"


@pytest.mark.slow
def test_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hgld", "demo", "--serve"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip().partition("HGLD_COMMONS_URL=")[2]
            assert requests.get(f"{url}/wiki/Category:Matterhorn", timeout=10).status_code == 200
        finally:
            server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=10)
    assert (server.returncode, errors) == (0, "")
    assert not any(tmp_path.iterdir())
