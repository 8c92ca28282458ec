"""Files of embeddings, with the ids of the embedded images.

================  ==========================================
========================================== suffix            embeddings
ids ================  ==========================================
========================================== ``.npy``          the array, float16, float32 or float64
in a file beside it ``.safetensors``  the tensor ``embeddings``, or the only      in a file beside
it; int64 tensor
                  one of two dimensions; also bfloat16        ``landmark_ids``, which may be absent
``.parquet``      column ``embedding``, lists of float16,     columns ``id`` and ``landmark_id``,
                  which float32 or float64                          may be absent
================  ==========================================
==========================================

The ids of ``q.npy`` are in ``q.ids.txt``, one per line in UTF-8.

The first two formats are memory-mapped: pages are read on use, and the system may drop them again.
Parquet is decoded into an array as large as the embeddings, so it does not suit galleries of
hundreds of thousands of images.

A folder of such files is read as one: its parts, ``01.npy`` with ``01.ids.txt`` and so on, follow
one another in the order of their names. The parts are not copied, so embeddings of a hundred
million images need not fit into memory.

``hgld embed-images --with-std`` writes the standard deviations of feature maps beside embeddings:
the deviations of ``q.npy`` are in ``q.deviations.npy``, a file in the format of embeddings with the
same ids in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from hgld.arrays import Integers
from hgld.compute.parted import PartedTensor
from hgld.errors import ConfigurationError, InputError, counted, indented_list
from hgld.io.columns import is_list, preview, preview_rows, read_columns, require_non_null
from hgld.io.files import atomic_write, path_beside
from hgld.io.text_array import TextArray, Texts

_DTYPES = (torch.float16, torch.float32, torch.float64, torch.bfloat16)
_NUMPY_DTYPES = (np.float16, np.float32, np.float64)
_NAMES = {"id": pa.string(), "landmark_id": pa.int64()}
#: Rows of a Parquet file decoded at once: at most 64 MB where vectors have 2,048 numbers of 8
#: bytes.
_BATCH = 4096


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings of images.

    Args:
        vectors: float16, float32, float64 or bfloat16, shape (N, d), N and d at least 1; writing to
            it does not change the file. May contain NaN and infinite values.
        ids: N texts, unique; None if the file has none.
        landmark_ids: int64, shape (N,); None if the file has none.
        path: File that the embeddings were read from, or images that they were computed from; for
            messages.
    """

    vectors: torch.Tensor
    ids: TextArray | None
    landmark_ids: Integers | None
    path: Path

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """Dimension d of the vectors."""
        return int(self.vectors.shape[1])


def read_embeddings(path: Path) -> Embeddings:
    """Read embeddings from a file in one of the formats above, or from a folder of parts.

    Raises:
        InputError: The file does not exist, its suffix is unknown, it is truncated, it does not
            hold embeddings of the types above, vectors differ in length, parts are not alike, or
            ids are missing, repeated or of another number.
    """
    files = part_files(path)
    if path.is_dir():
        return _read_parts(path, files)
    vectors, names = _read_file(path)
    return _make_embeddings(path, vectors, names)


def _make_embeddings(
    path: Path, vectors: torch.Tensor, names: Mapping[str, pa.Array]
) -> Embeddings:
    """Combine vectors with the columns ``id`` and ``landmark_id``, either of which may be absent."""
    ids = None
    if "id" in names:
        ids = TextArray(names["id"])
    landmark_ids = None
    if "landmark_id" in names:
        landmark_ids = names["landmark_id"].to_numpy(zero_copy_only=False, writable=True)
    return Embeddings(vectors, ids, landmark_ids, path)


def read_vectors(path: Path) -> torch.Tensor:
    """Read the vectors of embeddings without their ids, which may not fit into memory."""
    files = part_files(path)
    vectors = [_read_vectors(file)[0] for file in files]
    _check_parts(files, [f"{part.shape[1]:,} dimensions" for part in vectors])
    return PartedTensor(vectors) if path.is_dir() else vectors[0]


