"""A command that serves the review page, as tests start, use and stop it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener


class Server:
    """A command that serves the page, in a process of its own."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, "-c", "from hgld.cli import app; app()", *arguments]
        self.process = subprocess.Popen([*command, "--no-open"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self._output = self.process.stdout
        self.address = self._output.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self._output.read()

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        self.process.wait(15)
        self._output.close()

    def post(self, path: str, **fields: str) -> None:
        """Send a form from another browser."""
        home = self.address.partition("?token=")[0]
        opener = build_opener(HTTPCookieProcessor())
        opener.open(self.address)
        opener.open(home + path, urlencode(fields).encode()).read()
