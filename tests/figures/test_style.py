"""The formats of figures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from hgld.figures.style import DARK, LIGHT, also_written_as, level_colours, root_colours, save
from tests.commands import run_hgld

BEGINNINGS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def figure() -> Figure:
    drawn = Figure(figsize=(2, 1))
    axes = drawn.subplots()
    axes.fill_between([0, 1], [0, 0], [1, 2])
    axes.set_title("lake")
    return drawn


def test_further_formats_are_written_beside_png_only(tmp_path: Path) -> None:
    with also_written_as(["pdf", "svg", "png"]):
        save(figure(), tmp_path / "a.sweep.png")
        save(figure(), tmp_path / "b.svg")
    save(figure(), tmp_path / "c.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("a.sweep.pdf", "a.sweep.png", "a.sweep.svg", "b.svg", "c.png")
    ]
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(BEGINNINGS[path.suffix[1:]])


@pytest.mark.parametrize("name", ["a.xyz", "a"])
@pytest.mark.parametrize(
    "command",
    [
        ("stats", "none.parquet", "-o"),
        ("agreement", "none.csv", "none.csv", "--figure"),
    ],
)
def test_names_that_are_not_of_figures_are_refused_at_once(command: Sequence[str], name: str) -> None:
    result = run_hgld(*command, name, code=1)
    assert result.stderr.startswith(f"error: {name}: expected the name of a figure, which ends with .png, .pdf, .svg")


def test_every_format_is_reproducible(tmp_path: Path) -> None:
    with also_written_as(BEGINNINGS):
        save(figure(), tmp_path / "a.png")
        save(figure(), tmp_path / "b.png")
    for suffix in BEGINNINGS:
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_fonts_of_pdf_files_are_truetype(tmp_path: Path) -> None:
    # Conferences refuse Type 3 fonts, which matplotlib embeds by default.
    save(figure(), tmp_path / "a.pdf")
    content = (tmp_path / "a.pdf").read_bytes()
    assert b"/CIDFontType2" in content
    assert b"/Type3" not in content


#: Matrices for linear RGB: Machado et al. 2009, severity 1.
SIGHTS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
#: Matrices of OKLab (Ottosson 2020).
TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def smallest_distance(colours: Sequence[str], sight: str) -> float:
    """The smallest distance in OKLab between two of the colours, as someone with this sight sees them."""
    values = np.array([[int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)] for colour in colours])
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    lab = np.cbrt(np.clip(linear @ np.array(SIGHTS[sight]).T, 0, 1) @ TO_LMS.T) @ TO_LAB.T
    distances = np.linalg.norm(lab[:, None] - lab[None], axis=-1)
    return float(distances[~np.eye(len(colours), dtype=bool)].min())


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize(
    "colours",
    [
        pytest.param(LIGHT, id="light"),
        pytest.param(DARK, id="dark"),
        pytest.param(tuple(root_colours(["natural", "human-made"]).values()), id="roots"),
        *(pytest.param(level_colours(n), id=f"{n} levels") for n in (1, 2, 3, 4)),
        *(pytest.param(level_colours(n, background=True), id=f"{n} levels, background") for n in (1, 2, 3)),
    ],
)
def test_colours_differ_in_simulated_colour_blindness(colours: Sequence[str], sight: str) -> None:
    assert smallest_distance(colours, sight) > (0.14 if sight == "normal" else 0.09)


def test_level_colours_of_any_number_of_levels_are_different() -> None:
    for n_levels in range(1, 30):
        assert len(set(level_colours(n_levels))) == n_levels + 1
