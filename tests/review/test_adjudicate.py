from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.cli.review import format_adjudicate
from hgld.errors import ConfigurationError, InputError
from hgld.review.adjudication import AdjudicateConfig, adjudicate, adjudicate_files, combine_decisions, open_labels
from hgld.review.decision_files import Opinions, category
from hgld.taxonomy.decisions import Decision, DecisionIndex, read_decisions, write_decisions
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.review.conftest import NOON, Label, decide

AGREE_ONLY, PREFER_ADA, MOST_LANDMARKS = map(AdjudicateConfig, ("agree-only", "prefer:ada", "most-landmarks"))
GROUPS = ("lake", "river", "church", "tower")
LANDMARKS = {f"Q{n}": 2**n for n in range(12)}
#              0    1     2     3    4     5      6      7      8     9
ADA = decide("ada", "lake river lake  drop drop  unsure unsure church -     tower")
BEN = decide("ben", "lake river river drop tower unsure lake   unsure tower -")
choices = st.lists(st.sampled_from([*GROUPS[:3], "drop", "unsure", "unsure:lake", "-"]), min_size=8, max_size=8)
both = st.tuples(choices, choices).map(lambda two: (decide("ada", " ".join(two[0])), decide("ben", " ".join(two[1]))))


def by_id(rows: list[Decision]) -> dict[str, str]:
    return {row.label_id: str(category(row)) for row in rows}


def test_joint_decision_is_signed_by_both() -> None:
    later = NOON + timedelta(hours=1)
    ada = Opinions("ada", {"Q0": Decision("Q0", "lake", "group", "lake", "ada", NOON, "clear")})
    ben = Opinions("ben", {"Q0": Decision("Q0", "lake", "group", "lake", "ben", later, "water")})
    joint = Decision("Q0", "lake", "group", "lake", "ada+ben", later, "clear; water")
    assert adjudicate(ada, ben, AGREE_ONLY).decisions == [joint]
    same = Opinions("ben", {"Q0": replace(ben.decisions["Q0"], annotator="ada", comment="clear")})
    assert adjudicate(ada, same, AGREE_ONLY).decisions == [replace(joint, annotator="ada", comment="clear")]


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [(True, True, True), (True, False, False), (None, False, False), (True, None, None), (None, None, None)],
)
def test_joint_decision_is_blind_if_both_are(first: bool | None, second: bool | None, both: bool | None) -> None:
    def opinions(name: str, blind: bool | None) -> Opinions:
        return Opinions(name, {"Q0": Decision("Q0", "lake", "group", "lake", name, NOON, blind=blind)})

    for one, other in ((first, second), (second, first)):
        (row,) = adjudicate(opinions("ada", one), opinions("ben", other), AGREE_ONLY).decisions
        assert row.blind is both


def test_both_unsure_stays_unsure_with_a_common_guess() -> None:
    ada, ben = decide("ada", "unsure:lake unsure:lake unsure"), decide("ben", "unsure:lake unsure:river unsure:lake")
    for config in (AGREE_ONLY, PREFER_ADA, MOST_LANDMARKS):
        adjudication = adjudicate(ada, ben, config, LANDMARKS)
        assert [(row.decision, row.group) for row in adjudication.decisions] == [
            ("unsure", "lake"),
            ("unsure", None),
            ("unsure", None),
        ]
        assert [label.label_id for label in adjudication.still_open] == ["Q0", "Q1", "Q2"]
        assert adjudication.agreed == 0


@pytest.mark.parametrize(
    ("config", "settled"),
    [
        (AGREE_ONLY, {}),
        (PREFER_ADA, {"Q2": "lake", "Q4": "(drop)", "Q6": "(unsure)", "Q7": "church", "Q9": "tower"}),
        (
            AdjudicateConfig("prefer:ben"),
            {"Q2": "river", "Q4": "tower", "Q6": "lake", "Q7": "(unsure)", "Q8": "tower"},
        ),
        # Landmarks agreed on: river 2, lake 1, dropped 8, tower none.
        (MOST_LANDMARKS, {"Q2": "river", "Q4": "(drop)", "Q6": "lake", "Q7": "church"}),
    ],
)
def test_rules_settle_labels(config: AdjudicateConfig, settled: dict[str, str]) -> None:
    adjudication = adjudicate(ADA, BEN, config, LANDMARKS)
    agreed = {"Q0": "lake", "Q1": "river", "Q3": "(drop)"}
    assert by_id(adjudication.decisions) == {**agreed, "Q5": "(unsure)", **settled}
    assert adjudication.agreed == 3
    still_open = {f"Q{n}" for n in (2, 4, 5, 6, 7, 8, 9)} - {key for key, one in settled.items() if one != "(unsure)"}
    assert {label.label_id for label in adjudication.still_open} == still_open


