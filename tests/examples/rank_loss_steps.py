"""Draw the steps of rank losses, a picture of the page on rank losses.

python rank_loss_steps.py OUTPUT
"""

import sys
from pathlib import Path

import torch

from hgld.figures.style import LIGHT, make_axes, open_axes, save
from hgld.losses import Heaviside, Sigmoid, Step, SupRankStep, suprank_step

#: Name, step, colour, line style and line width.
Line = tuple[str, Step, str, str, float]


def draw_steps(path: Path) -> None:
    """Draw what an item adds to the rank of a positive, over the difference of their scores."""
    heaviside: Line = ("H", Heaviside(), LIGHT[3], "--", 1.5)
    sigmoid: Line = ("sigmoid: Smooth-AP", Sigmoid(0.01), LIGHT[0], "-", 3.5)
    upper: Line = ("$H^-$ of Eq. 4: SupRank", SupRankStep(), LIGHT[2], "-", 2.0)
    inat: Line = ("$H^-$ cfginat", suprank_step("cfginat"), LIGHT[8], "-.", 1.8)
    panels = {
        "$h^+$: item j is a positive (SupRank keeps H)": [sigmoid, heaviside],
        "$h^-$: item j is a negative": [sigmoid, upper, inat, heaviside],
    }
    differences = torch.linspace(-0.06, 0.08, 1401, dtype=torch.float64)
    figure, axes = make_axes(2, 3.4)
    for ax, (title, lines) in zip(axes, panels.items(), strict=True):
        for name, step, colour, style, width in lines:
            ax.plot(differences, step.value(differences), style, color=colour, linewidth=width, label=name)
        ax.set(title=title, xlim=(-0.06, 0.08), ylim=(-0.1, 3))
        ax.set(xlabel="$t = s_j - s_k$, a difference of cosines", ylabel="contribution of j to the rank of k")
        ax.legend(loc="upper left", frameon=False)
        open_axes(ax)
    save(figure, path)


if __name__ == "__main__":
    draw_steps(Path(sys.argv[1]))
