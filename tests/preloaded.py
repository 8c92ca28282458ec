"""The command ``hgld`` from a process that has imported it once: each call runs in a fork of that process.

Importing torch and timm takes longer than most commands need for small data, and pipelines and examples start a
process for each command. Arguments, environment, working folder, streams and exit code are those of the real command.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    request = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    sys.exit(connection.recv(1)[0])
"""


@contextmanager
def preloaded_hgld(folder: Path) -> Iterator[Path]:
    """Serve ``hgld``; the context is a folder to put first on ``PATH``."""
    address = folder / "hgld.socket"
    client = folder / "bin" / "hgld"
    client.parent.mkdir()
    client.write_text(_CLIENT.format(python=sys.executable, address=str(address)), encoding="utf-8")
    client.chmod(0o755)
    command = [sys.executable, "-m", "tests.preloaded", str(address)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield client.parent
    finally:
        server.terminate()
        server.communicate()


def _serve(address: str) -> None:
    import torchvision  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                connection.sendall(bytes([_run_command(connection)]))
                os._exit(0)
            connection.close()


def _run_command(connection: socket.socket) -> int:
    """Run the requested command in this process, and return its exit code."""
    from hgld.cli import app

    message, descriptors, _, _ = socket.recv_fds(connection, 2**16, 3)
    request = json.loads(message)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.argv = ["hgld", *request["arguments"]]
    try:
        app()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
