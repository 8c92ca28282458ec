"""Find copies among images: identical, re-encoded, resized, cropped, mirrored or recoloured ones.

Equal files are found by their digests. Otherwise the nearest images of each image, by embeddings of any model, are
candidates. Photographs of one thing have similar embeddings without being copies, so thumbnails decide: a candidate
is compared with every window of the image in a few sizes, also mirrored, by the correlation of their details. Details
are a thumbnail minus a blurred version of itself; whole thumbnails of any two landscapes below a bright sky would
correlate. How many copies are found is measured on altered copies of a sample.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from scipy.ndimage import gaussian_filter
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch.nn import functional

from hgld.audit.nearest_images import blocks_of, nearest_images, only_itself
from hgld.audit.settings import DuplicatesConfig
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import Vectors, as_tensor
from hgld.datasets.image_dataset import EncodedImages
from hgld.datasets.manifest import Manifest
from hgld.errors import InputError
from hgld.io.images import UnreadableImageError, open_image, upright_rgb
from hgld.progress import NoProgress, Progress

#: Side of thumbnails in pixels.
SIZE = 32
#: Sides that the thumbnail of a crop has in that of the whole image: crops of 100 to 81 % of both sides are found.
_SIDES = (32, 30, 28, 26)
#: Standard deviation in pixels of the blur that is subtracted.
_BLUR = 2.0
#: Length below which details are noise of the computation.
_FLAT = 1e-3
#: Pairs that are correlated at once.
_PAIRS = 256


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Copies among the N images of a manifest.

    Args:
        manifest: The manifest.
        pairs: int64, shape (n, 2), rows of the images of each pair of copies, lower row first.
        correlations: float32, shape (n,), correlation of their details.
        cosines: float32, shape (n,), cosine of their embeddings; NaN without embeddings.
        same_pixels: bool, shape (n,): whether they have the same pixels.
        groups: int64, shape (N,), number of the group of copies that each image belongs to, from 0; -1 for none.
        excluded: bool, shape (N,): all images of each group but one, the first outside of the training split if there
            is one.
        thumbnails: uint8, shape (N, SIZE, SIZE), black for unreadable images.
        unreadable: Why images could not be read, by their ids.
    """

    manifest: Manifest
    pairs: NDArray[np.int64]
    correlations: NDArray[np.float32]
    cosines: NDArray[np.float32]
    same_pixels: NDArray[np.bool_]
    groups: NDArray[np.int64]
    excluded: NDArray[np.bool_]
    thumbnails: NDArray[np.uint8]
    unreadable: dict[str, str]

    @property
    def across_splits(self) -> NDArray[np.bool_]:
        """Whether the images of each pair are in different splits, bool, shape (n,)."""
        first, second = (self.manifest.splits[self.pairs[:, side]] for side in range(2))
        return np.asarray(first != second, np.bool_)

    @property
    def across_labels(self) -> NDArray[np.bool_]:
        """Whether the images of each pair differ in their finest label, bool, shape (n,)."""
        n_levels = len(self.manifest.level_names)
        finest = [frozenset(self.manifest.labels_of(row).reshape(-1, n_levels)[:, 0]) for row in self.pairs.flat]
        return np.array([first != second for first, second in zip(finest[::2], finest[1::2], strict=True)], np.bool_)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.groups.max(initial=-1)) + 1

    def to_arrow(self) -> pa.Table:
        """Return a table of the images of all groups: copy_group, id, split, levels, same_pixels, leave_out."""
        rows = np.flatnonzero(self.groups >= 0)
        rows = rows[np.argsort(self.groups[rows], kind="stable")]
        images = self.manifest.take(rows).to_arrow()
        exact = np.isin(rows, self.pairs[self.same_pixels])
        columns = {name: images[name] for name in ("id", "split", *self.manifest.level_names)}
        return pa.table(
            {"copy_group": self.groups[rows], **columns, "same_pixels": exact, "leave_out": self.excluded[rows]}
        )


