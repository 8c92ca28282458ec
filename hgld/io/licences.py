"""Identifiers of licences: those of SPDX (https://spdx.org/licenses), and those of the Hugging Face hub.

The hub knows fewer licences than SPDX, and has names of its own for some. Cards of other licences say ``other``, with
the name and the address of the licence (https://huggingface.co/docs/hub/repositories-licenses).
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

#: Identifiers of the hub, but for those of models, families and "other".
HUB_LICENCES = frozenset((
    "afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear",
    "bsl-1.0", "c-uda", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0",
    "cc-by-nc-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0",
    "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "cdla-permissive-1.0",
    "cdla-permissive-2.0", "cdla-sharing-1.0", "ecl-2.0", "epl-1.0", "epl-2.0", "etalab-2.0", "eupl-1.1",
    "gfdl", "gpl", "gpl-2.0", "gpl-3.0", "isc", "lgpl", "lgpl-2.1", "lgpl-3.0", "lppl-1.3c", "mit", "mpl-2.0",
    "ms-pl", "ncsa", "odbl", "odc-by", "ofl-1.1", "osl-3.0", "pddl", "postgresql", "unlicense", "wtfpl", "zlib"
))  # fmt: skip
#: Identifiers of SPDX in small letters, without ``-only`` and ``-or-later``, by the other one that the hub has.
_SPDX_BY_HUB = {
    "c-uda": "c-uda-1.0",
    "gfdl": "gfdl-1.3",
    "gpl": "gpl-1.0",
    "lgpl": "lgpl-2.0",
    "odbl": "odbl-1.0",
    "odc-by": "odc-by-1.0",
    "pddl": "pddl-1.0",
}
#: Licences of GNU, of which SPDX only has ``-only`` and ``-or-later``.
_GNU = re.compile(r"(?:[al]?gpl|gfdl)-[\d.]+", re.IGNORECASE)


def spdx_licence(text: str) -> str:
    """Return an identifier of SPDX in its usual letters.

    Raises:
        ValueError: SPDX has no licence of this identifier; the message names similar ones.

    >>> spdx_licence("cc-by-4.0")
    'CC-BY-4.0'
    """
    licence = _canonical(text)
    if licence is not None and not _GNU.fullmatch(licence):
        return licence
    question = f"; did you mean {similar}?" if (similar := " or ".join(_similar(text))) else ""
    raise ValueError(f'expected an identifier of SPDX such as CC-BY-4.0, found "{text}"{question}')


def licence_url(licence: str) -> str:
    """Return the address of a licence's text, given its identifier of SPDX."""
    return f"https://spdx.org/licenses/{licence}.html"


def hub_fields(licence: str) -> dict[str, str]:
    """Return the fields of a card on the hub for a licence, given its identifier of SPDX.

    >>> hub_fields("ODbL-1.0"), hub_fields("LGPL-3.0-or-later")
    ({'license': 'odbl'}, {'license': 'lgpl-3.0'})
    >>> hub_fields("CC-BY-1.0")["license"], hub_fields("CC-BY-1.0")["license_name"]
    ('other', 'cc-by-1.0')
    """
    name = licence.lower()
    base = name.removesuffix("-only").removesuffix("-or-later")
    if base.startswith("gfdl-"):
        base = "gfdl"
    hub_by_spdx = {spdx: hub for hub, spdx in _SPDX_BY_HUB.items()}
    on_hub = hub_by_spdx.get(base, base)
    if on_hub in HUB_LICENCES:
        return {"license": on_hub}
    return {"license": "other", "license_name": name, "license_link": licence_url(licence)}


def model_fields(text: str) -> dict[str, str]:
    """Return the fields of a card on the hub for the licence of a model, by its identifier there or that of SPDX.

    Identifiers that look like neither are taken for those of the hub, which has some for single models.

    Raises:
        ValueError: It looks like an identifier of SPDX, but is none.

    >>> model_fields("gpl-3.0"), model_fields("Apache-2.0"), model_fields("gemma")
    ({'license': 'gpl-3.0'}, {'license': 'apache-2.0'}, {'license': 'gemma'})
    """
    if text in HUB_LICENCES or not (_canonical(text) or _similar(text)):
        return {"license": text}
    return hub_fields(spdx_licence(text))


def _canonical(text: str) -> str | None:
    """Return a single identifier of SPDX in its usual letters; None for anything else, such as an expression."""
    try:
        licence = canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return None
    is_single = re.fullmatch(r"[\w.-]+", licence) is not None and not licence.startswith(
        "LicenseRef-"
    )
    return licence if is_single else None


def _similar(text: str) -> list[str]:
    """Return identifiers of SPDX that a text may stand for.

    >>> _similar("CC-BY"), _similar("odbl"), _similar("gpl-3.0"), _similar("cc by 4.0"), _similar("nonsense")
    (['CC-BY-4.0'], ['ODbL-1.0'], ['GPL-3.0-only', 'GPL-3.0-or-later'], ['CC-BY-4.0'], [])
    """
    wanted = re.sub(r"[\s_]+", "-", text.strip().lower())
    names = sorted(HUB_LICENCES - _SPDX_BY_HUB.keys() | {*_SPDX_BY_HUB.values()})
    versions = [name for name in names if re.fullmatch(re.escape(wanted) + r"-[\d.]+", name)]
    if wanted in names or _canonical(wanted):
        found = [wanted]
    elif versions:
        found = versions[-1:]
    else:
        found = get_close_matches(wanted, names, n=2, cutoff=0.8)
    full = [
        f"{name}{end}"
        for name in found
        for end in (("-only", "-or-later") if _GNU.fullmatch(name) else ("",))
    ]
    return [str(_canonical(name)) for name in full]
