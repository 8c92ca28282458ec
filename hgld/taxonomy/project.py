"""The project file ``hgld.yaml``: what the tables of a list are about, so that commands need not be told again.

::

    entity: cheese
    entities: cheeses
    taxonomy: taxonomy.csv
    decisions: decisions/final.csv
    irrelevant: irrelevant.csv

Commands look for the file in the folder of the table that they read, then in the folders above it. Its paths are
relative to its own folder. ``hgld labels``, and ``hgld scrape`` of lists other than GLDv2's, write the file. A
taxonomy and final decisions are added when a command writes or gets them and the file names none. Anybody may edit
it, and the options of a command come first.

Tables of GLDv2 need no such file: without one, the taxonomy, the decisions and the irrelevant labels that come with
hgld count. These are not used for other lists.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import yaml

from hgld.errors import ConfigurationError
from hgld.io.files import write_text
from hgld.io.settings import Settings, read_settings
from hgld.resources import annotation_file
from hgld.tables import is_neutral

PROJECT_FILE = "hgld.yaml"
_HEADER = "# What the tables in this folder and below are about; options of commands come first.\n"

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
        entities: Word for several of them.
        taxonomy: CSV file of groups and the levels above them.
        decisions: CSV file of the final decisions on labels.
        irrelevant: CSV file of labels that say nothing.
    """

    entity: str = "entity"
    entities: str = "entities"
    taxonomy: Path | None = None
    decisions: Path | None = None
    irrelevant: Path | None = None


def find_project_file(near: Path) -> Path | None:
    """Return the project file in the folder of a file, or in the next folder above it that has one."""
    for folder in near.absolute().parents:
        if (folder / PROJECT_FILE).is_file():
            return Path(os.path.relpath(folder / PROJECT_FILE))
    return None


def read_project(near: Path) -> Project:
    """Return the content of the project file of a table, with paths that may be opened; defaults if there is none.

    Raises:
        InputError: The file cannot be read as YAML.
        ConfigurationError: The file has an unknown key, or a value of another type.
    """
    path = find_project_file(near)
    return Project() if path is None else read_settings(Project, path)


def project_file_of(role: Role, near: Path) -> Path | None:
    """Return the file of a role that the project of a table names; for GLDv2's tables, else the one in hgld.

    Returns:
        Path of the file; None for a list of other entities whose project names none.
    """
    project = find_project_file(near)
    if project is not None:
        named: Path | None = getattr(read_project(near), role)
        if named is not None:
            return Path(os.path.relpath(project.parent / named))
    if near.is_file() and is_neutral(near):
        return None
    return annotation_file(_PACKAGED[role])


def nouns_of(table: Path) -> tuple[str, str]:
    """Return the words for one and for several things of a table: landmarks, or those of its project."""
    if not is_neutral(table):
        return "landmark", "landmarks"
    project = read_project(table)
    return project.entity, project.entities


def words_of_list(near: Path, entity: str | None = None, entities: str | None = None) -> tuple[str, str]:
    """Return the words for one and for several things of a list, as they are given or in its project file.

    Args:
        near: Table of a list other than GLDv2's, which need not exist.
        entity: Word for one thing of the list. Default: that of the project file, else entity.
        entities: Word for several of them. Default: that of the project file, else the first word with an s.

    Raises:
        ConfigurationError: The folder of the table has a project file with other words.
    """
    project = read_project(near)
    if entity is None:
        return project.entity, entities or project.entities
    words = (entity, entities or f"{entity}s")
    path = near.with_name(PROJECT_FILE)
    if path.is_file() and words != (project.entity, project.entities):
        raise ConfigurationError(
            f'`entity` is "{entity}", but {path} says entity: {project.entity} and entities: {project.entities}; '
            "edit that file, or write the tables of another list to a folder of its own"
        )
    return words


def create_project(near: Path, entity: str, entities: str) -> Path | None:
    """Write a project file beside a table, unless its folder or one above it has one with these words.

    Returns:
        Path of the file; None if there was one.
    """
    project = read_project(near)
    if find_project_file(near) is not None and (project.entity, project.entities) == (entity, entities):
        return None
    path = near.with_name(PROJECT_FILE)
    words = {"entity": entity, "entities": entities}
    write_text(path, _HEADER + yaml.safe_dump(words, sort_keys=False, allow_unicode=True))
    return path


def remember_in_project(near: Path, role: Role, file: Path) -> Path | None:
    """Add a file to the project of a table that names none of this role yet.

    Returns:
        Path of the project file that was changed; None if nothing was added.
    """
    path = find_project_file(near)
    if path is None or getattr(read_project(near), role) is not None:
        return None
    relative = Path(os.path.relpath(file, path.parent)).as_posix()
    entry = yaml.safe_dump({role: relative}, allow_unicode=True)
    text = path.read_text(encoding="utf-8")
    write_text(path, f"{text.rstrip()}\n{entry}")
    return path