def find_duplicates(
    manifest: Manifest,
    root: Path,
    embeddings: torch.Tensor | None = None,
    config: DuplicatesConfig | None = None,
    *,
    progress: Progress | None = None,
) -> Duplicates:
    """Find copies among the images of a manifest.

    Args:
        manifest: N images.
        root: Folder that its paths are relative to.
        embeddings: float, shape (N, d), of any model; their mean, which those of untrained networks share, is
            subtracted. Default: the details of thumbnails, by which crops and mirror images are found less often.
        config: Settings.
        progress: Progress in images that are read.

    Raises:
        InputError: The folder does not exist, lacks tar files, or no image of it can be read.
    """
    config, encoded = config or DuplicatesConfig(), EncodedImages(manifest, root)
    thumbnails, digests, unreadable = read_thumbnails(encoded, progress)
    readable = ~np.isin(manifest.ids, [*unreadable])
    vectors, usable = searched_vectors(thumbnails, readable, embeddings)
    _, neighbours = nearest_images(vectors, config.neighbours, only_itself, usable)
    equal = _equal_pairs(digests)
    pairs = np.unique(np.concatenate([_candidates(neighbours, readable), equal]), axis=0)
    is_equal = np.isin(pairs @ [len(manifest), 1], equal @ [len(manifest), 1])
    correlations = np.where(is_equal, np.float32(1), thumbnail_correlations(thumbnails, pairs))
    cosines = np.full(len(pairs), np.nan, np.float32)
    if embeddings is not None:
        mean = mean_direction(embeddings)
        for block in blocks_of(len(pairs), _PAIRS):
            first, second = (centred(embeddings[torch.from_numpy(pairs[block, side])], mean) for side in range(2))
            cosines[block] = (first * second).sum(1).numpy()
    found = is_equal | config.are_copies(correlations, cosines)
    pairs = pairs[found]
    groups = _groups(pairs, len(manifest))
    return Duplicates(
        manifest=manifest,
        pairs=pairs,
        correlations=correlations[found],
        cosines=cosines[found],
        same_pixels=np.array([_same_pixels(encoded, pair) for pair in pairs.tolist()], np.bool_),
        groups=groups,
        excluded=_excluded(groups, manifest.splits == config.train_split),
        thumbnails=thumbnails,
        unreadable=unreadable,
    )


def thumbnail(image: Image.Image) -> NDArray[np.uint8]:
    """Return a grey copy that is squashed to SIZE x SIZE pixels."""
    return np.asarray(image.convert("L").resize((SIZE, SIZE), Image.Resampling.BOX))


def read_thumbnails(
    encoded: EncodedImages, progress: Progress | None = None
) -> tuple[NDArray[np.uint8], list[bytes | None], dict[str, str]]:
    """Read the thumbnails of N images and digests of the images.

    Returns:
        Thumbnails, uint8, shape (N, SIZE, SIZE), black for unreadable images; digests, which equal files share, and
        images of one colour with equal pixels, None for unreadable images; and why images could not be read, by
        their ids.

    Raises:
        InputError: No image can be read.
    """
    n_images, progress = len(encoded.manifest), progress or NoProgress()
    thumbnails, unreadable = np.zeros((n_images, SIZE, SIZE), np.uint8), dict[str, str]()
    digests: list[bytes | None] = [None] * n_images
    progress.start(n_images)
    for row in range(n_images):
        try:
            content = encoded.read(row)
            thumbnails[row] = thumbnail(upright_rgb(open_image(content), SIZE))
            digests[row] = _digest(content, thumbnails[row])
        except UnreadableImageError as error:
            unreadable[encoded.manifest.ids[row]] = error.description
        progress.advance()
    if len(unreadable) == n_images:
        image, reason = next(iter(unreadable.items()))
        raise InputError(f"{encoded.root}: no image can be read; {image}: {reason}")
    return thumbnails, digests, unreadable


def _digest(content: bytes, thumbnail: NDArray[np.uint8]) -> bytes:
    """Return a digest of an image file: of its pixels if it has one colour, which has no details to correlate."""
    if thumbnail.min() < thumbnail.max():
        return hashlib.sha256(content).digest()
    image = upright_rgb(open_image(content))
    return hashlib.sha256(f"{image.size}".encode() + image.tobytes()).digest()


def _equal_pairs(digests: Sequence[bytes | None]) -> NDArray[np.int64]:
    """Return the pairs of each image with the first image that has the same digest, int64, shape (n, 2)."""
    first_rows: dict[bytes, int] = {}
    pairs = []
    for row, digest in enumerate(digests):
        if digest is None:
            continue
        first = first_rows.setdefault(digest, row)
        if first != row:
            pairs.append((first, row))
    return np.array(pairs, np.int64).reshape(-1, 2)


