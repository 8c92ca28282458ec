import time
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from hgld.errors import ConfigurationError, InputError
from hgld.tables.embeddings import Embeddings, part_files, read_embeddings, read_vectors, write_embeddings
from tests.child_processes import run_script

SUFFIXES = (".npy", ".safetensors", ".parquet")
VECTORS = torch.arange(12, dtype=torch.float32).reshape(3, 4)
IDS = ["a", "b", "c"]

#: What is a line of a file, and survives numpy's arrays of texts.
_ids = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0\ufeff"), min_size=1, max_size=8)


def read(path: Path) -> Embeddings:
    """Read what must be a valid file."""
    embeddings = read_embeddings(path)
    assert embeddings.path == path
    return embeddings


# Round trips


@given(
    data=st.data(),
    suffix=st.sampled_from(SUFFIXES),
    dtype=st.sampled_from([torch.float16, torch.float32, torch.float64]),
    ids=st.lists(_ids, min_size=1, max_size=20, unique=True),
    dim=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_round_trip(
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    dtype: torch.dtype,
    ids: list[str],
    dim: int,
    seed: int,
) -> None:
    path = tmp_path_factory.mktemp("embeddings") / f"q.v1{suffix}"
    vectors = torch.randn(len(ids), dim, generator=torch.Generator().manual_seed(seed)).to(dtype)
    numbers = None
    if suffix != ".npy" and data.draw(st.booleans()):
        numbers = np.array(
            data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=len(ids), max_size=len(ids)))
        )
    write_embeddings(path, vectors, ids, numbers)
    embeddings = read(path)
    assert embeddings.vectors.dtype == dtype
    assert torch.equal(embeddings.vectors, vectors)
    assert embeddings.ids is not None
    assert embeddings.ids.tolist() == ids
    assert (len(embeddings), embeddings.dim) == (len(ids), dim)
    if numbers is None:
        assert embeddings.landmark_ids is None
    else:
        assert embeddings.landmark_ids is not None
        assert embeddings.landmark_ids.tolist() == numbers.tolist()


def test_formats_refuse_what_they_cannot_hold(tmp_path: Path) -> None:
    vectors = VECTORS.bfloat16()
    write_embeddings(tmp_path / "q.safetensors", vectors, IDS)
    assert torch.equal(read(tmp_path / "q.safetensors").vectors, vectors)
    for suffix in (".npy", ".parquet"):
        with pytest.raises(ConfigurationError, match=r"no bfloat16; choose \.safetensors"):
            write_embeddings(tmp_path / f"q{suffix}", vectors, IDS)
    with pytest.raises(ConfigurationError, match="no place for landmark ids"):
        write_embeddings(tmp_path / "q.npy", VECTORS, IDS, np.arange(3))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_views_and_parameters_can_be_written(tmp_path: Path, suffix: str) -> None:
    whole = torch.nn.Parameter(torch.randn(8, 9))
    write_embeddings(tmp_path / f"q{suffix}", whole[1:4, ::2], np.array(IDS))
    assert torch.equal(read(tmp_path / f"q{suffix}").vectors, whole.detach()[1:4, ::2])


def test_parquet_batches_are_joined(tmp_path: Path) -> None:
    vectors = torch.randn(10_000, 3)
    write_embeddings(tmp_path / "q.parquet", vectors, [f"{n}" for n in range(10_000)])
    assert torch.equal(read(tmp_path / "q.parquet").vectors, vectors)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_failed_write_keeps_the_old_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"q{suffix}"
    write_embeddings(path, VECTORS, IDS)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    wrong = [
        ([*IDS[:2], "b"], VECTORS, "1 ids are repeated: b"),
        ([*IDS[:2], ""], VECTORS, r"id is missing in 1 of 3 rows: rows 2"),
        (IDS[:2], VECTORS, "2 values of id for 3 embeddings"),
        (IDS, VECTORS.long(), "int64 of shape"),
        (IDS, VECTORS[:, :0], r"float32 of shape \(3, 0\)"),
    ]
    if suffix != ".parquet":
        wrong.append((["a\nd", "b\r", "c"], VECTORS, r"2 ids cannot be lines of a file: 'a\\nd', 'b\\r'"))
        wrong.append((["\ufeffa", "b", "c"], VECTORS, r"1 ids cannot be lines of a file: '\\ufeffa'"))
    for ids, vectors, message in wrong:
        with pytest.raises(InputError, match=message):
            write_embeddings(path, vectors, ids)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