@pytest.mark.parametrize("rule", ["agree-only", "prefer:ada", "prefer:ben", "most-landmarks"])
def test_groups_may_be_called_like_decisions(rule: str) -> None:
    """A label in a group called "(drop)" is not dropped, and nobody is unsure about one in "(unsure)"."""
    ada = decide("ada", "(drop) (unsure) (drop) drop lake unsure (unsure)")
    ben = decide("ben", "drop   unsure   (drop) drop lake unsure (unsure)")
    assert [label.label_id for label in open_labels(ada, ben)] == ["Q0", "Q1", "Q5"]
    adjudication = adjudicate(ada, ben, AdjudicateConfig(rule), LANDMARKS)
    assert adjudication.agreed == 4
    chosen = {row.label_id: (row.decision, row.group) for row in adjudication.decisions}
    # On Q1, ben is unsure, which yields to the group. Landmarks agreed on: in the group "(drop)" 4, dropped 8.
    settled: dict[str, dict[str, tuple[str, str | None]]] = {
        "agree-only": {},
        "prefer:ada": {"Q0": ("group", "(drop)"), "Q1": ("group", "(unsure)")},
        "prefer:ben": {"Q0": ("drop", None), "Q1": ("unsure", None)},
        "most-landmarks": {"Q0": ("drop", None), "Q1": ("group", "(unsure)")},
    }
    assert chosen == {
        "Q2": ("group", "(drop)"),
        "Q3": ("drop", None),
        "Q4": ("group", "lake"),
        "Q5": ("unsure", None),
        "Q6": ("group", "(unsure)"),
        **settled[rule],
    }
    if rule == "prefer:ada":
        assert {row.label_id: row.comment for row in adjudication.decisions}["Q0"].endswith("ben: (drop) (ben on 0)")


def test_comment_names_the_other_opinion() -> None:
    rows = {row.label_id: row for row in adjudicate(ADA, BEN, PREFER_ADA).decisions}
    assert rows["Q2"] == replace(ADA.decisions["Q2"], comment="ada on 2; ben: river (ben on 2)")
    assert rows["Q4"].comment == "ada on 4; ben: tower (ben on 4)"
    assert rows["Q9"] == ADA.decisions["Q9"], "ben decided nothing"


def test_equal_weights_stay_open() -> None:
    ada, ben = decide("ada", "lake river lake"), decide("ben", "lake river river")
    landmarks = {"Q0": 5, "Q1": 5, "Q2": 1}
    assert [label.label_id for label in adjudicate(ada, ben, MOST_LANDMARKS, landmarks).still_open] == ["Q2"]
    landmarks["Q1"] = 6
    assert by_id(adjudicate(ada, ben, MOST_LANDMARKS, landmarks).decisions)["Q2"] == "river"


@given(both, st.sampled_from(["agree-only", "prefer:ada", "prefer:ben", "most-landmarks"]))
def test_every_label_is_settled_or_open(two: tuple[Opinions, Opinions], rule: str) -> None:
    ada, ben = two
    adjudication = adjudicate(ada, ben, AdjudicateConfig(rule), LANDMARKS)
    settled = {row.label_id for row in adjudication.decisions if row.decision != "unsure"}
    still_open = {label.label_id for label in adjudication.still_open}
    assert settled | still_open == ada.decisions.keys() | ben.decisions.keys()
    assert not settled & still_open
    for row in adjudication.decisions:
        opinions = [one.decisions[row.label_id] for one in two if row.label_id in one.decisions]
        assert category(row) in [category(opinion) for opinion in opinions]
    swapped = adjudicate(ben, ada, AdjudicateConfig(rule), LANDMARKS)
    assert by_id(swapped.decisions) == by_id(adjudication.decisions)


@given(both)
def test_adjudicated_decisions_take_precedence(two: tuple[Opinions, Opinions]) -> None:
    ada, ben = two
    to_adjudicate = open_labels(ada, ben)
    adjudicated = [Decision(label.label_id, label.label, "group", "tower", "cyd", NOON) for label in to_adjudicate]
    final = {row.label_id: row for row in combine_decisions(ada, ben, adjudicated).decisions}
    assert final.keys() == ada.decisions.keys() | ben.decisions.keys()
    for label in to_adjudicate:
        assert final[label.label_id].annotator == "cyd"
        assert (label.first, label.second) == (ada.decisions.get(label.label_id), ben.decisions.get(label.label_id))
    assert {row.annotator for row in final.values()} <= {"cyd", "ada+ben"}


