"""The facts of a release that hgld cannot know: ``release.yaml``, and the questions that ask for them."""

from __future__ import annotations

import datetime
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from hgld import tables
from hgld.errors import InputError
from hgld.hierarchy.build_inputs import find_annotations
from hgld.hierarchy.tree import GROUP
from hgld.io.columns import read_columns
from hgld.io.files import atomic_write
from hgld.io.markdown import in_words
from hgld.io.settings import Settings, settings_help
from hgld.resources import subset_file
from hgld.taxonomy.decisions import read_named_decisions
from hgld.taxonomy.groups import read_taxonomy

#: Answers for a release of GLDv2's landmarks.
_GLDV2 = Path(__file__).parents[1] / "templates" / "release" / "gldv2.yaml"
#: Questions whose answers are texts of any length.
_TEXTS = (
    "description", "source", "ids", "images", "purpose", "funding", "annotators", "ethics", "uses", "maintenance"
)  # fmt: skip
#: Longest line of the file of questions.
_WIDTH = 100


def _matching(pattern: str, expected: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f'expected {expected}, found "{text}"')
        return text

    return AfterValidator(check)


_Answer = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class ReleaseSettings(Settings):
    """What a release has to say and hgld cannot know. Texts may be Markdown, but for the name.

    Args:
        name: What is the dataset called?
        entity: What is one thing of the list called, such as painting?
        entities: What are several of them called? By default the same with an s.
        version: Which version is it? Three numbers such as 1.0.0.
        description: What does it hold, in a sentence or two?
        creators: Who made it? A list of people.
        licence: Under which licence is it published? An identifier of https://spdx.org/licenses, such as CC-BY-4.0.
        url: At which address is it published?
        date: On which day is it published? By default the day of the last decision.
        keywords: By which words should it be found? A list.
        source: Where is the list from, and under which licence?
        ids: What does an id mean, and in which other files does it stand?
        images: How does one get images, and under which licences are they?
        purpose: For what purpose was the dataset made?
        funding: Who funded it?
        annotators: Who decided on the labels, how were they found, and how were they paid?
        ethics: Was there an ethical review, and what came of it?
        uses: What has it been used for?
        maintenance: Who maintains it, how are they reached, and will there be further versions?
        citation: What should its users cite, besides the paper on the procedure? BibTeX.
        raw: Are all scraped values and the removed rows published, too? true or false.
    """

    name: Annotated[_Answer, _matching(".*", "one line")]
    entity: Annotated[_Answer, _matching(".*", "one line")] | None = None
    entities: Annotated[_Answer, _matching(".*", "one line")] | None = None
    version: Annotated[str, _matching(r"\d+\.\d+\.\d+", "three numbers such as 1.0.0")] = "1.0.0"
    description: _Answer
    creators: Annotated[list[_Answer], Field(min_length=1)]
    licence: Annotated[str, _matching(r"[\w.+-]+", "an identifier of SPDX such as CC-BY-4.0")]
    url: Annotated[str, _matching(r"https?://\S+", "an address that begins with https://")] | None = None
    date: datetime.date | None = None
    keywords: tuple[_Answer, ...] = ()
    source: _Answer | None = None
    ids: _Answer
    images: _Answer | None = None
    purpose: _Answer | None = None
    funding: _Answer | None = None
    annotators: _Answer | None = None
    ethics: _Answer | None = None
    uses: _Answer | None = None
    maintenance: _Answer | None = None
    citation: _Answer | None = None
    raw: bool = False

    @model_validator(mode="before")
    @classmethod
    def _require_answers(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if value not in (None, "")}

    @property
    def licence_url(self) -> str:
        """Address of the licence's text."""
        return f"https://spdx.org/licenses/{self.licence}.html"


#: Asks a question of which the second argument is the answer if nothing else is said, and returns the answer.
Ask = Callable[[str, str], str]
#: Questions that ``--init`` asks; those of the datasheet are in the file only.
_ASKED = ("name", "entity", "entities", "version", "description", "creators", "licence", "ids", "images", "url")


