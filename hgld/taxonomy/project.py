"""The project file ``hgld.yaml``: what the tables of a list are about, so that commands need not be told again.

::

    entity: cheese
    entities: cheeses
    taxonomy: taxonomy.csv
    decisions: decisions/final.csv
    irrelevant: irrelevant.csv
    counts: true

Commands look for the file in the folder of the table that they read, then in the folders above it. Its paths are
relative to its own folder. ``hgld labels``, and ``hgld scrape`` of lists other than GLDv2's, write the file. A
taxonomy and final decisions are added when a command writes or gets them and the file names none. Anybody may edit
it, and the options of a command come first.

Tables of GLDv2 need no such file: without one, the taxonomy, the decisions and the irrelevant labels that come with
hgld count. These are not used for other lists.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import StringConstraints

from hgld.errors import ConfigurationError, require
from hgld.io.files import write_text
from hgld.io.settings import Settings, read_settings
from hgld.resources import annotation_file
from hgld.tables import CLUSTERS, LABEL_EMBEDDINGS, is_neutral, nouns, table_name

PROJECT_FILE = "hgld.yaml"
_HEADER = "# What the tables in this folder and below are about; options of commands come first.\n"

#: A word for the things of a list, or several on one line.
_WORD = r"^\S([^\n]*\S)?$"
Word = Annotated[str, StringConstraints(pattern=_WORD)]
#: Kinds of files that a project names.
Role = Literal["taxonomy", "decisions", "irrelevant"]
_PACKAGED: dict[Role, str] = {
    "taxonomy": "taxonomy.csv",
    "decisions": "decisions/final.csv",
    "irrelevant": "irrelevant_labels.csv",
}


class Project(Settings):
    """Content of a project file.

    Args:
        entity: Word for one thing of the list, such as painting.
        entities: Word for several of them. Default: the regular plural.
        taxonomy: CSV file of groups and the levels above them.
        decisions: CSV file of the final decisions on labels.
        irrelevant: CSV file of labels that say nothing.
        counts: Whether the list has a column of counts (``hgld labels --count``), which tables of labels add up.
    """

    entity: Word = "entity"
    entities: Word | None = None
    taxonomy: Path | None = None
    decisions: Path | None = None
    irrelevant: Path | None = None
    counts: bool = False

    @property
    def nouns(self) -> tuple[str, str]:
        """The words for one and for several things of the list."""
        return self.entity, self.entities or plural(self.entity)


def plural(entity: str) -> str:
    """Return the usual word for several things, given that for one.

    >>> plural("cheese"), plural("entity"), plural("berry"), plural("toy")
    ('cheeses', 'entities', 'berries', 'toys')
    """
    if re.search("[^aeiou]y$", entity):
        return f"{entity[:-1]}ies"
    return f"{entity}s"


def find_project_file(near: Path) -> Path | None:
    """Return the project file in the folder of a file, or in the next folder above it that has one."""
    for folder in near.absolute().parents:
        if (folder / PROJECT_FILE).is_file():
            return _short(folder / PROJECT_FILE)
    return None


def _short(path: Path) -> Path:
    """Return a path relative to the working directory, if it is below it."""
    path = Path(os.path.normpath(path.absolute()))
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def read_project(near: Path) -> Project:
    """Return the content of the project file of a table, or the defaults if there is none.

    Its paths are relative to the folder of the file.

    Raises:
        InputError: The file cannot be read as YAML.
        ConfigurationError: The file has an unknown key, or a value of another type.
    """
    path = find_project_file(near)
    return Project() if path is None else read_settings(Project, path)


def project_file_of(role: Role, near: Path) -> Path | None:
    """Return the file of a role that the project of a table names; for GLDv2's tables, else the one in hgld.

    Args:
        role: Kind of the file.
        near: Table, or another file such as a store of decisions; it need not exist.

    Returns:
        Path of the file; None for a list of other entities whose project names none.

    Raises:
        ConfigurationError: The project file is invalid, or names a file that does not exist.
    """
    project = find_project_file(near)
    if project is not None:
        named: Path | None = getattr(read_project(near), role)
        if named is not None:
            path = _short(project.parent / named)
            if not path.is_file():
                raise ConfigurationError(
                    f"{project}: {role}: {path}: no such file; correct it, or give `{role}`"
                )
            return path
    is_table = near.suffix == ".parquet" and near.is_file()
    is_of_gldv2 = not is_neutral(near) if is_table else project is None
    return annotation_file(_PACKAGED[role]) if is_of_gldv2 else None


def clusters_of_project(near: Path) -> Path | None:
    """Return clusters.parquet beside the project file of a file, such as of decisions; None if one is missing."""
    project = find_project_file(near)
    if project is None:
        return None
    clusters = project.with_name("clusters.parquet")
    return clusters if clusters.is_file() else None


def nouns_of(table: Path) -> tuple[str, str]:
    """Return the words for one and for several things of a table: landmarks, or those of its project.

    A row of a list is a thing, such as a cheese. If the list has a column of counts, the numbers in tables of labels
    are sums of these, of counted cheeses.
    """
    if not table.is_file() or not is_neutral(table):
        return nouns(neutral=False)
    project = read_project(table)
    if project.counts and table_name(table) in (CLUSTERS.name, LABEL_EMBEDDINGS.name):
        return counted_words(project.nouns)
    return project.nouns


def counted_words(words: tuple[str, str]) -> tuple[str, str]:
    """Return the words for what a column of counts adds up.

    >>> counted_words(("cheese", "cheeses"))
    ('counted cheese', 'counted cheeses')
    """
    entity, entities = words
    return f"counted {entity}", f"counted {entities}"


def words_of_list(
    near: Path, entity: str | None = None, entities: str | None = None
) -> tuple[str, str]:
    """Return the words for one and for several things of a list, as they are given or in its project file.

    Args:
        near: Table of a list other than GLDv2's, which need not exist.
        entity: Word for one thing of the list. Default: that of the project file, else entity.
        entities: Word for several of them. Default: that of the project file, else the regular plural.

    Raises:
        ConfigurationError: The folder of the table has a project file with other words, only the word for several
            things is given, or a word is empty, has several lines, or white space around it.
    """
    if entity is None and entities is not None:
        raise ConfigurationError("`entities` needs `entity`, the word for one of them")
    known = read_project(near).nouns
    if entity is None:
        return known
    for name, word in {"entity": entity, "entities": entities}.items():
        is_word = word is None or re.fullmatch(_WORD, word) is not None
        require(is_word, "a word on one line, without white space around it", **{name: repr(word)})
    words = (entity, entities or plural(entity))
    path = near.with_name(PROJECT_FILE)
    if path.is_file() and words != known:
        raise ConfigurationError(
            f'`entity` is "{entity}", but {path} says entity: {known[0]} and entities: {known[1]}; '
            "edit that file, or write the tables of another list to a folder of its own"
        )
    return words


def create_project(
    near: Path, entity: str, entities: str, *, counts: bool | None = None
) -> Path | None:
    """Write a project file beside a table, unless its folder or one above it has one with these words.

    Args:
        near: Table of the list.
        entity: Word for one thing of the list.
        entities: Word for several of them.
        counts: Whether the list has a column of counts, which is noted in an existing file, too. Default: unknown.

    Returns:
        Path of the file; None if there was one.
    """
    known = find_project_file(near)
    if known is not None:
        project = read_project(near)
        if project.nouns == (entity, entities):
            if counts is not None and counts != project.counts:
                _note_counts(known, counts)
            return None
    path = near.with_name(PROJECT_FILE)
    content: dict[str, str | bool] = {"entity": entity, "entities": entities}
    if counts:
        content["counts"] = True
    write_text(path, _HEADER + yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    return path


def _note_counts(path: Path, counts: bool) -> None:
    """Add ``counts: true`` to a project file, or remove it."""
    if counts:
        _append(path, "counts", True)
    else:
        text = path.read_text(encoding="utf-8")
        write_text(path, re.sub("^counts:.*\n?", "", text, flags=re.MULTILINE))


def _append(path: Path, key: str, value: str | bool) -> None:
    """Add a key to the end of a project file, or raise a ConfigurationError if its last line does not allow it."""
    entry = yaml.safe_dump({key: value}, allow_unicode=True)
    text = path.read_text(encoding="utf-8")
    changed = f"{text.rstrip()}\n{entry}"
    try:
        is_added = yaml.safe_load(changed) == {**yaml.safe_load(text), key: value}
    except yaml.YAMLError:
        is_added = False
    if not is_added:
        raise ConfigurationError(
            f"{path}: nothing can be added at its end; write {entry.strip()} into it"
        )
    write_text(path, changed)


def remember_in_project(near: Path, role: Role, file: Path) -> Path | None:
    """Add a file to the project of a table that names none of this role yet.

    Returns:
        Path of the project file that was changed; None if there is none, or it names this file already.

    Raises:
        ConfigurationError: The project names another file, or nothing can be added to it.
    """
    path = find_project_file(near)
    if path is None:
        return None
    named = getattr(read_project(near), role)
    if named is not None:
        if (path.parent / named).resolve() != file.resolve():
            raise ConfigurationError(
                f"{path} keeps {role}: {named}; edit it if {file} is to be used from now on"
            )
        return None
    _append(path, role, Path(os.path.relpath(file, path.parent)).as_posix())
    return path
