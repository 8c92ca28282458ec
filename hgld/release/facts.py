"""Collect the facts of a release: the publisher's answers, its tables, and who decided on groups.

``release.yaml`` has the facts that hgld cannot know. Who decided follows from decisions and
provenance, as far as these record it. Names of annotators count as people, except
:data:`hgld.taxonomy.decisions.NOT_PEOPLE`. A person who accepts a suggestion on the review page has
decided.
"""

from __future__ import annotations

import datetime
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from hgld.io.markdown import join_names
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
    """An origin of groups.

    Args:
        name: Name in a few words.
        description: Sentence for documents, which fill in ``{entity}``.
        creator: Term for ``annotations_creators`` in dataset cards of the Hugging Face hub; the
            vocabulary is ``utils/resources/creators.json`` in the package ``datasets``.
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

    Args:
        settings: Answers of the publisher.
        hierarchy: The table ``hierarchy``.
        decisions: Decisions that the hierarchy was built with, with the names of their groups.
        provenance: Provenance of the hierarchy.
        sources: Tables that the hierarchy was made from, as far as they were found.
    """

    settings: ReleaseSettings
    hierarchy: pa.Table
    decisions: Sequence[Decision]
    provenance: Provenance
    sources: InputTables

    @property
    def date(self) -> str:
        """Date of publication, YYYY-MM-DD."""
        if self.settings.date:
            return self.settings.date.isoformat()
        if not self.decisions:
            raise ConfigurationError(
                "no `date` in the facts, and no decision whose day could be taken; add a date"
            )
        return max(decision.decided_at for decision in self.decisions).date().isoformat()

    @property
    def annotators(self) -> list[str]:
        """Names of all people who took decisions, sorted."""
        return people_of(self.decisions)

    @cached_property
    def tree(self) -> Hierarchy:
        """The hierarchy."""
        return Hierarchy.from_arrow(self.hierarchy)

    @property
    def is_neutral(self) -> bool:
        """Whether the list has other entities than landmarks."""
        return self.tree.group_level != GROUP

    @cached_property
    def columns(self) -> pa.Schema:
        """Columns of the published files."""
        table = self.hierarchy
        if self.is_neutral:
            table = with_neutral_names(table, HIERARCHY)
        return table.schema

    @cached_property
    def column_descriptions(self) -> dict[str, str]:
        """Description of each column of the published files."""
        spec = HIERARCHY.neutral if self.is_neutral else HIERARCHY
        entity = f"the {self.words['entity']}"
        meanings = {}
        for column in (*spec.schema, *spec.optional):
            meanings[column.name] = meaning_of(column).replace("the entity", entity)
        finer_level = entity
        for level in self.tree.level_names[1:]:
            meanings.setdefault(level, f"Level above {finer_level}.")
            finer_level = level
        return {name: meanings[name] for name in self.columns.names}

    @cached_property
    def words(self) -> dict[str, str]:
        """Words for the entities, by placeholder of the templates."""
        file = "entities.yaml" if self.is_neutral else "landmarks.yaml"
        words: dict[str, str] = yaml.safe_load(template(file))
        if self.settings.entity:
            words["entity"] = self.settings.entity
            words["entities"] = self.settings.entities or plural(self.settings.entity)
        entity = words["entity"]
        entities = words["entities"]
        article = "an" if entity[0].lower() in "aeiou" else "a"
        words["an_entity"] = f"{article} {entity}"
        words["An_entity"] = f"{article.title()} {entity}"
        words["Entity"] = entity[0].upper() + entity[1:]
        words["Entities"] = entities[0].upper() + entities[1:]
        return {name: Template(text).safe_substitute(words) for name, text in words.items()}

    @cached_property
    def origins(self) -> dict[Origin, int]:
        """Number of landmarks by origin of their group; empty if origins are not recorded."""
        if self.decisions:
            return count_origins(self.hierarchy, self.decisions)
        if "levels_from" in self.provenance.parameters:
            return {CLASSES: len(self.hierarchy)}
        return {}

    @cached_property
    def left_out(self) -> LeftOut | None:
        """Entities that the build left out; None if the table ``clean`` was not found."""
        if self.sources.clean is None:
            return None
        clean = tables.read_table(self.sources.clean, tables.CLEAN)
        clean = clean.filter(pc.is_in(clean["split"], pc.unique(self.hierarchy["split"])))
        splits = self.hierarchy["split"].to_pylist()
        present = set(zip(splits, self.hierarchy["landmark_id"].to_pylist(), strict=True))
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
        """Whether the build left out entities whose labels are undecided, as far as this is known."""
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
        files = {}
        for split, name in self.splits.items():
            files[f"data/{name}.parquet"] = (
                f"the {split} {entities}, sorted by {self.columns.names[1]}"
            )
        if not self.is_neutral:
            for pattern, text in _LANDMARK_FILES.items():
                for split in self.splits:
                    files[pattern.format(split)] = text.format(split=split)
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
            values = "scraped values"
            if not self.is_neutral:
                values += ' of "instance of" (P31)'
            for path in self.sources.scraped:
                files[f"raw/{path.name}"] = f"{values}, with items and revisions"
            removed = f"{entities} that were removed, each with its values and the reason"
            files[f"raw/{self.sources.removed.name}"] = removed
        return files


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Return names that are valid for files and for splits of the Hugging Face hub, by name.

    Safe names contain only letters, digits and underscores, and differ in more than case.

    >>> safe_names(["north wing", "north/wing", "train"])
    {'north wing': 'north_wing', 'north/wing': 'north_wing_2', 'train': 'train'}
    """
    safe_by_name: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        base = re.sub(r"\W", "_", name)
        safe_name = base
        number = 1
        while safe_name.casefold() in taken:
            number += 1
            safe_name = f"{base}_{number}"
        taken.add(safe_name.casefold())
        safe_by_name[name] = safe_name
    return safe_by_name


def people_of(decisions: Iterable[Decision]) -> list[str]:
    """Return the names of all people who took decisions, sorted."""
    names: set[str] = set()
    for decision in decisions:
        names.update(decision.people)
    return sorted(names)


def _decision_origin(decision: Decision) -> Origin:
    """Return the origin of the group that a decision gives to its label."""
    n_people = len(decision.people)
    if n_people > 1:
        return _SEVERAL
    if n_people == 1:
        return _ONE
    return _DRAFT


def count_origins(hierarchy: pa.Table, decisions: Iterable[Decision]) -> dict[Origin, int]:
    """Return the number of landmarks of each origin that occurs, in the order of :data:`ORIGINS`.

    The table has no ids of labels, so a landmark may match several decisions on its label and
    group; the least reliable origin counts. If no decision matches, since the label was renamed,
    all decisions for the group count.
    """
    by_label: defaultdict[tuple[str, str], list[Origin]] = defaultdict(list)
    by_group: defaultdict[str, list[Origin]] = defaultdict(list)
    corrections: defaultdict[str, list[Origin]] = defaultdict(list)
    for decision in decisions:
        if decision.group is None:
            continue
        origin = _decision_origin(decision)
        if decision.of_landmark:
            corrections[decision.group].append(origin)
        elif decision.decision == "group":
            by_label[normalise_label(decision.label), decision.group].append(origin)
            by_group[decision.group].append(origin)
    group_level = tables.level_columns(hierarchy.column_names)[0]
    names = ["supercategory", group_level]
    if "label_source" in hierarchy.column_names:
        names.append("label_source")
    counts: Counter[Origin] = Counter()
    for row in hierarchy.group_by(names).aggregate([([], "count_all")]).to_pylist():
        group = row[group_level]
        source = row.get("label_source")
        if source == "photographs":
            counts[_PHOTOGRAPHS] += row["count_all"]
            continue
        origins: list[Origin] = []
        if source == "correction":
            origins = corrections[group]
        if not origins:
            origins = by_label.get((normalise_label(row["supercategory"]), group), [])
        if not origins:
            origins = by_group.get(group, [_DRAFT])
        counts[max(origins, key=ORIGINS.index)] += row["count_all"]
    return {origin: counts[origin] for origin in ORIGINS if counts[origin]}


def annotations_creators(origins: Iterable[Origin]) -> list[str]:
    """Return the terms of the Hugging Face hub for origins, sorted."""
    return sorted({origin.creator for origin in origins})


def citation(settings: ReleaseSettings) -> str:
    """Return the publisher's BibTeX entries and the entry of the paper on the procedure."""
    procedure = template("citation.bib").rstrip()
    if settings.citation:
        return f"{settings.citation}\n\n{procedure}"
    return procedure


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
        licence: Under which licence is it published? An identifier of https://spdx.org/licenses,
            such as CC-BY-4.0.
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
        unconfirmed: Which of these answers did hgld suggest, and nobody has confirmed them? A list
            of keys, which the documents name; remove those that you have read.
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


