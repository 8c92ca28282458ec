"""The facts of a release that hgld cannot know: ``release.yaml``, and the questions that ask for them."""

from __future__ import annotations

import datetime
import re
import textwrap
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from hgld import tables
from hgld.errors import InputError
from hgld.hierarchy.build_inputs import find_annotations
from hgld.io.columns import read_columns
from hgld.io.files import atomic_write
from hgld.io.settings import Settings, settings_help
from hgld.resources import subset_file
from hgld.taxonomy.decisions import read_named_decisions
from hgld.taxonomy.groups import read_taxonomy

#: Answers for a release of GLDv2's landmarks.
_GLDV2 = Path(__file__).parents[1] / "templates" / "release" / "gldv2.yaml"
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
        version: Which version is it? Three numbers such as 1.0.0.
        description: What does it hold, in a sentence or two?
        creators: Who made it? A list of people.
        licence: Under which licence is it published? An identifier of https://spdx.org/licenses, such as CC-BY-4.0.
        url: At which address is it published?
        date: On which day is it published? By default the day of the last decision.
        keywords: By which words should it be found? A list.
        source: Where is the list of landmarks from, and under which licence?
        ids: What does a landmark_id number, and in which other files does it stand?
        images: How does one get photographs of the landmarks, and under which licences are they?
        purpose: For what purpose was the dataset made?
        funding: Who funded it?
        annotators: Who decided on the labels, how were they found, and how were they paid?
        ethics: Was there an ethical review, and what came of it?
        uses: What has it been used for?
        maintenance: Who maintains it, how are they reached, and will there be further versions?
        citation: What should its users cite, besides the paper on the procedure? BibTeX.
        raw: Are the scraped values of all landmarks and the removed landmarks published, too? true or false.
    """

    name: Annotated[_Answer, _matching(".*", "one line")]
    version: Annotated[str, _matching(r"\d+\.\d+\.\d+", "three numbers such as 1.0.0")] = "1.0.0"
    description: _Answer
    creators: Annotated[list[_Answer], Field(min_length=1)]
    licence: Annotated[str, _matching(r"[\w.+-]+", "an identifier of SPDX such as CC-BY-4.0")]
    url: Annotated[str, _matching(r"https?://\S+", "an address that begins with https://")]
    date: datetime.date | None = None
    keywords: tuple[_Answer, ...] = ()
    source: _Answer
    ids: _Answer
    images: _Answer
    purpose: _Answer
    funding: _Answer
    annotators: _Answer
    ethics: _Answer
    uses: _Answer
    maintenance: _Answer
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


def write_questions(hierarchy: Path, path: Path) -> None:
    """Write the questions of ``release.yaml``, with the answers that follow from a hierarchy.

    Args:
        hierarchy: Table from ``hgld build``.
        path: File to write.

    Raises:
        InputError: The file exists, or the hierarchy cannot be read.
    """
    if path.exists():
        raise InputError(f"{path} exists; edit it, or move it away to begin anew")
    answers = _known_answers(hierarchy)
    lines = ["# Facts of the release. Answer every question, texts indented below their key; then run hgld release."]
    for name, question in settings_help(ReleaseSettings).items():
        comment = textwrap.wrap(question, _WIDTH, break_on_hyphens=False)
        lines += ["", *(f"# {line}" for line in comment), *_entry(name, answers.get(name))]
    with atomic_write(path) as draft:
        draft.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _known_answers(hierarchy: Path) -> dict[str, Any]:
    landmarks = tables.read_table(hierarchy, tables.HIERARCHY)
    answers = yaml.safe_load(_GLDV2.read_text(encoding="utf-8")) if _is_gldv2(landmarks) else {}
    found = find_annotations(hierarchy)
    if len(found) == 2:
        decisions = read_named_decisions(found["decisions"], read_taxonomy(found["taxonomy"]))
        if people := sorted({name for row in decisions for name in row.people}):
            answers["creators"] = people
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
    if field.annotation is str and not any(isinstance(each, AfterValidator) for each in field.metadata):
        return [f"{name}: >-", *(f"  {line}" for line in textwrap.wrap(answer or "", _WIDTH))]
    value = answer or (None if field.is_required() else field.default)
    return [f"{name}:" if value is None else yaml.safe_dump({name: value}, allow_unicode=True).rstrip()]
