"""What the documents of a release describe: answers of its publisher, its tables, and who decided on the groups.

``release.yaml`` has what hgld cannot know. Who decided follows from decisions and provenance, as far as they record
it. Names of annotators are taken at their word, except :data:`hgld.taxonomy.decisions.NOT_PEOPLE`. A person who
accepts a suggestion on the review page has decided.
"""

from __future__ import annotations

import datetime
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from string import Template
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.build_inputs import InputTables, find_annotations
from hgld.hierarchy.tree import GROUP
from hgld.io.columns import read_columns
from hgld.io.docstrings import described_parameters
from hgld.io.files import atomic_write
from hgld.io.licences import spdx_licence
from hgld.io.markdown import in_words
from hgld.io.settings import Settings
from hgld.resources import subset_file
from hgld.tables import HIERARCHY, Provenance
from hgld.tables.parquet import with_neutral_names
from hgld.tables.schemas import meaning_of
from hgld.taxonomy.decisions import Decision, DecisionIndex, landmark_key, read_named_decisions
from hgld.taxonomy.groups import read_taxonomy
from hgld.taxonomy.label_identity import label_id, normalise_label
from hgld.taxonomy.project import find_project_file, nouns_of, plural

CROISSANT = "croissant.json"
#: Files of a split for the training code of the paper.
SUPRANK_FILE = "suprank/{}_label_to_subcategory_with_clusters.csv"
#: Descriptions of the CSV files of landmarks, by path.
_LANDMARK_FILES = {
    "{}_label_to_hierarchical.csv": "the {split} landmarks as CSV, without those whose group comes from photographs",
    SUPRANK_FILE: "the {split} landmarks as the training code of the paper (elias-ramzi/SupRank) reads them",
}
_TEMPLATES = Path(__file__).parents[1] / "templates" / "release"

EXPERT, MACHINE, FOUND = "expert-generated", "machine-generated", "found"


@dataclass(frozen=True)
class Origin:
    """One origin of groups: its name in a few words, and a sentence for documents, which fill in ``{entity}``.

    ``creator`` is its term for ``annotations_creators`` in dataset cards of the Hugging Face hub; the vocabulary is
    ``utils/resources/creators.json`` in the package ``datasets``.
    """

    name: str
    description: str
    creator: str


#: From the most to the least reliable.
ORIGINS = (
    Origin(
        "several annotators", "Two or more people gave the {entity}'s label the same group.", EXPERT
    ),
    Origin(
        "one annotator",
        "One person decided on the label, or two disagreed and one opinion was taken.",
        EXPERT,
    ),
    Origin("draft", "A draft decision on the label that no annotator has reviewed.", MACHINE),
    Origin(
        "classes",
        "The classes above the {entity}'s label on Wikidata; no annotator decided.",
        FOUND,
    ),
    Origin(
        "photographs",
        "What the {entity}'s photographs resemble most; no label of it leads to a group.",
        MACHINE,
    ),
)
_SEVERAL, _ONE, _DRAFT, CLASSES, _PHOTOGRAPHS = ORIGINS


@dataclass(frozen=True)
class LeftOut:
    """Entities of the table ``clean`` that have no row in the hierarchy.

    Args:
        cleaned: Number of entities of the table, in the splits of the hierarchy.
        dropped: Number of entities without a row whose label, or they themselves, were dropped.
        undecided: Number of entities without a row whose label has no decision, or an unsure one.
        undecided_labels: Number of undecided labels of entities without a row.
        others: Number of entities without a row for another reason.
    """

    cleaned: int
    dropped: int
    undecided: int
    undecided_labels: int
    others: int

    @property
    def kept(self) -> int:
        """Number of entities with a row."""
        return self.cleaned - self.dropped - self.undecided - self.others