# Parts


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_of_parts_is_read_as_one_file(tmp_path: Path, suffix: str) -> None:
    for number, name in enumerate(["02", "10", "01.again"]):
        write_embeddings(tmp_path / f"{name}{suffix}", VECTORS + number, [f"{name} {image}" for image in IDS])
    (tmp_path / "notes.md").write_text("Not a part.")
    np.save(tmp_path / "02.deviations.npy", VECTORS.numpy())
    embeddings = read(tmp_path)
    assert torch.equal(embeddings.vectors, torch.cat([VECTORS + 2, VECTORS, VECTORS + 1]))
    assert torch.equal(embeddings.vectors, read_vectors(tmp_path))
    assert embeddings.ids is not None
    assert embeddings.ids.tolist() == [f"{name} {image}" for name in ("01.again", "02", "10") for image in IDS]


def test_parts_that_are_not_alike_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no embeddings in this folder; expected parts, such as 01\.npy"):
        read_embeddings(tmp_path)
    write_embeddings(tmp_path / "1.npy", VECTORS, IDS)
    np.save(tmp_path / "2.npy", VECTORS.numpy())
    with pytest.raises(InputError, match=r"2\.npy: 4 dimensions and no id, but 1\.npy has 4 dimensions and id"):
        read_embeddings(tmp_path)
    write_embeddings(tmp_path / "2.npy", VECTORS[:, :2], ["d", "e", "f"])
    with pytest.raises(InputError, match=r"2\.npy: 2 dimensions, but 1\.npy has 4 dimensions"):
        read_vectors(tmp_path)
    write_embeddings(tmp_path / "2.npy", VECTORS, ["d", "b", "f"])
    with pytest.raises(InputError, match="1 ids are repeated: b"):
        read_embeddings(tmp_path)


# Memory


@pytest.mark.parametrize("order", ["C", "F"])
def test_writing_to_a_mapped_array_leaves_the_file(tmp_path: Path, order: Literal["C", "F"]) -> None:
    path = tmp_path / "q.npy"
    np.save(path, np.asarray(VECTORS.half().numpy(), order=order))
    before = path.read_bytes()
    vectors = read(path).vectors
    assert torch.equal(vectors, VECTORS.half())
    vectors[0] = 7
    assert path.read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from Linux's /proc")
@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_reading_maps_the_file(tmp_path: Path, suffix: str) -> None:
    def resident_mb(kind: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(kind)).split()[1]) // 1024

    path = tmp_path / f"g{suffix}"
    write_embeddings(path, torch.zeros(100_000, 512, dtype=torch.float16), [str(n) for n in range(100_000)])
    owned, mapped = resident_mb("RssAnon"), resident_mb("RssFile")
    vectors = read(path).vectors
    # 98 MB are in the file; the ids take some, too.
    assert resident_mb("RssAnon") - owned + resident_mb("RssFile") - mapped < 50
    # Used, they are the file's pages, not a copy.
    assert vectors.sum() == 0
    assert resident_mb("RssAnon") - owned < 50
    assert resident_mb("RssFile") - mapped > 90


@pytest.mark.slow
def test_a_million_ids_are_read_in_seconds(tmp_path: Path) -> None:
    ids = [f"{(n * 2654435761) % 2**64:016x}" for n in range(1_000_000)]
    write_embeddings(tmp_path / "g.npy", torch.zeros(1_000_000, 2, dtype=torch.float16), ids)
    began = time.process_time()
    embeddings = read(tmp_path / "g.npy")
    assert time.process_time() - began < 8  # 1.2 s
    assert embeddings.ids is not None
    assert embeddings.ids[-1] == ids[-1]


