"""The project file ``hgld.yaml``: the words, the taxonomy and the decisions of a list, for all commands.

::

    entity: cheese
    entities: cheeses
    taxonomy: taxonomy.csv
    decisions: decisions/final.csv
    irrelevant: irrelevant.csv
    counts: true

Commands look for the file in the folder of their table, then in the folders above. Paths in the file are relative to
its folder. ``hgld labels``, and ``hgld scrape`` of lists other than GLDv2's, write the file. Commands add a taxonomy
and final decisions to a file that lacks these entries. People may edit the file, and options of a command take
precedence.

Tables of GLDv2 need no project file: the default is the bundled taxonomy, decisions and irrelevant labels. Other
lists have no such default.
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

#: One or several words on one line for the things of a list.
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
        entities: Word for several things of the list. Default: the regular plural.
        taxonomy: CSV file of groups and the levels above them.
        decisions: CSV file of the final decisions on labels.
        irrelevant: CSV file of uninformative labels.
        counts: Whether the list has a column of counts (``hgld labels --count``); tables of labels have the sums.
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
    """Return the regular plural of a word.

    >>> plural("cheese"), plural("entity"), plural("berry"), plural("toy")
    ('cheeses', 'entities', 'berries', 'toys')
    """
    if re.search("[^aeiou]y$", entity):
        return f"{entity[:-1]}ies"
    return f"{entity}s"


def find_project_file(near: Path) -> Path | None:
    """Return the nearest project file in the folder of a file or above; None if it is missing."""
    for folder in near.absolute().parents:
        if (folder / PROJECT_FILE).is_file():
            return _short(folder / PROJECT_FILE)
    return None


def _short(path: Path) -> Path:
    """Return a normalised path, relative to the working directory if it is below that directory."""
    path = Path(os.path.normpath(path.absolute()))
    if path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd())
    return path


def read_project(near: Path) -> Project:
    """Return the content of the project file of a table, or the defaults without a project file.

    Paths in the content are relative to the folder of the project file.

    Raises:
        InputError: The file cannot be read as YAML.
        ConfigurationError: The file has an unknown key, or a value of another type.
    """
    path = find_project_file(near)
    if path is None:
        return Project()
    return read_settings(Project, path)


def project_file_of(role: Role, near: Path) -> Path | None:
    """Return the file of a role in the project of a table; the default for GLDv2's tables is the bundled file.

    Args:
        role: Kind of the file.
        near: Table, or another file such as a store of decisions, which may be missing.

    Returns:
        Path of the file; None for another list whose project has no such entry.

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
    if near.suffix == ".parquet" and near.is_file():
        is_of_gldv2 = not is_neutral(near)
    else:
        is_of_gldv2 = project is None
    return annotation_file(_PACKAGED[role]) if is_of_gldv2 else None


def clusters_of_project(near: Path) -> Path | None:
    """Return clusters.parquet beside the project file of a file; None if either file is missing."""
    project = find_project_file(near)
    if project is None:
        return None
    clusters = project.with_name("clusters.parquet")
    return clusters if clusters.is_file() else None


def nouns_of(table: Path) -> tuple[str, str]:
    """Return the words for one and for several things of a table: landmark, or the words of its project.

    A row of a list is a thing, such as a cheese. If the list has a column of counts, the numbers in tables of labels
    are sums of counts, such as counted cheeses.
    """
    if not table.is_file() or not is_neutral(table):
        return nouns(neutral=False)
    project = read_project(table)
    if project.counts and table_name(table) in (CLUSTERS.name, LABEL_EMBEDDINGS.name):
        return counted_words(project.nouns)
    return project.nouns


def counted_words(words: tuple[str, str]) -> tuple[str, str]:
    """Return the words for one and for several counted things.

    >>> counted_words(("cheese", "cheeses"))
    ('counted cheese', 'counted cheeses')
    """
    entity, entities = words
    return f"counted {entity}", f"counted {entities}"


def words_of_list(
    near: Path, entity: str | None = None, entities: str | None = None
) -> tuple[str, str]:
    """Return the words for one and for several things of a list, from the arguments or the project file.

    Args:
        near: Table of a list other than GLDv2's, which may be missing.
        entity: Word for one thing of the list. Default: the word in the project file, or "entity".
        entities: Word for several things. Default: the word in the project file, or the regular plural.

    Raises:
        ConfigurationError: The folder of the table has a project file with other words, only the word for several
            things is given, or a word is empty, has several lines, or white space around it.
    """
    if entity is None and entities is not None:
        raise ConfigurationError("`entities` needs `entity`, the word for one of them")
    project_words = read_project(near).nouns
    if entity is None:
        return project_words
    for name, word in {"entity": entity, "entities": entities}.items():
        is_word = word is None or re.fullmatch(_WORD, word) is not None
        require(is_word, "a word on one line, without white space around it", **{name: repr(word)})
    words = (entity, entities or plural(entity))
    path = near.with_name(PROJECT_FILE)
    if path.is_file() and words != project_words:
        raise ConfigurationError(
            f'`entity` is "{entity}", but {path} says entity: {project_words[0]} and entities: {project_words[1]}; '
            "edit that file, or write the tables of another list to a folder of its own"
        )
    return words


def create_project(
    near: Path, entity: str, entities: str, *, counts: bool | None = None
) -> Path | None:
    """Write a project file beside a table, unless its project file already has these words.

    Args:
        near: Table of the list.
        entity: Word for one thing of the list.
        entities: Word for several things of the list.
        counts: Whether the list has a column of counts; also changed in an existing file. Default: unknown.

    Returns:
        Path of the new file; None if the project file already has these words.
    """
    present = find_project_file(near)
    if present is not None:
        project = read_project(near)
        if project.nouns == (entity, entities):
            if counts is not None and counts != project.counts:
                _note_counts(present, counts)
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
    """Add a key to the end of a project file; raise a ConfigurationError if the result is invalid."""
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
    """Add a file to the project of a table, if the project has no file of this role.

    Returns:
        Path of the changed project file; None without a project file, or if it already names this file.

    Raises:
        ConfigurationError: The project names another file, or its project file cannot be changed.
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
