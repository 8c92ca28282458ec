"""Fixtures of the tests of GLDv2's files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gldv2.file_server import FileServer


@pytest.fixture
def serve() -> Iterator[Callable[..., FileServer]]:
    servers: list[FileServer] = []

    def start(*roots: Path) -> FileServer:
        servers.append(FileServer(list(roots)))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
