"""A dump says the same however it is divided, compressed and ordered, and whoever reads its parts."""

import bz2
import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hgld.compute.executors import Part
from hgld.wikimedia.dump_extract import ExtractConfig, extract_dump, items_path
from hgld.wikimedia.dump_part import RangeLines, divide, find_dump_files
from tests.wikimedia import wikidata_mix
from tests.wikimedia.dumps import as_line, load_world, world_lines, write_dump, write_parts

SUFFIXES = (".json", ".json.gz", ".json.bz2")


def lines_by_range(path: Path, n_bytes: int) -> list[bytes]:
    """Return the lines that ranges of a dump have, in order."""
    ranges = divide(find_dump_files(path), n_bytes)
    return [line for part in ranges for block in RangeLines(part) for line in block if line]


@given(
    suffix=st.sampled_from(SUFFIXES),
    lines=st.lists(st.binary(max_size=40).map(lambda data: b"{" + data.replace(b"\n", b"\xff") + b"}"), max_size=30),
    lines_per_member=st.integers(1, 8),
    n_bytes=st.integers(1, 400),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranges_have_each_line_once(
    tmp_path: Path, suffix: str, lines: list[bytes], lines_per_member: int, n_bytes: int
) -> None:
    path = write_dump(tmp_path / f"dump{suffix}", lines, lines_per_member)
    expected = [b"[", *(line + b"," for line in lines[:-1]), *lines[-1:], b"]"]
    assert lines_by_range(path, n_bytes) == expected


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_members_that_are_hard_to_compress(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    """A block of bzip2 is 900 kB of text, so that its beginning alone says nothing."""
    rng = random.Random(0)
    members = [b"".join(b'{"%x"},\n' % rng.getrandbits(2400) for _ in range(1500)) for _ in range(2)]
    path = tmp_path / f"dump.json{suffix}"
    path.write_bytes(b"".join(map(compress, members)))
    expected = [line for member in members for line in member.split(b"\n") if line]
    assert lines_by_range(path, 300_000) == expected


@pytest.fixture(scope="module")
def lines(shared: Path, replica: Callable[..., Any]) -> list[bytes]:
    return world_lines(load_world(shared, "edge_cases.json"), dress=False, n_others=8)


@pytest.fixture(scope="module")
def expected(lines: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("expected")
    return extracted(write_dump(folder / "dump.json", lines), folder / "items")


def extracted(dump: Path, folder: Path, **settings: Any) -> pa.Table:
    assert extract_dump(dump, folder, ExtractConfig(**{"workers": 1} | settings)).complete
    return pq.read_table(items_path(folder))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_extract_does_not_depend_on_order_and_division(
    lines: list[bytes], expected: pa.Table, tmp_path: Path, suffix: str
) -> None:
    order = random.Random(suffix).sample(lines, len(lines))
    path = write_dump(tmp_path / f"dump{suffix}", order, lines_per_member=10)
    n_bytes = path.stat().st_size // 7
    assert extracted(path, tmp_path / "items", bytes_per_part=n_bytes).equals(expected)


def test_extract_of_a_folder_of_parts(lines: list[bytes], expected: pa.Table, tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "dump", lines, SUFFIXES)
    (folder / "md5sums.txt").write_text("not a part")
    assert extracted(folder, tmp_path / "items").equals(expected)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_extract_by_workers_and_parts(lines: list[bytes], expected: pa.Table, tmp_path: Path, suffix: str) -> None:
    """Parts in any order, some of them twice, some by several workers; the last call makes what is missing."""
    more = [*lines, *map(as_line, wikidata_mix.entities(200, start=1_000_000))]
    path = write_dump(tmp_path / f"dump{suffix}", more, lines_per_member=7)
    config: dict[str, Any] = {"bytes_per_part": path.stat().st_size // 23}
    whole, folder = extracted(path, tmp_path / "whole", **config), tmp_path / "items"
    for number in (4, 1, 4):
        part = Part(number, 4)
        assert not extract_dump(path, folder, ExtractConfig(workers=2, **config), part=part).complete
    assert extracted(path, folder, workers=2, **config).equals(whole)
    assert extract_dump(path, folder, part=Part(1, 2)).complete


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_later_revision_of_an_item_counts(tmp_path: Path, suffix: str) -> None:
    """Dumps take days, and may have an item twice."""
    entity = wikidata_mix.item(23)
    later = {**entity, "lastrevid": entity["lastrevid"] + 1, "labels": {"en": {"language": "en", "value": "new"}}}
    for order in ([entity, later], [later, entity]):
        path = write_dump(tmp_path / f"dump{suffix}", map(as_line, order), lines_per_member=1)
        table = extracted(path, tmp_path / f"items-{order[0]['lastrevid']}", bytes_per_part=1000)
        assert table["label"].to_pylist() == ["new"]