def part_files(path: Path) -> list[Path]:
    """Return the files of a folder of embeddings in the order of their names, or a file itself.

    Raises:
        InputError: The file or folder does not exist, or the folder lacks parts that
            ``embed-images`` wrote, or has no embeddings.
    """
    if not path.is_dir():
        if not path.is_file():
            raise InputError(f"{path}: no such file; expected the embeddings of images")
        return [path]
    files = []
    for file in sorted(path.iterdir()):
        is_part = not file.stem.endswith((".ids", ".deviations"))
        if is_part and file.suffix in EMBEDDING_READERS:
            files.append(file)
    if not files:
        raise InputError(
            f"{path}: no embeddings in this folder; expected parts, such as 01.npy with 01.ids.txt"
        )
    counts = set()
    for file in files:
        match = re.fullmatch(r"\d+-of-(\d+)", file.stem)
        if match:
            counts.add(int(match[1]))
    if counts and counts != {len(files)}:
        expected = " or ".join(map(str, sorted(counts)))
        raise InputError(
            f"{path}: {len(files):,} parts of {expected}; write the others, or remove those of another run"
        )
    return files


def _check_parts(files: Sequence[Path], descriptions: Sequence[str]) -> None:
    """Raise an InputError if the descriptions of the parts differ."""
    for file, description in zip(files, descriptions, strict=True):
        if description != descriptions[0]:
            raise InputError(
                f"{file}: {description}, but {files[0].name} has {descriptions[0]}; expected the same"
            )


def required_ids(embeddings: Embeddings) -> TextArray:
    """Return the ids of embeddings; raise an InputError if the file has no ids."""
    if embeddings.ids is None:
        raise InputError(
            f"{embeddings.path}: has no ids, by which images are identified here; write them to "
            f"{embeddings.path.stem}.ids.txt beside it, one per line"
        )
    return embeddings.ids


def rows_of(embeddings: Embeddings, ids: Texts, description: str) -> Integers:
    """Return the rows of images among embeddings: int64, shape (n,).

    Args:
        embeddings: Embeddings with ids.
        ids: n ids of images.
        description: What the images are, for the error message.

    Raises:
        InputError: The embeddings have no ids, or lack some of the images.
    """
    wanted = TextArray(ids)
    rows = required_ids(embeddings).find(wanted)
    if (rows < 0).any():
        missing = wanted[rows < 0].tolist()
        raise InputError(
            f"{embeddings.path}: {len(missing):,} of the {len(ids):,} {description} are not embedded; embed these, "
            f"too, or leave them out (hgld manifest leave-out):\n{indented_list(missing)}"
        )
    return rows


def require_finite(embeddings: Embeddings) -> None:
    """Raise an InputError, which names the images, if embeddings have NaN or infinite values."""
    is_finite = embeddings.vectors.isfinite().all(dim=1)
    rows = torch.nonzero(~is_finite)[:, 0].tolist()
    if rows:
        names = rows if embeddings.ids is None else embeddings.ids[rows].tolist()
        raise InputError(
            f"{embeddings.path}: {counted(len(rows), 'embedding')} with NaN or infinite values: {preview(names)}; "
            "embed these images again, or leave them out"
        )


def write_embeddings(
    path: Path,
    vectors: torch.Tensor,
    ids: Texts,
    landmark_ids: Integers | None = None,
) -> None:
    """Write vectors and ids of images in the format of the suffix, or nothing on failure.

    The ids of ``q.npy`` and ``q.safetensors`` are written to ``q.ids.txt``. If the process is
    killed, the vectors of one call are never left beside the ids of another call.

    Args:
        path: File to write.
        vectors: float16, float32, float64 or bfloat16, shape (N, d).
        ids: N unique texts.
        landmark_ids: int64, shape (N,).

    Raises:
        InputError: The vectors or ids are not as :class:`Embeddings` describes them, or ids that
            become lines of a file have a line break or begin with a byte order mark.
        ConfigurationError: The format cannot hold bfloat16 or landmark ids.
    """
    check_suffix(path)
    _check_vectors(path, str(vectors.dtype), vectors.shape, known=vectors.dtype in _DTYPES)
    if vectors.dtype == torch.bfloat16 and path.suffix != ".safetensors":
        raise ConfigurationError(
            f"{path}: {path.suffix} has no bfloat16; choose .safetensors, or write float32"
        )
    if landmark_ids is not None and path.suffix == ".npy":
        raise ConfigurationError(
            f"{path}: .npy has no place for landmark ids; choose .safetensors or .parquet"
        )
    names = {"id": TextArray(ids).to_arrow().combine_chunks()}
    if landmark_ids is not None:
        names["landmark_id"] = pa.array(landmark_ids, pa.int64())
    _check_names(path, names, len(vectors))
    vectors = vectors.detach()
    with atomic_write(path) as draft:
        if path.suffix == ".parquet":
            _write_parquet(draft, vectors, names)
            return
        with atomic_write(_ids_txt(path)) as ids_draft:
            _write_lines(path, ids_draft, names["id"])
            if path.suffix == ".npy":
                np.save(draft, vectors.cpu().numpy())
            else:
                tensors = {"embeddings": vectors.contiguous()}
                if landmark_ids is not None:
                    tensors["landmark_ids"] = torch.from_numpy(np.array(landmark_ids, np.int64))
                save_file(tensors, draft)
            # A process that is killed between the two renames must not leave old vectors under new
            # ids.
            path.unlink(missing_ok=True)