def suggested(_: str, suggestion: str) -> str:
    """Answer any question as suggested."""
    return suggestion


def write_questions(hierarchy: Path, path: Path, ask: Ask = suggested) -> None:
    """Write the questions of ``release.yaml``, with answers that follow from a hierarchy or are given.

    Raises:
        InputError: The file exists, or the hierarchy cannot be read.
    """
    if path.exists():
        raise InputError(f"{path} exists; edit it, or move it away to begin anew")
    answers, questions = _known_answers(hierarchy), settings_help(ReleaseSettings)
    for name in _ASKED:
        known = answers.get(name) or ""
        if name == "entities":
            known = "entities" if answers["entity"] == "entity" else f"{answers['entity']}s"
        answer = ask(questions[name], ", ".join(known) if isinstance(known, list) else known)
        answers[name] = [each.strip() for each in answer.split(",")] if name == "creators" else answer
    lines = ["# Facts of the release. Answer what you can, texts indented below their key; then run hgld release."]
    for name, question in questions.items():
        comment = textwrap.wrap(question, _WIDTH, break_on_hyphens=False)
        lines += ["", *(f"# {line}" for line in comment), *_entry(name, answers.get(name))]
    with atomic_write(path) as draft:
        draft.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _known_answers(hierarchy: Path) -> dict[str, Any]:
    rows = tables.read_table(hierarchy, tables.HIERARCHY)
    levels = tables.level_columns(rows.column_names)
    is_neutral = GROUP not in levels
    names = in_words(levels) if is_neutral else "group and root"
    kind = "whole number" if rows.schema.field("landmark_id").type == pa.int64() else "text"
    answers: dict[str, Any] = {
        "name": hierarchy.absolute().parent.name if hierarchy.stem == "hierarchy" else hierarchy.stem,
        "entity": "entity" if is_neutral else "landmark",
        "version": "1.0.0",
        "description": f"{len(rows):,} labelled entries of a list, each with its {names}.",
        "creators": ["unknown"],
        "licence": "CC-BY-4.0",
        "ids": f"The id of the list, a {kind}.",
    }
    if _is_gldv2(rows):
        answers |= yaml.safe_load(_GLDV2.read_text(encoding="utf-8"))
    found = find_annotations(hierarchy)
    if found.keys() >= {"decisions", "taxonomy"}:
        decisions = read_named_decisions(found["decisions"], read_taxonomy(found["taxonomy"]))
        if people := sorted({name for row in decisions for name in row.people}):
            answers["creators"] = people
    else:
        answers["date"] = datetime.date.today()
    return answers


def _is_gldv2(landmarks: pa.Table) -> bool:
    """Return whether the table has landmarks of GLDv2 that hgld knows, all with the category that they have there."""
    known = read_columns(subset_file("washington/train_label_to_category.csv"), ["landmark_id", "category"])
    categories = dict(zip(*(column.to_pylist() for column in known.columns), strict=True))
    train = landmarks.filter(pc.equal(landmarks["split"], "train"))
    rows = zip(*(train[name].to_pylist() for name in ("landmark_id", "category")), strict=True)
    same = [categories[number] == category for number, category in rows if number in categories]
    return bool(same) and all(same)


def _entry(name: str, answer: Any) -> list[str]:
    """Return the lines of one key: texts as blocks, in which colons and quotes need no escape."""
    field = ReleaseSettings.model_fields[name]
    if isinstance(answer, str) and "\n" in answer:
        return [f"{name}: |", textwrap.indent(answer.rstrip(), "  ")]
    if name in _TEXTS:
        return [f"{name}: >-", *(f"  {line}" for line in textwrap.wrap(answer or "", _WIDTH))]
    value = answer or (None if field.is_required() else field.default)
    return [f"{name}:" if value is None else yaml.safe_dump({name: value}, allow_unicode=True).rstrip()]
