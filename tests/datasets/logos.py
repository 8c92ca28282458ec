"""Generated logos with figurative codes of the Vienna classification: category.division.section, several per logo."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

#: Outlines in a box of 20 x 20, by code: stars and suns are of one category, geometrical figures of another.
FIGURES = {
    "01.01.02": [(10, 0), (13, 8), (20, 8), (14, 12), (17, 20), (10, 15), (3, 20), (6, 12), (0, 8), (7, 8)],
    "01.03.01": [(10, 0), (14, 6), (20, 10), (14, 14), (10, 20), (6, 14), (0, 10), (6, 6)],
    "26.03.01": [(10, 0), (20, 20), (0, 20)],
    "26.04.01": [(2, 2), (18, 2), (18, 18), (2, 18)],
    "26.04.05": [(0, 6), (20, 6), (20, 14), (0, 14)],
}
COLOURS = {"29.01.01": (220, 30, 30), "29.01.03": (30, 160, 40), "29.01.04": (30, 60, 220)}


def save_logos(folder: Path, n: int, seed: int = 0) -> list[tuple[str, list[str]]]:
    """Draw logos of one or two figures in one colour; return the path and the codes of each."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    logos = []
    for number in range(n):
        figures = rng.choice(list(FIGURES), rng.integers(1, 3), replace=False).tolist()
        colour = str(rng.choice(list(COLOURS)))
        image = Image.new("RGB", (48, 32), "white")
        for place, figure in enumerate(figures):
            x, y = 3 + 22 * place, int(rng.integers(2, 10))
            ImageDraw.Draw(image).polygon([(x + dx, y + dy) for dx, dy in FIGURES[figure]], fill=COLOURS[colour])
        name = f"logo{number:03}.png"
        image.save(folder / name)
        logos.append((name, [*figures, colour]))
    return logos


def write_logo_table(path: Path, logos: list[tuple[str, list[str]]]) -> Path:
    """Write the table path,vienna with the codes of each logo between semicolons."""
    path.write_text("path,vienna\n" + "".join(f"{name},{'; '.join(codes)}\n" for name, codes in logos))
    return path
