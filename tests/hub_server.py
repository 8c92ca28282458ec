"""A local server that speaks the protocol of the Hugging Face hub, as far as models and datasets need it.

Repositories hold commits; a file is uploaded in the commit itself or, as the hub asks for it, by Git LFS before.
Those of datasets have names such as ``datasets/ada/birds``. Tokens are ``write`` and ``read``, and every owner but
``somebody`` belongs to them.
"""

import base64
import hashlib
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

#: Suffix of files that the server takes by Git LFS.
_LFS = (".safetensors", ".parquet")


@dataclass
class Repository:
    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    main: str = ""
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes]) -> str:
        digest = hashlib.sha1(f"{len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[digest] = files
        self.main = digest
        return digest

    def files(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commit = self.main if revision == "main" else self.tags.get(revision, revision)
        return (commit, self.commits[commit]) if commit in self.commits else None


@dataclass
class Hub:
    """State of the server.

    Args:
        url: Address of the server.
        repositories: Repositories by name.
        blobs: Files that were uploaded by Git LFS, by SHA-256.
        requests: Method and path of every request.
        cut_uploads: Number of uploads that are cut off, counted down.
    """

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    cut_uploads: int = 0

    def add(self, name: str, files: dict[str, bytes], *, private: bool = False) -> str:
        """Add a commit to a repository, which is created if there is none; returns the commit."""
        return self.repositories.setdefault(name, Repository(private)).commit(files)

    def head(self, name: str) -> dict[str, bytes]:
        """Return the files of the last commit."""
        repository = self.repositories[name]
        return repository.commits[repository.main]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """Run the server, and let the hub's client talk to it with the token ``write``."""
    import huggingface_hub.constants as constants

    with hub_server() as server:
        monkeypatch.setenv("HF_TOKEN", "write")
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub_cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the server has Git LFS only
        monkeypatch.setattr("time.sleep", lambda _: None)  # between retries
        yield server


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Run the server on a free port of this machine."""
    hub = Hub()

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_PUT(self) -> None:
        digest = self.path.rpartition("/")[2]
        self.state.requests.append(f"PUT {self.path}")
        n_bytes = int(self.headers["Content-Length"])
        if self.state.cut_uploads:
            self.state.cut_uploads -= 1
            self.rfile.read(n_bytes // 2)
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        data = self.rfile.read(n_bytes)
        assert hashlib.sha256(data).hexdigest() == digest
        self.state.blobs[digest] = data
        self._reply(200, b"")

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.state.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = path.strip("/").split("/")
        if path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\n")
            self._json({"errors": [], "warnings": []})
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif parts[0] == "api" and parts[1] in ("models", "datasets"):
            name = "/".join(parts[2:4]) if parts[1] == "models" else "/".join(parts[1:4])
            self._api(name, parts[4] if parts[4:] else "", parts[5] if parts[5:] else "main", body)
        elif path.endswith(".git/info/lfs/objects/batch"):
            self._lfs_batch(json.loads(body))
        elif "resolve" in parts[2:4]:
            position = parts.index("resolve", 2)
            self._resolve("/".join(parts[:position]), parts[position + 1], "/".join(parts[position + 2 :]))
        else:
            self._json({"error": "no such address"}, 404)

    do_HEAD = do_POST = do_GET  # noqa: N815

    @property
    def _token(self) -> str:
        return str(self.headers.get("Authorization", "")).removeprefix("Bearer ")

    def _create(self, request: dict[str, Any]) -> None:
        name = f"{request['organization']}/{request['name']}"
        if request.get("type") == "dataset":
            name = f"datasets/{name}"
        if self._token != "write":
            self._json({"error": "Invalid username or password."}, 401)
        elif request["organization"] == "somebody":
            self._json({"error": "You don't have the rights to create a model under this namespace"}, 403)
        elif name in self.state.repositories:
            self._json({"error": "You already created this model repo", "url": f"{self.state.url}/{name}"}, 409)
        else:
            private = request.get("visibility") == "private" or bool(request.get("private"))
            self.state.add(name, {".gitattributes": b""}, private=private)
            self._json({"url": f"{self.state.url}/{name}"})

    def _readable(self, name: str) -> Repository | None:
        repository = self.state.repositories.get(name)
        if repository is None or (repository.private and self._token not in ("read", "write")):
            self._json(
                {"error": "Repository not found"}, 404 if self._token else 401, {"X-Error-Code": "RepoNotFound"}
            )
            return None
        return repository

    def _api(self, name: str, what: str, revision: str, body: bytes) -> None:
        repository = self._readable(name)
        if repository is None:
            return
        found = repository.files(revision)
        if found is None:
            self._json({"error": "Revision not found"}, 404, {"X-Error-Code": "RevisionNotFound"})
            return
        commit, files = found
        if what in ("", "revision"):
            siblings = [{"rfilename": path} for path in files]
            self._json({"id": name, "sha": commit, "private": repository.private, "tags": [], "siblings": siblings})
        elif what == "tree":
            self._json([self._entry(path, data) for path, data in files.items()])
        elif what == "refs":
            tags = [
                {"name": tag, "ref": f"refs/tags/{tag}", "targetCommit": at} for tag, at in repository.tags.items()
            ]
            self._json({"branches": [], "converts": [], "tags": tags})
        elif self._token != "write":
            self._json({"error": "Forbidden"}, 403)
        elif what == "tag":
            repository.tags[json.loads(body)["tag"]] = commit
            self._json({})
        elif what == "preupload":
            paths = [file["path"] for file in json.loads(body)["files"]]
            modes = {path: "lfs" if path.endswith(_LFS) else "regular" for path in paths}
            self._json({"files": [{"path": p, "uploadMode": modes[p], "shouldIgnore": False} for p in paths]})
        elif what == "commit":
            self._commit(name, repository, body)

    def _entry(self, path: str, data: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": _git_digest(data)}
        if path.endswith(_LFS):
            digest = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"oid": digest, "size": len(data), "pointerSize": 100}
        return entry

    def _lfs_batch(self, request: dict[str, Any]) -> None:
        objects = []
        for item in request["objects"]:
            upload = {"actions": {"upload": {"href": f"{self.state.url}/lfs/{item['oid']}"}}}
            described = {"oid": item["oid"], "size": item["size"]}
            objects.append(described if item["oid"] in self.state.blobs else described | upload)
        self._json({"transfer": "basic", "objects": objects})

    def _commit(self, name: str, repository: Repository, body: bytes) -> None:
        files = dict(repository.commits[repository.main])
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.state.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        commit = repository.commit(files)
        url = f"{self.state.url}/{name}/commit/{commit}"
        self._json({"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository = self._readable(name)
        if repository is None:
            return
        found = repository.files(revision)
        if found is None or path not in found[1]:
            code = "RevisionNotFound" if found is None else "EntryNotFound"
            self._json({"error": "not found"}, 404, {"X-Error-Code": code})
            return
        data = found[1][path]
        self._reply(200, data, {"X-Repo-Commit": found[0], "ETag": f'"{hashlib.sha256(data).hexdigest()}"'})

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        message = {"X-Error-Message": value["error"]} if isinstance(value, dict) and "error" in value else {}
        kind = {"Content-Type": "application/json"}
        self._reply(status, json.dumps(value).encode(), {**kind, **message, **(headers or {})})

    def _reply(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _git_digest(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
