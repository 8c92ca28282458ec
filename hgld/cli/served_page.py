"""Announce a page that a command serves: print its addresses, and open the first in a browser."""

from __future__ import annotations

import os
import platform
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.shared_options import option

# Options of the commands that serve a page.
Host = Annotated[
    str, option("Network address of the page; the default is reachable from this machine only.")
]
Port = Annotated[
    int,
    option(
        "Port of the page; 0 for a free port, which is the same each time if possible.",
        min=0,
        max=65535,
    ),
]
OpenBrowser = Annotated[bool, option("Open the page in a browser.", "--open/--no-open")]

_REDIRECT = (
    '<!doctype html><meta charset="utf-8">'
    '<meta http-equiv="refresh" content="0; url={0}"><a href="{0}">{0}</a>\n'
)


@contextmanager
def announced_page(open_browser: bool, folder: Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that announces an address of the page, each of which admits one browser.

    Every user of the machine can read the command line of a browser. The browser therefore opens a file in ``folder``
    that only this user can read, and the file redirects to the address; Jupyter does the same (``use_redirect_file``
    of its ``ServerApp``). The file is deleted as soon as the address was used, and at the end. The folder is below
    the user's home, because browsers in a sandbox, such as Snap packages, cannot read the system's folder for
    temporary files.
    """
    with ExitStack() as used:
        n_announced = 0

        def announce(address: str) -> None:
            nonlocal n_announced
            n_announced += 1
            used.close()
            if n_announced > 1:
                with suppress(OSError):  # the reader of the output may have exited
                    typer.echo(f"opened; the address for another browser: {address}")
                return
            typer.echo(f"{address}\nthis address works once; stop with Ctrl-C")
            if open_browser:
                target = used.enter_context(_redirect_file(address, folder))
                # In a thread, as a browser in this terminal returns when it is closed.
                threading.Thread(target=webbrowser.open, args=[target], daemon=True).start()

        yield announce


@contextmanager
def _redirect_file(address: str, folder: Path) -> Iterator[str]:
    """Yield the URL of a private file that redirects to an address.

    Under WSL the browser runs in Windows, where the file has another name: the address itself is yielded.
    """
    if "microsoft" in platform.release().lower():
        yield address
        return
    descriptor, name = tempfile.mkstemp(".html", ".open-", folder)  # with mode 0600
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(_REDIRECT.format(escape(address)))
        yield path.absolute().as_uri()
    finally:
        path.unlink(missing_ok=True)
