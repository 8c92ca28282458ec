"""Real photographs, and the files of Commons that tests make of them."""

import tarfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from hgld.gldv2.photograph_list import PhotographList
from hgld.gldv2.photographs import TABLE_NAME
from hgld.gldv2.settings import PhotographsConfig
from hgld.tables import PHOTOGRAPHS, read_table
from hgld.wikimedia.settings import ClientConfig
from tests.gldv2.commons_server import CommonsServer


def real_photographs(shared: Path, n: int) -> dict[str, bytes]:
    """Return the first photographs of Washington by id."""
    photographs: dict[str, bytes] = {}
    with tarfile.open(shared / "wa_gldv2/train/images_000.tar", "r:") as archive:
        for member in archive:
            if member.isfile() and len(photographs) < n:
                photographs[Path(member.name).stem] = archive.extractfile(member).read()  # type: ignore[union-attr]
    return photographs


def address(title: str) -> str:
    """Return the address at Commons of the file with a title."""
    return (
        f"https://upload.wikimedia.org/wikipedia/commons/0/0a/{quote(title.removeprefix('File:').replace(' ', '_'))}"
    )


def listed(titles: Mapping[str, str]) -> PhotographList:
    """Return a list of photographs with the addresses of their titles."""
    return PhotographList(list(titles), {image_id: {"url": address(title)} for image_id, title in titles.items()})


def commons_config(server: CommonsServer, width: int = 120, **client: object) -> PhotographsConfig:
    """Return the configuration for a local server, without rate limit and with short waits."""
    settings: dict[str, object] = {"rate_per_minute": 0, "backoff_s": 0.01, "max_retries": 3, "timeout_s": 5.0}
    settings |= {"commons_url": server.url, "wikidata_url": server.url, "contact": "tests@example.org"} | client
    return PhotographsConfig(width=width, client=ClientConfig(**settings))  # type: ignore[arg-type]


def rows_of(out: Path) -> dict[str, dict[str, object]]:
    """Return the rows of the table in a folder, by id."""
    table: pa.Table = read_table(out / TABLE_NAME, PHOTOGRAPHS)
    return {row.pop("id"): row for row in table.to_pylist()}


def contents_of(out: Path) -> dict[str, bytes]:
    """Return the content of all photographs in the tar files of a folder, by name."""
    contents = {}
    for path in sorted(out.rglob("*.tar")):
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                assert member.name not in contents
                contents[member.name] = archive.extractfile(member).read()  # type: ignore[union-attr]
    return contents