@dataclass(frozen=True)
class ReleaseFacts:
    """The data that the documents of a release describe.

    Decisions are those that the hierarchy was built with, with the names of their groups, or none; sources are the
    tables that it was made from, as far as they were found.
    """

    settings: ReleaseSettings
    hierarchy: pa.Table
    decisions: Sequence[Decision]
    provenance: Provenance
    sources: InputTables

    @property
    def date(self) -> str:
        """Date of publication, YYYY-MM-DD."""
        if not (self.settings.date or self.decisions):
            raise ConfigurationError(
                "no `date` in the facts, and no decision whose day could be taken; add a date"
            )
        return (
            self.settings.date or max(row.decided_at for row in self.decisions).date()
        ).isoformat()

    @property
    def annotators(self) -> list[str]:
        """Names of all people who took decisions, sorted."""
        return sorted({name for row in self.decisions for name in row.people})

    @cached_property
    def tree(self) -> Hierarchy:
        """The hierarchy."""
        return Hierarchy.from_arrow(self.hierarchy)

    @property
    def is_neutral(self) -> bool:
        """Whether the entities are others than landmarks."""
        return self.tree.group_level != GROUP

    @cached_property
    def columns(self) -> pa.Schema:
        """Columns of the published files."""
        return (
            with_neutral_names(self.hierarchy, HIERARCHY) if self.is_neutral else self.hierarchy
        ).schema

    @cached_property
    def column_descriptions(self) -> dict[str, str]:
        """Description of each of these columns."""
        layout = HIERARCHY.neutral if self.is_neutral else HIERARCHY
        meanings = {
            column.name: meaning_of(column) for column in (*layout.schema, *layout.optional)
        }
        meanings = {
            name: text.replace("the entity", f"the {self.words['entity']}")
            for name, text in meanings.items()
        }
        finer, *levels = f"the {self.words['entity']}", *self.tree.level_names[1:]
        for level in levels:
            meanings.setdefault(level, f"Level above {finer}.")
            finer = level
        return {name: meanings[name] for name in self.columns.names}

    @cached_property
    def words(self) -> dict[str, str]:
        """How to speak of the entities, by placeholder of the templates."""
        words: dict[str, str] = yaml.safe_load(
            template("entities.yaml" if self.is_neutral else "landmarks.yaml")
        )
        if entity := self.settings.entity:
            words |= {"entity": entity, "entities": self.settings.entities or plural(entity)}
        article = "an" if words["entity"][0].lower() in "aeiou" else "a"
        words |= {
            "an_entity": f"{article} {words['entity']}",
            "An_entity": f"{article.title()} {words['entity']}",
        }
        words |= {
            name.title(): words[name][0].upper() + words[name][1:]
            for name in ("entity", "entities")
        }
        return {name: Template(text).safe_substitute(words) for name, text in words.items()}

    @cached_property
    def origins(self) -> dict[Origin, int]:
        """Number of landmarks by origin of their group; none if it is not recorded."""
        if not self.decisions:
            return (
                {CLASSES: len(self.hierarchy)}
                if "levels_from" in self.provenance.parameters
                else {}
            )
        return count_origins(self.hierarchy, self.decisions)

    @cached_property
    def left_out(self) -> LeftOut | None:
        """What the build left out; None if the table ``clean`` was not found."""
        if self.sources.clean is None:
            return None
        clean = tables.read_table(self.sources.clean, tables.CLEAN)
        clean = clean.filter(pc.is_in(clean["split"], pc.unique(self.hierarchy["split"])))
        present = set(
            zip(
                self.hierarchy["split"].to_pylist(),
                self.hierarchy["landmark_id"].to_pylist(),
                strict=True,
            )
        )
        decided = DecisionIndex(self.decisions)
        counts: Counter[str] = Counter()
        undecided_labels = set()
        for row in clean.to_pylist():
            if (row["split"], row["landmark_id"]) in present:
                continue
            label_key = label_id(row["supercategory"], row["class_item"])
            decision = decided.find(landmark_key(row["split"], row["landmark_id"]), "")
            if decision is None:
                decision = decided.find(label_key, row["supercategory"])
            reason = "others"
            if self.decisions and (decision is None or decision.decision == "unsure"):
                reason = "undecided"
                undecided_labels.add(label_key)
            elif decision is not None and decision.decision == "drop":
                reason = "dropped"
            counts[reason] += 1
        return LeftOut(
            cleaned=len(clean),
            dropped=counts["dropped"],
            undecided=counts["undecided"],
            undecided_labels=len(undecided_labels),
            others=counts["others"],
        )

    @property
    def may_lack_undecided(self) -> bool:
        """Whether the build left out entities whose labels are undecided, as far as that is known."""
        if self.left_out is None:
            return bool(self.provenance.parameters.get("allow_undecided"))
        return self.left_out.undecided > 0

    @cached_property
    def splits(self) -> dict[str, str]:
        """The splits with rows, GLDv2's first, each with the name of its file."""
        return safe_names(tables.in_order(self.hierarchy["split"].to_pylist()))

    @property
    def files(self) -> dict[str, str]:
        """Description of each file of the release, by path."""
        entities = self.words["entities"]
        texts = {
            "data/{name}.parquet": f"the {{split}} {entities}, sorted by {self.columns.names[1]}"
        }
        if not self.is_neutral:
            texts |= _LANDMARK_FILES
        files = {
            path.format(split, name=name): text.format(split=split)
            for path, text in texts.items()
            for split, name in self.splits.items()
        }
        if self.decisions:
            files["decisions.csv"] = "the decision on each label, its annotator and its time"
            if "corrections" in self.provenance.inputs:
                files["corrections.csv"] = (
                    f"decisions that replace others, on labels and on single {entities}"
                )
            files["taxonomy.csv"] = "the groups, their roots and what belongs to each"
        files[CROISSANT] = "machine-readable description of this dataset (Croissant 1.1)"
        files["datasheet.md"] = "answers to the questions of Datasheets for Datasets"
        files["LICENSE"] = "licence"
        if self.settings.raw and self.sources.removed:
            values = (
                "scraped values" if self.is_neutral else 'scraped values of "instance of" (P31)'
            )
            files |= {
                f"raw/{path.name}": f"{values}, with items and revisions"
                for path in self.sources.scraped
            }
            removed = f"{entities} that were removed, each with its values and the reason"
            files[f"raw/{self.sources.removed.name}"] = removed
        return files


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Return names of files and of splits on the Hugging Face hub, which differ in more than case, by name.

    >>> safe_names(["north wing", "north/wing", "train"])
    {'north wing': 'north_wing', 'north/wing': 'north_wing_2', 'train': 'train'}
    """
    safe: dict[str, str] = {}
    for name in names:
        taken = {*map(str.casefold, safe.values())}
        base = re.sub(r"\W", "_", name)
        numbered = (f"{base}_{number}" if number > 1 else base for number in count(1))
        safe[name] = next(each for each in numbered if each.casefold() not in taken)
    return safe


def _decision_origin(decision: Decision) -> Origin:
    """Return the origin of the group that a decision gives to its label."""
    n_people = len(decision.people)
    if n_people > 1:
        return _SEVERAL
    return _ONE if n_people == 1 else _DRAFT


def count_origins(hierarchy: pa.Table, decisions: Iterable[Decision]) -> dict[Origin, int]:
    """Return the number of landmarks of each origin that occurs, in the order of :data:`ORIGINS`.

    The table does not hold the ids of labels. Where decisions of different origins fit a landmark's label and group,
    the least reliable one counts; where none fits, because the label was renamed since, that of all decisions for the
    group.
    """
    by_label: defaultdict[tuple[str, str], list[Origin]] = defaultdict(list)
    by_group: defaultdict[str, list[Origin]] = defaultdict(list)
    of_landmarks: defaultdict[str, list[Origin]] = defaultdict(list)
    for row in decisions:
        if row.group is not None and row.of_landmark:
            of_landmarks[row.group].append(_decision_origin(row))
        elif row.decision == "group" and row.group is not None:
            by_label[normalise_label(row.label), row.group].append(_decision_origin(row))
            by_group[row.group].append(_decision_origin(row))
    group_level = tables.level_columns(hierarchy.column_names)[0]
    names = ["supercategory", group_level, *({"label_source"} & {*hierarchy.column_names})]
    counts: Counter[Origin] = Counter()
    for row in hierarchy.group_by(names).aggregate([([], "count_all")]).to_pylist():
        label, group = row["supercategory"], row[group_level]
        if row.get("label_source") == "photographs":
            origin = _PHOTOGRAPHS
        else:
            known = of_landmarks[group] if row.get("label_source") == "correction" else []
            known = (
                known
                or by_label.get((normalise_label(label), group))
                or by_group.get(group)
                or [_DRAFT]
            )
            origin = max(known, key=ORIGINS.index)
        counts[origin] += row["count_all"]
    return {origin: counts[origin] for origin in ORIGINS if counts[origin]}


def annotations_creators(origins: Iterable[Origin]) -> list[str]:
    """Return the terms of the Hugging Face hub for some origins."""
    return sorted({origin.creator for origin in origins})


def citation(settings: ReleaseSettings) -> str:
    """Return the BibTeX entries that the publisher names and that of the procedure."""
    return "\n\n".join(filter(None, (settings.citation, template("citation.bib").rstrip())))


def template(name: str) -> str:
    """Return the text of a template."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


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
        unconfirmed: Which of these answers did hgld suggest, and nobody has confirmed them? A list of keys, which the
            documents name; remove those that you have read.
    """

    name: Annotated[_Answer, _matching(".*", "one line")]
    entity: Annotated[_Answer, _matching(".*", "one line")] | None = None
    entities: Annotated[_Answer, _matching(".*", "one line")] | None = None
    version: Annotated[str, _matching(r"\d+\.\d+\.\d+", "three numbers such as 1.0.0")] = "1.0.0"
    description: _Answer
    creators: Annotated[list[_Answer], Field(min_length=1)]
    licence: Annotated[str, AfterValidator(spdx_licence)]
    url: (
        Annotated[str, _matching(r"https?://\S+", "an address that begins with https://")] | None
    ) = None
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
    unconfirmed: tuple[_Answer, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _require_answers(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if value not in (None, "")}

    @field_validator("unconfirmed")
    @classmethod
    def _require_keys(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in names if name not in cls.model_fields]
        if unknown:
            raise ValueError(f'"{unknown[0]}" is no key of this file')
        return names


#: Asks a question, with a suggested answer as the second argument; returns the answer, or None if nobody answers.
Ask = Callable[[str, str], "str | None"]
#: Facts that only a person can confirm, in contrast to words that are a matter of taste.
_CLAIMS = (
    "description",
    "creators",
    "licence",
    "source",
    "ids",
    "images",
    "purpose",
    "uses",
    "citation",
)
#: Questions that ``--init`` asks; those of the datasheet are in the file only.
_ASKED = (
    "name",
    "entity",
    "entities",
    "version",
    "description",
    "creators",
    "licence",
    "ids",
    "images",
    "url",
)


def unanswered(_question: str, _suggestion: str) -> None:
    """Answer no question, so that what is suggested counts."""


def write_questions(hierarchy: Path, path: Path, ask: Ask = unanswered) -> None:
    """Write the questions of ``release.yaml``, with answers that follow from a hierarchy or are given.

    The words for the things of the list are not asked for if its project file has them.

    Suggested facts that nobody has confirmed are listed as such.

    Raises:
        InputError: The file exists, or the hierarchy cannot be read.
    """
    if path.exists():
        raise InputError(f"{path} exists; edit it, or move it away to begin anew")
    answers, questions = _known_answers(hierarchy), described_parameters(ReleaseSettings)
    suggested_entity = answers["entity"]
    confirmed = set()
    for name in _ASKED:
        if name in ("entity", "entities") and find_project_file(hierarchy) is not None:
            continue  # the project file has the words
        known = answers.get(name) or ""
        if name == "entities" and answers["entity"] != suggested_entity:
            known = plural(answers["entity"])
        suggestion = ", ".join(known) if isinstance(known, list) else known
        answer = ask(questions[name], suggestion)
        if answer is None:
            answer = suggestion
        else:
            confirmed.add(name)
        answers[name] = (
            [each.strip() for each in answer.split(",")] if name == "creators" else answer
        )
    answers["unconfirmed"] = [
        name for name in _CLAIMS if answers.get(name) and name not in confirmed
    ]
    lines = [
        "# Facts of the release. Answer what you can, texts indented below their key; then run hgld release."
    ]
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
    entity, entities = nouns_of(hierarchy)
    kind = "whole number" if rows.schema.field("landmark_id").type == pa.int64() else "text"
    answers: dict[str, Any] = {
        "name": hierarchy.absolute().parent.name
        if hierarchy.stem == "hierarchy"
        else hierarchy.stem,
        "entity": entity,
        "entities": entities,
        "version": "1.0.0",
        "description": f"{len(rows):,} labelled entries of a list, each with its {names}.",
        "creators": ["unknown"],
        "licence": "CC-BY-4.0",
        "ids": f"The id of the list, a {kind}.",
    }
    if _is_gldv2(rows):
        answers |= yaml.safe_load(template("gldv2.yaml"))
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
    known = read_columns(
        subset_file("washington/train_label_to_category.csv"), ["landmark_id", "category"]
    )
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
    return [
        f"{name}:" if value is None else yaml.safe_dump({name: value}, allow_unicode=True).rstrip()
    ]