def details(thumbnails: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return thumbnails minus a blurred version of each, float32, shape (n, SIZE, SIZE)."""
    values = thumbnails.astype(np.float32)
    return np.asarray(values - gaussian_filter(values, (0, _BLUR, _BLUR)), np.float32)


def thumbnail_correlations(thumbnails: NDArray[np.uint8], pairs: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the highest correlation of the details of two images over crops of one of them and mirror images.

    It is float32, shape (n,), from -1 to 1, for pairs of rows of the thumbnails, shape (n, 2); 0 for pairs with an
    image without details.
    """
    best = np.full(len(pairs), -1, np.float32)
    for rows in blocks_of(len(pairs), _PAIRS):
        # A single pair is taken twice, as it would differ in the last bits from what it is among others.
        batch = np.resize(pairs[rows], (max(len(pairs[rows]), 2), 2))
        first, second = (torch.from_numpy(details(thumbnails[batch[:, side]]))[:, None] for side in range(2))
        correlations = [
            _correlations(whole, part, side) for whole, part in ((first, second), (second, first)) for side in _SIDES
        ]
        best[rows] = torch.stack(correlations).amax(0).numpy()[: len(pairs[rows])]
    return best


def _correlations(wholes: torch.Tensor, parts: torch.Tensor, side: int) -> torch.Tensor:
    """Return the highest correlation of each part, shrunk to a side and maybe mirrored, with a window of its whole.

    A part has mean 0, so that its product with a window is their covariance; both are of shape (n, 1, SIZE, SIZE).
    """
    n = len(wholes)
    shrunk = functional.interpolate(
        torch.cat([parts, parts.flip(3)], 1), (side, side), mode="bilinear", antialias=True
    )
    shrunk = shrunk - shrunk.mean((2, 3), keepdim=True)
    unit = functional.normalize(shrunk.flatten(2), dim=2, eps=_FLAT).view(2 * n, 1, side, side)
    products: torch.Tensor = functional.conv2d(wholes.view(1, n, SIZE, SIZE), unit, groups=n)
    # Rows, then columns: several times as fast as whole windows.
    rows = (functional.avg_pool2d(values, (side, 1), 1) for values in (wholes, wholes.square()))
    mean, square = (functional.avg_pool2d(values, (1, side), 1) for values in rows)
    lengths = side * (square - mean.square()).clamp(min=0).sqrt()
    return (products.view(n, 2, *lengths.shape[2:]) / lengths.clamp(min=_FLAT)).amax((1, 2, 3))


def searched_vectors(
    thumbnails: NDArray[np.uint8], readable: NDArray[np.bool_], embeddings: torch.Tensor | None
) -> tuple[torch.Tensor, NDArray[np.bool_]]:
    """Return the vectors that nearest images are found by: centred embeddings, or else the details of thumbnails.

    Returns:
        float32, shape (N, d); and the images that can be found, bool, shape (N,): readable ones with any details. The
        vectors of others are ones, as zeros have no cosine.
    """
    if embeddings is None:
        vectors = torch.from_numpy(details(thumbnails)).flatten(1)
    else:
        vectors = centred(embeddings, mean_direction(embeddings))
    usable = readable & (vectors.abs().amax(1) > 0).numpy()
    return torch.where(torch.from_numpy(usable)[:, None], vectors, 1.0), usable


def mean_direction(vectors: torch.Tensor) -> torch.Tensor:
    """Return the mean of the directions of vectors, float32, shape (d,)."""
    blocks = blocks_of(len(vectors))
    total = sum(functional.normalize(vectors[block].float(), dim=1).sum(0) for block in blocks)
    return torch.as_tensor(total / len(vectors))


def centred(vectors: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Return the directions of vectors without the mean of all, float32, shape (n, d), of length 1."""
    return functional.normalize(functional.normalize(vectors.float(), dim=1) - mean, dim=1)


def _candidates(neighbours: NDArray[np.int64], readable: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the pairs of readable images of which one is near the other, lower row first, each once."""
    rows = np.repeat(np.arange(len(neighbours)), neighbours.shape[1])
    pairs = np.stack([rows, neighbours.ravel()], axis=1)
    pairs = pairs[(pairs[:, 1] >= 0) & (pairs[:, 0] != pairs[:, 1])]
    return np.unique(np.sort(pairs[readable[pairs].all(axis=1)], axis=1), axis=0)


def _groups(pairs: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Number the connected components of pairs of n images in the order of their first images; -1 without a pair."""
    graph = coo_array((np.ones(len(pairs), np.bool_), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    _, components = connected_components(graph, directed=False)
    groups = np.full(n, -1)
    rows = np.unique(pairs)
    _, first, numbers = np.unique(components[rows], return_index=True, return_inverse=True)
    groups[rows] = np.argsort(np.argsort(first))[numbers]
    return groups


def _excluded(groups: NDArray[np.int64], is_training: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which images to exclude, bool, shape (N,); see :class:`Duplicates`."""
    rows = np.flatnonzero(groups >= 0)
    rows = rows[np.lexsort((rows, is_training[rows]))]
    _, kept = np.unique(groups[rows], return_index=True)
    excluded = groups >= 0
    excluded[rows[kept]] = False
    return excluded


def _same_pixels(encoded: EncodedImages, rows: list[int]) -> bool:
    first, second = (np.asarray(upright_rgb(open_image(encoded.read(row)))) for row in rows)
    return np.array_equal(first, second)


#: Returns embeddings of pictures, float, shape (n, d).
Embed = Callable[[Sequence[Image.Image]], Vectors]


def _re_encoded(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=40)
    return Image.open(file).convert("RGB")


def _resized(image: Image.Image) -> Image.Image:
    return image.resize((max(image.width // 2, 1), max(image.height // 2, 1)))


def _cropped(share: float) -> Callable[[Image.Image], Image.Image]:
    """Return a function that keeps a share of both sides, off the centre by a third of what is cut away."""

    def crop(image: Image.Image) -> Image.Image:
        width, height = (max(round(share * side), 1) for side in image.size)
        left, top = (image.width - width) // 3, (image.height - height) // 3
        return image.crop((left, top, left + width, top + height))

    return crop


#: Alterations by their names in tables.
ALTERATIONS: Mapping[str, Callable[[Image.Image], Image.Image]] = {
    "re-encoded (JPEG, quality 40)": _re_encoded,
    "half the size": _resized,
    "cropped to 95 % of both sides": _cropped(0.95),
    "cropped to 90 %": _cropped(0.9),
    "cropped to 80 %": _cropped(0.8),
    "mirrored": ImageOps.mirror,
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.4),
    "grey": lambda image: image.convert("L").convert("RGB"),
}


def measure_recall(
    found: Duplicates,
    root: Path,
    embeddings: torch.Tensor | None = None,
    embed: Embed | None = None,
    config: DuplicatesConfig | None = None,
    *,
    n_images: int = 100,
    seed: int = 0,
) -> dict[str, float]:
    """Return the share of altered copies of a sample that would be found, by alteration; see :data:`ALTERATIONS`.

    A copy is found if its original is among its nearest images and the pair passes the thresholds. The images are
    searched exactly, by the embeddings, shape (N, d), if there are any, which ``embed`` makes of the copies.
    """
    config, encoded = config or DuplicatesConfig(), EncodedImages(found.manifest, root)
    readable = ~np.isin(found.manifest.ids, [*found.unreadable])
    vectors, usable = searched_vectors(found.thumbnails, readable, embeddings)
    mean = None if embeddings is None else mean_direction(embeddings)
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(usable))[:n_images]
    originals = [upright_rgb(open_image(encoded.read(row))) for row in rows]
    shares = {}
    for name, alter in ALTERATIONS.items():
        copies = [alter(image) for image in originals]
        thumbnails = np.stack([thumbnail(image) for image in copies])
        both = np.concatenate([found.thumbnails[rows], thumbnails])
        pairs = np.stack([np.arange(len(rows)), len(rows) + np.arange(len(rows))], axis=1)
        cosines = np.full(len(rows), np.nan, np.float32)
        queries = torch.from_numpy(details(thumbnails)).flatten(1)
        if mean is not None:
            assert embed is not None
            queries = centred(as_tensor(embed(copies)), mean)
            cosines = (queries * vectors[torch.from_numpy(rows)]).sum(1).numpy()
        _, nearest = nearest_neighbours(queries, vectors, config.neighbours, gallery_mask=usable)
        is_near = (nearest == rows[:, None]).any(axis=1)
        are_copies = config.are_copies(thumbnail_correlations(both, pairs), cosines)
        shares[name] = float((is_near & are_copies).mean())
    return shares
