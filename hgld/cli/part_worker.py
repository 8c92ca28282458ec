"""A part of a command as a child process of an executor, with which it ends; not a command of its own."""

from __future__ import annotations

import signal

from hgld.cli import app
from hgld.compute.machine import stop_with_parent

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    stop_with_parent()
    app()