def check_suffix(path: Path) -> None:
    """Raise an :class:`InputError` if no format of embeddings has the suffix of a file."""
    if path.suffix not in EMBEDDING_READERS:
        suffixes = ", ".join(EMBEDDING_READERS)
        raise InputError(
            f'{path}: the suffix is "{path.suffix}"; embeddings are in {suffixes} files'
        )


def _read_parts(folder: Path, files: Sequence[Path]) -> Embeddings:
    """Read the parts of a folder as one."""
    parts = []
    names_of_parts = []
    descriptions = []
    for file in files:
        vectors, names = _read_file(file)
        parts.append(vectors)
        names_of_parts.append(names)
        kinds_of_ids = " and ".join(sorted(names)) or "no id"
        descriptions.append(f"{vectors.shape[1]:,} dimensions and {kinds_of_ids}")
    _check_parts(files, descriptions)
    joined_names = {}
    for name in names_of_parts[0]:
        joined_names[name] = pa.concat_arrays([names[name] for names in names_of_parts])
    joined_vectors = PartedTensor(parts)
    _check_names(folder, joined_names, len(joined_vectors))
    return _make_embeddings(folder, joined_vectors, joined_names)


def _read_file(path: Path) -> tuple[torch.Tensor, dict[str, pa.Array]]:
    """Read the vectors of a file, and the ids and landmark ids in it and in the file of ids beside it."""
    vectors, names = _read_vectors(path)
    ids = find_ids_file(path)
    if "id" not in names and ids is not None:
        names["id"] = _read_lines(ids)
        _check_names(ids, names, len(vectors))
    if "id" in names:
        names["id"] = pc.utf8_normalize(names["id"], form="NFC")
    return vectors, names


def _read_vectors(path: Path) -> tuple[torch.Tensor, dict[str, pa.Array]]:
    """Read the vectors, ids and landmark ids in a file, without the file of ids beside it."""
    check_suffix(path)
    vectors, names = EMBEDDING_READERS[path.suffix](path)
    _check_vectors(path, str(vectors.dtype), vectors.shape, known=vectors.dtype in _DTYPES)
    _check_names(path, names, len(vectors))
    return vectors, names


def _check_vectors(path: Path, dtype: str, shape: Sequence[int], *, known: bool) -> None:
    """Raise an InputError if the type of vectors is not ``known``, or their shape is not (N, d)."""
    if not known or len(shape) != 2 or not all(shape):
        raise InputError(
            f"{path}: {dtype.removeprefix('torch.')} of shape {tuple(shape)}; expected float16, float32, float64 or "
            "bfloat16 of shape (N, d), a row per image, N and d at least 1"
        )


def _check_names(path: Path, names: Mapping[str, pa.Array], n: int) -> None:
    """Raise an InputError unless there are ``n`` ids and landmark ids, without nulls, and ids are unique."""
    for name, values in names.items():
        if len(values) != n:
            raise InputError(
                f"{path}: {len(values):,} values of {name} for {n:,} embeddings; expected one for each"
            )
    require_non_null(pa.table(dict(names)), path)
    if "id" in names and not TextArray(names["id"]).is_unique():
        counts = pc.value_counts(names["id"])
        repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
        if repeated:
            raise InputError(
                f"{path}: {len(repeated):,} ids are repeated: {preview(repeated)}; an id identifies one image"
            )


