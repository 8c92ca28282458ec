"""The form in which names, labels and ids are stored: composed Unicode, without characters that nobody sees."""

from __future__ import annotations

import re
import unicodedata

#: Characters that Unicode tells every program to ignore in a comparison (``Default_Ignorable_Code_Point``): soft
#: hyphens, spaces of no width, joiners, direction marks and variation selectors. Tags are left out, as they
#: distinguish the flags of regions.
_INVISIBLE = (
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0100-\U000e01ef]"
)
#: Joiners and selectors that change how the characters beside them are drawn: Persian, the scripts of India and emoji
#: are spelt with them.
_JOINERS = "(?<=[^\u0000-\u058f\\s])(?P<joiners>[\u180b-\u180d\u200c\u200d\ufe00-\ufe0f]+)(?=[^\u0000-\u058f\\s])"
_ANY_INVISIBLE = re.compile(_INVISIBLE)
_INVISIBLE_OR_JOINERS = re.compile(f"{_JOINERS}|{_INVISIBLE}")


def without_invisible(text: str) -> str:
    r"""Return a text without characters that take no space.

    >>> without_invisible("water\u00adfall\u200b")
    'waterfall'
    """
    return _ANY_INVISIBLE.sub("", text)


def stored_name(name: str) -> str:
    r"""Return a name in the form in which tables hold it.

    The form is NFC, with single spaces for white space and without invisible characters, but for joiners that belong
    to the spelling of a script.

    >>> stored_name("Cha\u0302teau\u00a0 d'Eau\u200b") == "Ch\u00e2teau d'Eau"
    True
    """
    visible = _INVISIBLE_OR_JOINERS.sub(lambda match: match["joiners"] or "", name)
    return " ".join(unicodedata.normalize("NFC", visible).split())


def stored_id(text: str) -> str:
    r"""Return an id in the form in which tables hold it, NFC: file systems of macOS decompose letters with accents.

    >>> stored_id("cha\u0302teau-1") == "ch\u00e2teau-1"
    True
    """
    return unicodedata.normalize("NFC", text)