# Ids


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Embeddings of three images without ids."""
    np.save(tmp_path / "q.npy", VECTORS.numpy())
    return tmp_path / "q.npy"


def test_ids_may_be_absent(bare: Path) -> None:
    embeddings = read(bare)
    assert embeddings.ids is None
    assert embeddings.landmark_ids is None


@pytest.mark.parametrize("text", ["a\nb\nc\n", "a\nb\nc", "a\r\nb\r\nc\r\n", "\ufeffa\nb\nc\n"])
def test_ids_may_have_any_line_endings(bare: Path, text: str) -> None:
    bare.with_suffix(".ids.txt").write_bytes(text.encode())
    assert read(bare).ids.tolist() == IDS  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\n", "2 values of id for 3 embeddings"),
        (b"", "0 values of id for 3 embeddings"),
        (b"a\n\nc\n", r"id is missing in 1 of 3 rows: rows 1 \(the first is row 0\)"),
        (b"a\nb\na\n", "1 ids are repeated: a"),
        (b"a\n\xff\nc\n", "not UTF-8 at byte 2"),
    ],
)
def test_invalid_ids_are_refused(bare: Path, content: bytes, message: str) -> None:
    bare.with_suffix(".ids.txt").write_bytes(content)
    with pytest.raises(InputError, match=rf"(?s)q\.ids\.txt: .*{message}"):
        read_embeddings(bare)


# Files that hold no embeddings


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_ids_are_composed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    write_embeddings(path, torch.ones(2, 3), ["cha\u0302teau/1.jpg", "lac/1.jpg"])
    ids = read_embeddings(path).ids
    assert ids is not None
    assert ids.tolist() == ["ch\u00e2teau/1.jpg", "lac/1.jpg"]


def test_unknown_formats_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "q.pt").touch()
    with pytest.raises(InputError, match=r'the suffix is "\.pt"; embeddings are in \.npy, \.safetensors, \.parquet'):
        read_embeddings(tmp_path / "q.pt")
    with pytest.raises(InputError, match=r'the suffix is "\.pt"'):
        write_embeddings(tmp_path / "q.pt", VECTORS, IDS)
    for suffix in (*SUFFIXES, ""):
        for read_file in (read_embeddings, read_vectors, part_files):
            with pytest.raises(InputError, match="no such file; expected the embeddings"):
                read_file(tmp_path / f"q{suffix}")


KILLED = """
import sys
from pathlib import Path
import torch
from hgld.errors import InputError
from hgld.tables.embeddings import read_embeddings, write_embeddings
from tests.kill_points import kill_points

path = Path(sys.argv[1])
old, new = (torch.zeros(2, 3), ["a", "b"]), (torch.ones(2, 3), ["c", "d"])

def content():
    try:
        embeddings = read_embeddings(path)
    except InputError as error:
        assert "no such file" in str(error)
        return None
    return float(embeddings.vectors[0, 0]), list(embeddings.ids)

seen = set()
for number in kill_points(lambda: write_embeddings(path, *new), path.parent, lambda: write_embeddings(path, *old)):
    assert content() in ((0.0, old[1]), (1.0, new[1]), None), number
    seen.add(content() is None)
print(number, seen)
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_killed_write_never_leaves_vectors_under_ids_of_others(tmp_path: Path, suffix: str) -> None:
    number, seen = run_script(KILLED, tmp_path / "home" / f"q{suffix}").strip().split(" ", 1)
    assert int(number) >= 4
    assert seen == "{False, True}"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kept", [0, 10, 0.5, -1])
def test_truncated_files_are_refused(tmp_path: Path, suffix: str, kept: float) -> None:
    path = tmp_path / f"q{suffix}"
    write_embeddings(path, torch.randn(100, 4), [str(n) for n in range(100)])
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if kept == 0.5 else int(kept)])
    message = "cannot be read as a table" if suffix == ".parquet" else rf"not a whole \{suffix} file"
    with pytest.raises(InputError, match=message):
        read_embeddings(path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3, np.float32), r"float32 of shape \(3,\)"),
        (np.zeros((3, 4, 1), np.float32), r"float32 of shape \(3, 4, 1\)"),
        (np.zeros((0, 4), np.float32), r"float32 of shape \(0, 4\)"),
        (np.zeros((3, 0), np.float32), r"float32 of shape \(3, 0\)"),
        (np.zeros((3, 4), np.int64), r"int64 of shape \(3, 4\)"),
        (np.zeros((3, 4), bool), "bool of shape"),
        (np.zeros((3, 4), ">f4"), ">f4 of shape"),
        (np.zeros((3, 4), np.complex64), "complex64 of shape"),
        (np.array([["a"]]), "<U1 of shape"),
        (np.zeros((3, 4), object), "Python objects"),
    ],
)
def test_arrays_that_are_not_embeddings_are_refused(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "q.npy", array)
    with pytest.raises(InputError, match=message):
        read_embeddings(tmp_path / "q.npy")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"x": VECTORS, "y": VECTORS[:2]}, r"2 tensors of two dimensions .*\(it holds x \(3, 4\), y \(2, 4\)\)"),
        ({"x": VECTORS[0]}, r"0 tensors of two dimensions"),
        ({"embeddings": VECTORS[0]}, r"float32 of shape \(4,\)"),
        ({"embeddings": VECTORS.long()}, r"int64 of shape \(3, 4\)"),
        ({"embeddings": VECTORS.to(torch.float8_e4m3fn)}, "float8_e4m3fn of shape"),
        ({"embeddings": VECTORS, "landmark_ids": torch.zeros(3)}, r"landmark_ids is torch\.float32"),
        ({"embeddings": VECTORS, "landmark_ids": torch.arange(2)}, "2 values of landmark_id for 3 embeddings"),
    ],
)
def test_tensors_that_are_not_embeddings_are_refused(
    tmp_path: Path, tensors: dict[str, torch.Tensor], message: str
) -> None:
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, tmp_path / "q.safetensors")
    with pytest.raises(InputError, match=message):
        read_embeddings(tmp_path / "q.safetensors")


