"""Convert between licence identifiers of SPDX and of the Hugging Face hub.

SPDX is the list at https://spdx.org/licenses. The hub knows fewer licences than SPDX, and has other
identifiers for some licences. Cards with a licence that the hub does not know say ``other``, with
the name and the address of the licence (https://huggingface.co/docs/hub/repositories-licenses).
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

#: Identifiers of the hub, without licences of single models, families of licences, and "other".
HUB_LICENCES = frozenset((
    "afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear",
    "bsl-1.0", "c-uda", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0",
    "cc-by-nc-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0",
    "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "cdla-permissive-1.0",
    "cdla-permissive-2.0", "cdla-sharing-1.0", "ecl-2.0", "epl-1.0", "epl-2.0", "etalab-2.0", "eupl-1.1",
    "gfdl", "gpl", "gpl-2.0", "gpl-3.0", "isc", "lgpl", "lgpl-2.1", "lgpl-3.0", "lppl-1.3c", "mit", "mpl-2.0",
    "ms-pl", "ncsa", "odbl", "odc-by", "ofl-1.1", "osl-3.0", "pddl", "postgresql", "unlicense", "wtfpl", "zlib"
))  # fmt: skip
#: SPDX identifiers by the identifier of the hub where the two differ; without ``-only``,
#: ``-or-later``.
_SPDX_BY_HUB = {
    "c-uda": "c-uda-1.0",
    "gfdl": "gfdl-1.3",
    "gpl": "gpl-1.0",
    "lgpl": "lgpl-2.0",
    "odbl": "odbl-1.0",
    "odc-by": "odc-by-1.0",
    "pddl": "pddl-1.0",
}
#: Licences of GNU, whose SPDX identifiers all end in ``-only`` or ``-or-later``.
_GNU = re.compile(r"(?:[al]?gpl|gfdl)-[\d.]+", re.IGNORECASE)


def spdx_licence(text: str) -> str:
    """Return an SPDX identifier in its official spelling.

    Raises:
        ValueError: SPDX has no licence of this identifier; the message names similar identifiers.

    >>> spdx_licence("cc-by-4.0")
    'CC-BY-4.0'
    """
    licence = _canonical(text)
    if licence is not None and not _GNU.fullmatch(licence):
        return licence
    similar = _similar_identifiers(text)
    question = f"; did you mean {' or '.join(similar)}?" if similar else ""
    raise ValueError(f'expected an identifier of SPDX such as CC-BY-4.0, found "{text}"{question}')


def licence_url(licence: str) -> str:
    """Return the address of a licence's text, given its SPDX identifier."""
    return f"https://spdx.org/licenses/{licence}.html"


def hub_fields(licence: str) -> dict[str, str]:
    """Return the licence fields of a card on the hub, given an SPDX identifier.

    >>> hub_fields("ODbL-1.0"), hub_fields("LGPL-3.0-or-later")
    ({'license': 'odbl'}, {'license': 'lgpl-3.0'})
    >>> hub_fields("CC-BY-1.0")["license"], hub_fields("CC-BY-1.0")["license_name"]
    ('other', 'cc-by-1.0')
    """
    name = licence.lower()
    base = name.removesuffix("-only").removesuffix("-or-later")
    if base.startswith("gfdl-"):
        base = "gfdl"
    for hub_identifier, spdx_identifier in _SPDX_BY_HUB.items():
        if base == spdx_identifier:
            base = hub_identifier
    if base in HUB_LICENCES:
        return {"license": base}
    return {"license": "other", "license_name": name, "license_link": licence_url(licence)}


def model_fields(text: str) -> dict[str, str]:
    """Return the licence fields of a model card, given an identifier of the hub or of SPDX.

    An identifier that resembles no known licence is kept: the hub has identifiers for single
    models.

    Raises:
        ValueError: The identifier resembles an SPDX identifier, but is not valid.

    >>> model_fields("gpl-3.0"), model_fields("Apache-2.0"), model_fields("gemma")
    ({'license': 'gpl-3.0'}, {'license': 'apache-2.0'}, {'license': 'gemma'})
    """
    if text in HUB_LICENCES or not (_canonical(text) or _similar_identifiers(text)):
        return {"license": text}
    return hub_fields(spdx_licence(text))


def _canonical(text: str) -> str | None:
    """Return an SPDX identifier in its official spelling; None for other texts and for expressions."""
    try:
        licence = canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return None
    is_expression = re.fullmatch(r"[\w.-]+", licence) is None
    if is_expression or licence.startswith("LicenseRef-"):
        return None
    return licence


def _similar_identifiers(text: str) -> list[str]:
    """Return SPDX identifiers that a text may stand for.

    >>> _similar_identifiers("CC-BY"), _similar_identifiers("odbl"), _similar_identifiers("cc by 4.0")
    (['CC-BY-4.0'], ['ODbL-1.0'], ['CC-BY-4.0'])
    >>> _similar_identifiers("gpl-3.0"), _similar_identifiers("nonsense")
    (['GPL-3.0-only', 'GPL-3.0-or-later'], [])
    """
    wanted = re.sub(r"[\s_]+", "-", text.strip().lower())
    names = sorted((HUB_LICENCES - _SPDX_BY_HUB.keys()).union(_SPDX_BY_HUB.values()))
    versions = [name for name in names if re.fullmatch(re.escape(wanted) + r"-[\d.]+", name)]
    if wanted in names or _canonical(wanted):
        similar = [wanted]
    elif versions:
        similar = versions[-1:]
    else:
        similar = get_close_matches(wanted, names, n=2, cutoff=0.8)
    identifiers = []
    for name in similar:
        endings = ("-only", "-or-later") if _GNU.fullmatch(name) else ("",)
        for ending in endings:
            identifiers.append(str(_canonical(name + ending)))
    return identifiers
