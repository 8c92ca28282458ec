"""Child processes of tests, whose output is shown when they fail."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_child(
    command: Sequence[str | Path],
    *,
    exit_code: int = 0,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run a command and check its exit code; a failure shows what it printed.

    Args:
        command: Program and arguments.
        exit_code: Expected exit code.
        cwd: Working folder; by default that of the tests.
        environment: Environment variables; by default those of the tests.
        timeout_s: Seconds after which the child is killed.
    """
    child = subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=timeout_s, check=False
    )
    assert child.returncode == exit_code, (
        f"exit code {child.returncode} of {' '.join(map(str, command))}\n{child.stdout}\n{child.stderr}"
    )
    return child


def run_script(script: str, *arguments: str | Path, cwd: Path | None = None) -> str:
    """Run Python code in a child process and return what it printed to stdout."""
    return run_child([sys.executable, "-c", script, *arguments], cwd=cwd).stdout


def run_hgld_without_torch(*words: object) -> str:
    """Run a command in a child process, which fails if it imports torch; return what it printed to stdout."""
    return run_script(
        f"import sys\nfrom hgld.cli import app\ntry: app({list(map(str, words))})\nexcept SystemExit: pass\n"
        "sys.exit('torch is imported' if 'torch' in sys.modules else 0)\n"
    )


def single_thread_environment() -> dict[str, str]:
    """Return environment variables with which a child imports what the tests do, and computes in one thread."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def run_in_two_processes(*arguments: str) -> list[str]:
    """Run Python with these arguments in two processes, as torchrun starts them; return what each printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = single_thread_environment() | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
    }
    running = [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={**environment, "RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    printed = []
    try:
        for process in running:
            output, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
            printed.append(output)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return printed
