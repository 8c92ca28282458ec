"""Fixtures of the tests of GLDv2's files."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from tests.gldv2.file_server import FileServer


@pytest.fixture
def serve() -> Iterator[Callable[..., FileServer]]:
    with ExitStack() as servers:
        yield lambda *roots: servers.enter_context(closing(FileServer(list(roots))))
