"""Progress on a terminal and in the log."""

import fcntl
import logging
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from hgld.progress import TerminalProgress


def test_log_lines_without_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), TerminalProgress("scrape", "landmarks", interval_s=0) as progress:
        progress.start(200, done=100)
        progress.advance(50, requests=1200, retries=3)
        progress.advance(50, requests=1300, retries=3)
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("scrape: 150 of 200 landmarks, ")
    assert "1,200 requests, 3 retries" in first
    assert last.startswith("scrape: 200 of 200 landmarks, ")
    assert last.endswith("0 min left")


def test_log_lines_are_throttled(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), TerminalProgress("scrape", "landmarks", interval_s=60) as progress:
        progress.start(1000)
        for _ in range(1000):
            progress.advance()
    assert caplog.records == []


def test_bar_on_a_terminal() -> None:
    script = (
        "from hgld.progress import TerminalProgress\n"
        "with TerminalProgress('scrape', 'landmarks') as p:\n"
        "    p.start(4, done=1)\n"
        "    p.advance(3, requests=7, retries=2)\n"
    )
    terminal, stderr = pty.openpty()
    fcntl.ioctl(stderr, termios.TIOCSWINSZ, struct.pack("4H", 24, 120, 0, 0))
    with os.fdopen(terminal, "rb", buffering=0) as output:
        exit_code = subprocess.run([sys.executable, "-c", script], stderr=stderr, check=False).returncode
        os.set_blocking(terminal, False)
        text = ""
        while chunk := output.read(10_000):
            text += chunk.decode()
        os.close(stderr)
    assert exit_code == 0, text
    assert "scrape: 100%" in text
    assert "4/4" in text
    assert "requests=7, retries=2" in text


def test_details_are_counters_or_measures(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), TerminalProgress("train", "images", interval_s=0) as progress:
        progress.start(512)
        progress.advance(256, skipped=1200, loss=0.53217)
    (line,) = (record.getMessage() for record in caplog.records)
    assert "1,200 skipped, loss 0.532" in line


def test_slow_work_is_measured_per_minute(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.0, 90.0, 90.0, 90.0])
    monkeypatch.setattr("hgld.progress.time.monotonic", lambda: next(now))
    with caplog.at_level(logging.INFO), TerminalProgress("benchmark", "runs", interval_s=60) as progress:
        progress.start(30)
        progress.advance(3)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line == "benchmark: 3 of 30 runs, 2.0/min, 14 min left"