# .npy


def _read_npy(path: Path) -> tuple[torch.Tensor, dict[str, pa.Array]]:
    # Copy-on-write, as torch has no tensors that cannot be written.
    array = load_array(path, mapped=True)
    _check_vectors(path, str(array.dtype), array.shape, known=array.dtype in _NUMPY_DTYPES)
    return torch.from_numpy(array), {}


def load_array(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """Read the array of a ``.npy`` file.

    Raises:
        InputError: The file is truncated, not of this format, or holds Python objects.
    """
    try:
        if mapped:
            return np.lib.format.open_memmap(path, mode="c")
        with path.open("rb") as stream:
            array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
            return array
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(f"{path}: not a whole .npy file of numbers or texts: {error}") from error


# .safetensors


def _read_safetensors(path: Path) -> tuple[torch.Tensor, dict[str, pa.Array]]:
    try:
        with safe_open(path, framework="pt") as file:
            shapes = {}
            for name in file.keys():  # noqa: SIM118
                shapes[name] = tuple(file.get_slice(name).get_shape())
            vectors = file.get_tensor(_find_embeddings_tensor(path, shapes))
            if "landmark_ids" not in shapes:
                return vectors, {}
            landmark_ids = file.get_tensor("landmark_ids")
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a whole .safetensors file: {error}") from error
    if landmark_ids.dtype != torch.int64 or landmark_ids.ndim != 1:
        raise InputError(
            f"{path}: landmark_ids is {landmark_ids.dtype} of shape {tuple(landmark_ids.shape)}; expected int64 (N,)"
        )
    return vectors, {"landmark_id": pa.array(landmark_ids.numpy())}


def _find_embeddings_tensor(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return the name of the tensor of embeddings: ``embeddings``, or the only one with two dimensions."""
    if "embeddings" in shapes:
        return "embeddings"
    names = [name for name, shape in shapes.items() if len(shape) == 2]
    if len(names) != 1:
        tensors = ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items()))
        raise InputError(
            f"{path}: {len(names)} tensors of two dimensions and none called embeddings (it holds "
            f"{tensors or 'none'}); call the right one embeddings"
        )
    return names[0]


# .parquet


def _read_parquet(path: Path) -> tuple[torch.Tensor, dict[str, pa.Array]]:
    table = read_columns(path, tuple(_NAMES), _NAMES)
    names = {name: table[name].combine_chunks() for name in table.column_names}
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            return _decode(path, file), names
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            f"{path}: cannot be read as Parquet, and may be incomplete: {error}"
        ) from error


def _decode(path: Path, file: pq.ParquetFile) -> torch.Tensor:
    """Decode the column ``embedding`` into one tensor, a batch of rows at a time."""
    schema = file.schema_arrow
    if "embedding" not in schema.names:
        raise InputError(f"{path}: no column embedding; found {', '.join(schema.names)}")
    kind = schema.field("embedding").type
    if not (is_list(kind) and pa.types.is_floating(kind.value_type)):
        raise InputError(
            f"{path}: the column embedding is {kind}; expected lists of float16, float32 or float64"
        )
    vectors = np.empty((0, 0))
    start = 0
    for batch in file.iter_batches(_BATCH, columns=["embedding"]):
        lists = batch.column(0)
        n = len(lists)
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        if start == 0:
            shape = (file.metadata.num_rows, lengths[0])
            vectors = np.empty(shape, kind.value_type.to_pandas_dtype())
        dim = vectors.shape[1]
        differing = np.flatnonzero(lengths != dim)
        if len(differing):
            first = differing[0]
            raise InputError(
                f"{path}: embeddings differ in length: {dim} numbers in row 0, but {lengths[first]} in row "
                f"{start + first:,}; different from row 0: {preview_rows(start + differing)}"
            )
        values = lists.flatten()
        if values.null_count:
            rows = np.unique(pc.indices_nonzero(values.is_null()).to_numpy() // dim)
            raise InputError(
                f"{path}: numbers are missing in the embeddings of {preview_rows(start + rows)}"
            )
        vectors[start : start + n] = values.to_numpy(zero_copy_only=False).reshape(n, dim)
        start += n
    return torch.from_numpy(vectors)


def _write_parquet(draft: Path, vectors: torch.Tensor, names: Mapping[str, pa.Array]) -> None:
    n, dim = vectors.shape
    id_columns = pa.table(dict(names))
    kind = pa.list_(pa.from_numpy_dtype(vectors[:0].cpu().numpy().dtype), dim)
    schema = id_columns.schema.append(pa.field("embedding", kind))
    # Neither ids nor vectors repeat, so dictionaries would not save space.
    with pq.ParquetWriter(draft, schema, compression="zstd", use_dictionary=False) as writer:
        for start in range(0, n, _BATCH):
            values = vectors[start : start + _BATCH].cpu().numpy().ravel()
            lists = pa.FixedSizeListArray.from_arrays(pa.array(values), dim)
            rows = id_columns.slice(start, _BATCH).append_column(schema.field("embedding"), [lists])
            writer.write_table(rows)


# Names


def find_ids_file(path: Path) -> Path | None:
    """Return the file of ids beside a file of embeddings; None if it does not exist."""
    ids = _ids_txt(path)
    if ids.is_file():
        return ids
    return None


def _ids_txt(path: Path) -> Path:
    return path.with_suffix(".ids.txt")


def _read_lines(path: Path) -> pa.Array:
    """Read a file of ids, one per line."""
    try:
        text = pa.array([path.read_text(encoding="utf-8-sig")], pa.large_string())
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not UTF-8 at byte {error.start:,}; save the file as UTF-8"
        ) from error
    lines = pc.split_pattern(text, "\n").values.cast(pa.string())
    if lines[-1].as_py() == "":
        lines = lines[:-1]
    return lines


def _write_lines(path: Path, draft: Path, ids: pa.Array) -> None:
    """Write a file of ids, one per line."""
    lines = ids.to_pylist()
    invalid = [repr(line) for line in lines if "\n" in line or "\r" in line]
    if lines[0].startswith("\ufeff"):
        invalid.insert(0, repr(lines[0]))
    if invalid:
        raise InputError(
            f"{path}: {len(invalid):,} ids cannot be lines of a file: {preview(invalid)}; give others, or choose "
            ".parquet"
        )
    text = "\n".join(lines) + "\n"
    draft.write_text(text, encoding="utf-8", newline="\n")


#: Readers of files of embeddings by their suffix.
EMBEDDING_READERS: Mapping[str, Callable[[Path], tuple[torch.Tensor, dict[str, pa.Array]]]] = {
    ".npy": _read_npy,
    ".safetensors": _read_safetensors,
    ".parquet": _read_parquet,
}


# Standard deviations


def has_deviations(embeddings: Path) -> bool:
    """Return whether deviations are beside a file of embeddings, or beside each part of a folder."""
    return all(path_beside(file, "deviations").is_file() for file in part_files(embeddings))


def read_deviations(embeddings: Path, ids: Texts | None = None) -> torch.Tensor:
    """Read the standard deviations of feature maps that belong to embeddings: float32, shape (n, c).

    Args:
        embeddings: File or folder of the embeddings.
        ids: Ids of n images. Default: all images in the order of the embeddings; the deviations are
            then memory-mapped if the format allows it.

    Raises:
        InputError: The deviations are not beside the embeddings, or lack some of the images.
    """
    files = [path_beside(file, "deviations") for file in part_files(embeddings)]
    absent = [file.name for file in files if not file.is_file()]
    if absent:
        where = "in it for each part" if embeddings.is_dir() else "beside it"
        raise InputError(
            f"{embeddings}: has no standard deviations of feature maps {where} ({absent[0]}); embed the images "
            "again with hgld embed-images --with-std"
        )
    if embeddings.is_dir():
        deviations = _read_parts(embeddings, files)
    else:
        deviations = read_embeddings(files[0])
    if ids is None:
        return deviations.vectors
    if deviations.ids is not None and np.array_equal(deviations.ids, TextArray(ids)):
        return deviations.vectors
    rows = rows_of(deviations, ids, "images")
    return deviations.vectors[torch.from_numpy(rows)]


def remove_deviations(embeddings: Path) -> None:
    """Remove the deviations that belong to a file of embeddings, and their file of ids."""
    path = path_beside(embeddings, "deviations")
    path.unlink(missing_ok=True)
    _ids_txt(path).unlink(missing_ok=True)
