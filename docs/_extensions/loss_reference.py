"""Every loss with its options in settings, from the registry of losses."""

from __future__ import annotations

from markdown_text import code, from_docstring, table
from option_tables import (
    OPTION_HEADER,
    default_text,
    description,
    parameter_meaning,
    summary,
    type_name,
)

from hgld.losses.registry import DECOMPOSABILITY_LOSSES, LOSSES, LossSpec, Option


def loss_pages() -> dict[str, str]:
    """Return the page of all losses."""
    overview = [
        [f"[{code(name)}](#{name})", summary(loss.constructor)] for name, loss in LOSSES.items()
    ]
    parts = [
        "# Losses and their options",
        "What the section `loss` of the [settings of a training](training_settings.md) can be: the name of a loss, "
        "and its options beside it, as in `loss: {name: happier, lambda: 0.2}`. Equations are those of *Optimization "
        "of Rank Losses for Image Retrieval* unless another paper is named; defaults are what their authors ran on "
        "most data sets. [Losses in your own training loop](../losses.md) describes their use in Python.",
        table(["loss", "what it is"], overview),
    ]
    parts += [_section(name, loss) for name, loss in LOSSES.items()]
    return {"loss_options.md": "\n\n".join(parts) + "\n"}


def _section(name: str, loss: LossSpec) -> str:
    python = f"In Python: {code(f'hgld.losses.{loss.constructor.__name__}')}."
    rows = [
        [
            code(key.rstrip("_")),
            code(type_name(option.annotation)),
            default_text(option.default),
            _meaning(key, option, loss),
        ]
        for key, option in loss.options.items()
    ]
    return "\n\n".join(
        [f"## {code(name)}", description(loss.constructor), python, table(OPTION_HEADER, rows)]
    )


def _meaning(key: str, option: Option, loss: LossSpec) -> str:
    if option.constructor is None:
        return from_docstring(option.meaning)
    meaning = parameter_meaning(option.constructor, key)
    kinds = [kind for kind, term in DECOMPOSABILITY_LOSSES.items() if term is option.constructor]
    return (
        f"With `decomposability: {kinds[0]}`: {meaning}"
        if kinds and "decomposability" in loss.options
        else meaning
    )