@pytest.fixture
def files(tables: Callable[..., Path], tmp_path: Path) -> tuple[Path, Path, Path, Path]:
    """Decisions of ada and ben, the output file, and clusters."""
    for opinions in (ADA, BEN):
        write_decisions(tmp_path / f"{opinions.annotator}.csv", opinions.decisions.values())
    clusters = tables([Label(f"Q{n}", f"label {n}", train=2**n) for n in range(10)])
    return tmp_path / "ada.csv", tmp_path / "ben.csv", tmp_path / "final.csv", clusters


def test_decisions_on_other_labels_are_kept(
    files: tuple[Path, Path, Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    ada, ben, out, clusters = files
    earlier = [
        Decision("Q50", "pagoda", "group", "tower", "seed", NOON),
        Decision("Q0", "label 0", "group", "river", "seed", NOON),
        Decision("Q4", "label 4", "drop", None, "seed", NOON),
    ]
    write_decisions(out, earlier)
    with pytest.raises(
        ConfigurationError, match=r"holds decisions by seed, which would be lost \(2 of its labels, such as"
    ):
        adjudicate_files(ada, ben, out, AGREE_ONLY, clusters=clusters)
    assert read_decisions(out, GROUPS) == earlier[1:] + earlier[:1]
    summary = not_none(adjudicate_files(ada, ben, out, AGREE_ONLY, clusters=clusters, force=True))
    assert format_adjudicate(summary).splitlines() == [
        "3 labels agreed, 0 settled, 7 open",
        "  earlier decisions in the output: 1 kept on labels that neither annotator decided, 1 changed, 1 withdrawn",
        "open:",
        "  label 9 (Q9)  ada: tower (ada on 9), ben: nothing",
        "  label 8 (Q8)  ada: nothing, ben: tower (ben on 8)",
        "  label 7 (Q7)  ada: church (ada on 7), ben: (unsure) (ben on 7)",
        "  label 6 (Q6)  ada: (unsure) (ada on 6), ben: lake (ben on 6)",
        "  label 5 (Q5)  ada: (unsure) (ada on 5), ben: (unsure) (ben on 5)",
        "  label 4 (Q4)  ada: (drop) (ada on 4), ben: tower (ben on 4)",
        "  label 2 (Q2)  ada: lake (ada on 2), ben: river (ben on 2)",
    ]
    assert 'Q4 ("label 4")' in caplog.text
    decisions = {row.label_id: row for row in read_decisions(out, GROUPS)}
    assert decisions.keys() == {"Q50", "Q0", "Q1", "Q3", "Q5"}
    assert decisions["Q50"] == earlier[0]
    assert decisions["Q0"].annotator == "ada+ben"


def test_only_decisions_of_the_people_concerned_are_replaced_unasked(files: tuple[Path, Path, Path, Path]) -> None:
    ada, ben, out, _ = files
    for rule in ("prefer:ada", "prefer:ben", "agree-only"):
        assert adjudicate_files(ada, ben, out, AdjudicateConfig(rule)) is not None
    settled = Decision("Q2", "label 2", "group", "tower", "cleo", NOON)
    write_decisions(out, [*read_decisions(out, GROUPS), settled])
    with pytest.raises(ConfigurationError, match="decisions by cleo"):
        adjudicate_files(ada, ben, out, AGREE_ONLY)
    assert settled in read_decisions(out, GROUPS)
    # A review may start from the decisions of others: then these are among the inputs.
    rows = {row.label_id: row for row in read_decisions(ada, GROUPS)} | {"Q2": settled}
    write_decisions(ada, rows.values())
    assert adjudicate_files(ada, ben, out, AGREE_ONLY) is not None


def test_page_refuses_before_it_is_served(files: tuple[Path, Path, Path, Path]) -> None:
    ada, ben, out, clusters = files
    write_decisions(out, [Decision("Q2", "label 2", "group", "tower", "seed", NOON)])
    command = ["adjudicate", str(ada), str(ben), "-o", str(out), "--clusters", str(clusters), "--annotator", "cleo"]
    result = run_hgld(*command, code=1)
    assert result.stderr.startswith(
        f"error: {out}: holds decisions by seed, which would be lost (1 of its labels, such as"
    )
    assert not (out.parent / "review").exists()


def test_inputs_are_not_overwritten(files: tuple[Path, Path, Path, Path]) -> None:
    ada, ben, _, _ = files
    before = ada.read_bytes()
    with pytest.raises(ConfigurationError, match=f"{ada}: is an input"):
        adjudicate_files(ada, ben, ada, PREFER_ADA, force=True)
    # Outputs with other suffixes are refused before inputs are looked at.
    for suffix, output in ((".json", "-o"), (".png", "--figure")):
        annotated = ada.with_suffix(suffix)
        annotated.write_bytes(before)
        result = run_hgld("agreement", annotated, ben, output, annotated, code=1)
        assert result.stderr == f"error: {annotated}: is an input, and would be overwritten; write to another file\n"
        assert annotated.read_bytes() == before
    assert ada.read_bytes() == before


def test_earlier_decisions_are_matched_by_text_if_an_id_is_made_from_it(tmp_path: Path) -> None:
    """Category pages show no items: an earlier decision with the same text must not decide an open label."""
    choice = {"ada": "lake", "ben": "river"}
    for name, group in choice.items():
        rows = [
            Decision("Q1", "tarn", "group", group, name, NOON),
            Decision("Q2", "oxbow", "group", "river", name, NOON),
        ]
        write_decisions(tmp_path / f"{name}.csv", rows)
    out = tmp_path / "final.csv"
    earlier = [
        Decision("label-1", "Tarn", "group", "lake", "seed", NOON),
        Decision("label-2", "oxbow", "group", "lake", "seed", NOON),
        Decision("Q3", "oxbow", "group", "lake", "seed", NOON),  # another class of that name
    ]
    write_decisions(out, earlier)
    summary = not_none(adjudicate_files(tmp_path / "ada.csv", tmp_path / "ben.csv", out, AGREE_ONLY, force=True))
    assert (summary.kept, summary.changed, summary.withdrawn) == (1, 1, 1)
    final = read_decisions(out, GROUPS)
    assert {row.label_id for row in final} == {"Q2", "Q3"}
    assert DecisionIndex(final).find("Q1", "tarn") is None


def test_output_without_decisions_is_a_file(tmp_path: Path) -> None:
    ada, ben, out = (tmp_path / f"{name}.csv" for name in ("ada", "ben", "final"))
    write_decisions(ada, decide("ada", "lake").decisions.values())
    write_decisions(ben, decide("ben", "drop").decisions.values())
    assert len(not_none(adjudicate_files(ada, ben, out, AGREE_ONLY)).still_open) == 1
    assert read_decisions(out, GROUPS) == []


def test_up_to_date_output_is_not_written(tmp_path: Path) -> None:
    ada, ben = tmp_path / "ada.csv", tmp_path / "ben.csv"
    for path in (ada, ben):
        write_decisions(path, decide(path.stem, "lake drop").decisions.values())
    out = tmp_path / "final.csv"
    assert adjudicate_files(ada, ben, out, AGREE_ONLY) is not None
    written = out.stat().st_mtime_ns
    assert adjudicate_files(ada, ben, out, AGREE_ONLY) is None
    assert out.stat().st_mtime_ns == written


def test_invalid_rules_are_refused(files: tuple[Path, Path, Path, Path]) -> None:
    ada, ben, out, _ = files
    for rule in ("prefer", "ada", "", "agree"):
        with pytest.raises(ConfigurationError, match="give agree-only, most-landmarks or prefer:"):
            AdjudicateConfig(rule)
    with pytest.raises(ConfigurationError, match='prefers "cyd", but the decisions are those of ada and ben'):
        adjudicate_files(ada, ben, out, AdjudicateConfig("prefer:cyd"))
    with pytest.raises(ConfigurationError, match="`clusters`"):
        adjudicate_files(ada, ben, out, MOST_LANDMARKS)
    with pytest.raises(InputError, match="the table of clusters lacks"):
        adjudicate(ADA, BEN, MOST_LANDMARKS, {"Q0": 1})
    assert not out.exists()


def test_adjudicate_command(files: tuple[Path, Path, Path, Path]) -> None:
    ada, ben, out, clusters = files
    command = ["adjudicate", str(ada), str(ben), "-o", str(out), "--rule"]
    result = run_hgld(*command, "most-landmarks", "--clusters", clusters)
    assert result.stdout.startswith("3 labels agreed, 4 settled, 3 open\nopen:\n  label 9 (Q9)")
    run_hgld(*command, "prefer:cyd", code=1)
