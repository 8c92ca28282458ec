"""Answers of models become suggestions and an opinion beside those of people, and never a decision."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgld import tables
from hgld.errors import InputError
from hgld.labels.clusters import cluster_file
from hgld.labels.embed import embed_file
from hgld.labels.machine_answers import read_answers
from hgld.labels.settings import ClusterConfig, EmbedConfig
from hgld.labels.suggest import MAX_ANSWER_SCORE, Suggestion, add_answers
from hgld.taxonomy.decisions import read_decisions, write_decisions
from hgld.taxonomy.groups import Group, write_taxonomy
from tests.commands import run_hgld
from tests.labels.label_tables import decision

GROUPS = [
    Group("span", "human-made", "Bridges: viaduct.", key="bridge"),
    Group("lake", "natural", "Standing water.", merged=("pond",)),
    Group("gate", "human-made", "City gate."),
    Group("tower", "human-made", "Tower."),
]
LABELS = {"Q1": "stone viaduct", "Q2": "lake", "label-1": "Lake", "Q3": "snow shed", "Q4": "building"}
HEADER = "label,group,score,model,prompt_hash\n"


def read(folder: Path, rows: str) -> list[tuple[str, str, str | None, str, str]]:
    path = folder / "answers.csv"
    path.write_text(HEADER + rows)
    answers = read_answers(path, list(LABELS), list(LABELS.values()), GROUPS)
    return [
        (
            list(LABELS)[each.label],
            each.decision.decision,
            each.decision.group,
            each.decision.annotator,
            each.decision.comment,
        )
        for each in answers
    ]


def test_answers_are_on_all_labels_with_a_text_and_in_groups_by_key(tmp_path: Path) -> None:
    answers = read(
        tmp_path,
        "LAKE,pond,0.5,org/some model-7b,\nstone viaduct,span,1,org/some model-7b,ab12\nbuilding,,0,other,ab12\n",
    )
    assert answers == [
        ("Q2", "group", "lake", "machine:org-some-model-7b", "score 0.5"),
        ("label-1", "group", "lake", "machine:org-some-model-7b", "score 0.5"),
        ("Q1", "group", "bridge", "machine:org-some-model-7b", "score 1, prompt ab12"),
        ("Q4", "drop", None, "machine:other", "score 0, prompt ab12"),
    ]
    columns = [["lake", "building"], ["lake", None], [0.5, 1.0], ["m", "m"], [None, "h"]]
    pq.write_table(pa.table(columns, HEADER.strip().split(",")), tmp_path / "answers.parquet")
    parquet = read_answers(tmp_path / "answers.parquet", list(LABELS), list(LABELS.values()), GROUPS)
    assert [(each.label, each.score, each.decision.group) for each in parquet] == [
        (1, 0.5, "lake"), (2, 0.5, "lake"), (4, 1.0, None),
    ]  # fmt: skip


def test_all_bad_rows_are_explained(tmp_path: Path) -> None:
    good = "lake,lake,0.5,m,\n"
    for row, problem in {
        "tarn,lake,0.5,m,\n": 'line 3: there is no label "tarn" in the clusters',
        "building,brigde,0.5,m,\n": '"building": the taxonomy has no group "brigde"; did you mean "bridge"?',
        "building,lake,high,m,\n": 'the score is "high"; expected a number from 0 to 1',
        "building,lake,nan,m,\n": 'the score is "nan"',
        "building,lake,1.5,m,\n": 'the score is "1.5"',
        "building,lake,1,?,\n": "the model is empty",
        "Lake,gate,1,m,\n": 'm has answered on "Lake" in line 2 already',
    }.items():
        with pytest.raises(InputError) as refused:
            read(tmp_path, good + row)
        assert problem in str(refused.value)
    with pytest.raises(InputError, match="no such file"):
        read_answers(tmp_path / "none.csv", [], [], GROUPS)


def test_answers_replace_less_likely_suggestions(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "a,tower,0.99,m,\na,lake,0.3,n,\nb,,1,m,\n")
    answers = read_answers(tmp_path / "a.csv", ["A", "B"], ["a", "b"], GROUPS)
    before = [
        [Suggestion("lake", 0.95, "a name"), Suggestion("gate", 0.03, "x"), Suggestion("bridge", 0.02, "y")],
        [],
    ]
    assert add_answers(before, []) == before
    assert add_answers(before, answers) == [
        [
            Suggestion("lake", 0.95, "a name; n answered so, score 0.3"),
            Suggestion("tower", MAX_ANSWER_SCORE, "m answered so, score 0.99"),
            Suggestion("gate", 0.03, "x"),
        ],
        [],
    ]


@pytest.fixture
def clusters(write_clean: Callable[..., Path], tmp_path: Path) -> Path:
    """Clusters of four labels, with their embeddings and the taxonomy beside."""
    landmarks = [
        ("train", text, key if key.startswith("Q") else None) for key, text in LABELS.items() if text != "Lake"
    ]
    embeddings, out = tmp_path / "label_embeddings.parquet", tmp_path / "clusters.parquet"
    embed_file(write_clean(landmarks), embeddings, EmbedConfig(encoder="ngrams", templates=["{}"]))
    cluster_file(embeddings, out, ClusterConfig(n_clusters=2, n_subclusters=2))
    write_taxonomy(tmp_path / "taxonomy.csv", GROUPS)
    return out


def test_a_machine_stands_beside_people_and_in_no_decision(clusters: Path, tmp_path: Path) -> None:
    answers, taxonomy = tmp_path / "answers.csv", ("--taxonomy", tmp_path / "taxonomy.csv")
    answers.write_text(
        HEADER + "snow shed,tower,0.99,org/model,ab12\nlake,lake,0.7,org/model,\nbuilding,,0.9,org/model,\n"
    )
    suggest = ("suggest", clusters, "-o", clusters, "--no-vocabulary", *taxonomy, "--from", answers)
    machine = tmp_path / "org-model.machine.csv"

    first = run_hgld(*suggest)
    assert f"{machine}: answers on 3 labels, for hgld agreement\n" in first.stdout
    assert run_hgld(*suggest).stdout == f"{clusters}: up to date\n"
    machine.unlink()
    run_hgld(*suggest)
    rows: dict[str, Any] = {row["label_id"]: row for row in tables.read_table(clusters, tables.CLUSTERS).to_pylist()}
    assert rows["Q3"]["suggested_group"] == "tower"
    assert rows["Q3"]["suggestion_score"] < 0.9, "nothing by a model is accepted with the rest of the screen"
    assert rows["Q3"]["suggestions"][0]["reason"] == "org/model answered so, score 0.99"
    assert rows["Q2"]["suggestions"][0]["reason"].endswith("org/model answered so, score 0.7")
    (building,) = (row for row in read_decisions(machine, None, may_be_unseen=True) if row.label_id == "Q4")
    assert (building.annotator, building.decision, building.people) == ("machine:org-model", "drop", [])

    itself = run_hgld(*suggest[:-1], answers.rename(machine), code=1)
    assert f"{machine}: would be replaced by what is read from it; give --from another name" in itself.stderr
    machine.rename(answers)
    run_hgld(*suggest)

    people = [("ada", ["tower", "lake", None]), ("ben", ["gate", "lake", None])]
    for name, groups in people:
        own = [decision(key, LABELS[key], group) for key, group in zip(["Q3", "Q2", "Q4"], groups, strict=True)]
        write_decisions(tmp_path / f"{name}.csv", own)
    ada, ben = tmp_path / "ada.csv", tmp_path / "ben.csv"
    alone, beside = run_hgld("agreement", ada, ben, *taxonomy), run_hgld("agreement", ada, ben, machine, *taxonomy)
    assert "raw agreement (ada, machine:org-model)" in beside.stdout
    assert "ada: tower, ben: gate, machine:org-model: tower; machine:org-model says: score 0.99" in beside.stdout

    def alpha(printed: str) -> list[str]:
        (line,) = (line for line in printed.splitlines() if line.startswith("Krippendorff"))
        return line.replace("(people)", "").split()

    assert alpha(beside.stdout) == alpha(alone.stdout), "alpha is that of people"
    assert "(people)" not in alone.stdout
    assert "Krippendorff's alpha  " in run_hgld("agreement", ada, machine, *taxonomy).stdout

    out = tmp_path / "final.csv"
    for command in (
        ("adjudicate", ada, machine, "-o", out, "--rule", "prefer:ada", *taxonomy),
        ("build", tmp_path / "clean.parquet", "-o", tmp_path / "h.parquet", "--decisions", machine, *taxonomy),
        ("review", clusters, "--annotator", "ada", "--decisions", machine, "--no-open", *taxonomy),
        ("suggest", clusters, "-o", clusters, "--decisions", machine, *taxonomy),
    ):
        refused = run_hgld(*command, code=1)
        assert f"{machine}: holds answers of machine:org-model, which are not decisions" in refused.stderr
    assert not out.exists()