#: Asks a question, given with a suggested answer; returns the answer, or None if nobody answers.
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
#: Questions that ``--init`` asks; the questions of the datasheet are only in the file.
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
    """Answer no question, so that the suggestion counts."""


def write_questions(hierarchy: Path, path: Path, ask: Ask = unanswered) -> None:
    """Write ``release.yaml`` with its questions, and with answers that are known or given.

    Suggested facts that nobody has confirmed are listed under the key ``unconfirmed``.

    Args:
        hierarchy: The table ``hierarchy``, from which some answers follow.
        path: File to write.
        ask: Asks a question. The words for the entities are not asked for if the project file has
            them.

    Raises:
        InputError: The file exists, or the hierarchy cannot be read.
    """
    if path.exists():
        raise InputError(f"{path} exists; edit it, or move it away to begin anew")
    answers = _known_answers(hierarchy)
    questions = described_parameters(ReleaseSettings)
    has_words = find_project_file(hierarchy) is not None
    suggested_entity = answers["entity"]
    confirmed = set()
    for name in _ASKED:
        if has_words and name in ("entity", "entities"):
            continue
        suggestion = answers.get(name) or ""
        if name == "creators":
            suggestion = ", ".join(suggestion)
        elif name == "entities" and answers["entity"] != suggested_entity:
            suggestion = plural(answers["entity"])
        answer = ask(questions[name], suggestion)
        if answer is None:
            answer = suggestion
        else:
            confirmed.add(name)
        if name == "creators":
            answers[name] = [creator.strip() for creator in answer.split(",")]
        else:
            answers[name] = answer
    answers["unconfirmed"] = [
        name for name in _CLAIMS if answers.get(name) and name not in confirmed
    ]
    lines = [
        "# Facts of the release. Answer what you can, texts indented below their key; then run hgld release."
    ]
    for name, question in questions.items():
        lines.append("")
        for line in textwrap.wrap(question, _WIDTH, break_on_hyphens=False):
            lines.append(f"# {line}")
        lines += _entry(name, answers.get(name))
    with atomic_write(path) as draft:
        draft.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _known_answers(hierarchy: Path) -> dict[str, Any]:
    """Return the answers that follow from a hierarchy and the files beside it, and suggestions."""
    rows = tables.read_table(hierarchy, tables.HIERARCHY)
    levels = tables.level_columns(rows.column_names)
    is_neutral = GROUP not in levels
    names = join_names(levels) if is_neutral else "group and root"
    entity, entities = nouns_of(hierarchy)
    kind = "whole number" if rows.schema.field("landmark_id").type == pa.int64() else "text"
    dataset_name = hierarchy.stem
    if dataset_name == "hierarchy":
        dataset_name = hierarchy.absolute().parent.name
    answers: dict[str, Any] = {
        "name": dataset_name,
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
    annotations = find_annotations(hierarchy)
    if "decisions" in annotations and "taxonomy" in annotations:
        groups = read_taxonomy(annotations["taxonomy"])
        people = people_of(read_named_decisions(annotations["decisions"], groups))
        if people:
            answers["creators"] = people
    else:
        answers["date"] = datetime.date.today()
    return answers


def _is_gldv2(landmarks: pa.Table) -> bool:
    """Return whether a table has landmarks of GLDv2.

    The bundled subset has landmarks of Washington; the table must contain some of their ids, all
    with the category that GLDv2 gives them.
    """
    file = subset_file("washington/train_label_to_category.csv")
    subset = read_columns(file, ["landmark_id", "category"])
    ids = subset["landmark_id"].to_pylist()
    categories = dict(zip(ids, subset["category"].to_pylist(), strict=True))
    train = landmarks.filter(pc.equal(landmarks["split"], "train"))
    has_known_landmark = False
    train_ids = train["landmark_id"].to_pylist()
    for landmark_id, category in zip(train_ids, train["category"].to_pylist(), strict=True):
        if landmark_id in categories:
            has_known_landmark = True
            if categories[landmark_id] != category:
                return False
    return has_known_landmark


def _entry(name: str, answer: Any) -> list[str]:
    """Return the YAML lines of one key; texts become blocks, in which colons need no quotes."""
    field = ReleaseSettings.model_fields[name]
    if isinstance(answer, str) and "\n" in answer:
        return [f"{name}: |", textwrap.indent(answer.rstrip(), "  ")]
    if name in _TEXTS:
        lines = textwrap.wrap(answer or "", _WIDTH)
        return [f"{name}: >-"] + [f"  {line}" for line in lines]
    value = answer
    if not value:
        value = None if field.is_required() else field.default
    if value is None:
        return [f"{name}:"]
    return [yaml.safe_dump({name: value}, allow_unicode=True).rstrip()]
