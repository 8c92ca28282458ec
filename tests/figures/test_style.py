"""The formats of figures."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from hgld.figures.style import also_written_as, save

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
        *("a.sweep.pdf", "a.sweep.png", "a.sweep.svg", "b.svg", "c.png"),
    ]
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(BEGINNINGS[path.suffix[1:]])


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
