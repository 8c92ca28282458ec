"""Read the cells of a spreadsheet as text, .xlsx or .ods, whatever the file is called."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from pathlib import Path
from xml.parsers.expat import ExpatError
from zipfile import BadZipFile

from hgld.errors import InputError
from hgld.review.sheets.archive import SAVE_AS, open_archive
from hgld.review.sheets.cells import SheetCells
from hgld.review.sheets.ods import read_ods
from hgld.review.sheets.xlsx import read_xlsx


def read_spreadsheet(path: Path, names: Collection[str]) -> dict[str, SheetCells]:
    """Return the sheets of a .xlsx or .ods file with one of the names.

    Raises:
        InputError: The file cannot be read, is encrypted, or is larger than any review sheet.
    """
    with open_archive(path) as archive:
        members = archive.NameToInfo
        if "xl/workbook.xml" not in members and "content.xml" not in members:
            raise InputError(f"{path}: not a workbook that can be read; {SAVE_AS}")
        read = read_xlsx if "xl/workbook.xml" in members else read_ods
        try:
            return read(archive, names)
        except (BadZipFile, zlib.error, EOFError) as error:
            raise InputError(f"{path}: damaged, perhaps cut off; copy it again ({error})") from error
        except (ExpatError, LookupError, ValueError, OverflowError) as error:
            raise InputError(f"{path}: not a readable workbook ({error})") from error