def test_single_matrix_needs_no_name(tmp_path: Path) -> None:
    save_file({"features": VECTORS, "norms": VECTORS[:, 0].clone()}, tmp_path / "q.safetensors")
    assert torch.equal(read(tmp_path / "q.safetensors").vectors, VECTORS)


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float16()), pa.list_(pa.float64(), 4)])
@pytest.mark.parametrize("names", [{}, {"id": pa.array(IDS, pa.large_string())}])
def test_lists_of_any_type(tmp_path: Path, kind: pa.DataType, names: dict[str, pa.Array]) -> None:
    lists = pa.array([row.numpy().astype(kind.value_type.to_pandas_dtype()) for row in VECTORS], kind)
    pq.write_table(pa.table({"embedding": lists, **names}), tmp_path / "q.parquet")
    embeddings = read(tmp_path / "q.parquet")
    assert embeddings.vectors.tolist() == VECTORS.tolist()
    assert (embeddings.ids is None) == (not names)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"vector": [[1.0]]}, "no column embedding; found vector"),
        ({"embedding": [1.0]}, "embedding is double; expected lists"),
        ({"embedding": [[1]]}, "embedding is list<.*int64.*>; expected lists"),
        ({"embedding": pa.array([], pa.list_(pa.float32()))}, r"of shape \(0, 0\)"),
        ({"embedding": pa.array([[], []], pa.list_(pa.float32()))}, r"of shape \(2, 0\)"),
        (
            {"embedding": [[1.0, 2.0], [1.0], [3.0, 4.0], []]},
            "2 numbers in row 0, but 1 in row 1; different from row 0: rows 1, 3",
        ),
        ({"embedding": [[1.0, 2.0], None]}, "2 numbers in row 0, but 0 in row 1"),
        (
            {"embedding": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))},
            # Before version 26, pyarrow refuses to read such a file.
            "2 numbers in row 0, but 0 in row 1|q.parquet: .*Expected all lists to be of size=2",
        ),
        ({"embedding": [[1.0, 2.0], [3.0, 4.0], [None, 5.0]]}, "missing in the embeddings of rows 2"),
        ({"embedding": [[1.0], [2.0]], "id": ["a", None]}, "id is missing in 1 of 2 rows: rows 1"),
        ({"embedding": [[1.0], [2.0]], "landmark_id": [7, None]}, "landmark_id is missing in 1 of 2 rows: rows 1"),
        ({"embedding": [[1.0], [2.0]], "id": ["a", "a"]}, "1 ids are repeated: a"),
    ],
)
def test_columns_that_are_not_embeddings_are_refused(
    tmp_path: Path, columns: dict[str, object], message: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "q.parquet")
    with pytest.raises(InputError, match=message):
        read_embeddings(tmp_path / "q.parquet")


def test_length_that_changes_in_a_later_batch_is_refused(tmp_path: Path) -> None:
    rows = [[1.0, 2.0]] * 5_000
    rows[4_500] = [1.0]
    pq.write_table(pa.table({"embedding": rows}), tmp_path / "q.parquet")
    with pytest.raises(InputError, match="but 1 in row 4,500"):
        read_embeddings(tmp_path / "q.parquet")
