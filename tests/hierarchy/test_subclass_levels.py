from hypothesis import given
from hypothesis import strategies as st

from hgld.hierarchy.subclass_levels import subclass_levels
from hgld.taxonomy.groups import Group

ITEMS = [f"Q{n}" for n in range(1, 13)]


def natural(name: str, *items: str) -> Group:
    return Group(name, "natural", "-", items)


def test_the_nearest_shared_class_is_taken() -> None:
    groups = [natural("lake", "Q1"), natural("river", "Q2"), natural("beach", "Q3")]
    parents = {"Q1": ["Q10"], "Q2": ["Q11"], "Q11": ["Q10"], "Q10": ["Q12"], "Q3": ["Q12"]}
    labels = {"Q10": "body of water", "Q11": "watercourse", "Q12": "geographical feature"}
    assert subclass_levels(groups, parents, labels, 2) == {
        "lake": ("body of water", "geographical feature"),
        "river": ("body of water", "geographical feature"),
        "beach": ("geographical feature", "geographical feature"),
    }


def test_group_above_other_groups_keeps_its_class() -> None:
    groups = [natural("volcano", "Q1"), natural("mountain", "Q2"), natural("lake", "Q3")]
    parents = {"Q1": ["Q2"], "Q2": ["Q4"], "Q3": ["Q4"]}
    labels = {"Q2": "mountain", "Q4": "landform"}
    result = subclass_levels(groups, parents, labels, 2)
    assert result["volcano"] == result["mountain"] == ("mountain", "landform")
    assert result["lake"] == ("landform", "landform")


def test_ties_prefer_most_specific_then_first_class() -> None:
    groups = [natural(name, item) for name, item in (("a", "Q1"), ("b", "Q2"), ("c", "Q3"))]
    wide_and_narrow = {"Q1": ["Q9", "Q10"], "Q2": ["Q9", "Q10"], "Q3": ["Q9"]}
    result = subclass_levels(groups, wide_and_narrow, {"Q9": "wide", "Q10": "narrow"}, 1)
    assert result == {"a": ("narrow",), "b": ("narrow",), "c": ("wide",)}
    two_alike = {"Q1": ["Q10", "Q9"], "Q2": ["Q9", "Q10"]}
    assert subclass_levels(groups[:2], two_alike, {}, 1) == {"a": ("Q9",), "b": ("Q9",)}


def test_the_nearest_class_is_taken_even_if_a_farther_one_is_more_specific() -> None:
    groups = [natural(name, item) for name, item in (("a", "Q1"), ("b", "Q2"), ("c", "Q3"))]
    parents = {"Q1": ["Q9", "Q7"], "Q2": ["Q9", "Q6"], "Q3": ["Q9"], "Q7": ["Q10"], "Q6": ["Q10"]}
    result = subclass_levels(groups, parents, {"Q9": "wide", "Q10": "narrow"}, 1)
    assert result == {"a": ("wide",), "b": ("wide",), "c": ("wide",)}


def test_ambiguous_names_are_qualified() -> None:
    groups = [
        natural("a", "Q1"),
        natural("b", "Q2"),
        *(
            Group(name, "human-made", "-", (item,))
            for name, item in zip("cdef", ("Q3", "Q4", "Q5", "Q6"), strict=True)
        ),
    ]
    parents = {"Q1": ["Q9"], "Q2": ["Q9"], "Q3": ["Q9"], "Q4": ["Q9"], "Q5": ["Q8"], "Q6": ["Q8"]}
    result = subclass_levels(groups, parents, {"Q9": "thing", "Q8": "thing"}, 1)
    assert result["a"] == result["b"] == ("thing (natural)",)
    assert result["c"] == result["d"] == ("thing (human-made, Q9)",)
    assert result["e"] == result["f"] == ("thing (human-made, Q8)",)


@given(
    st.dictionaries(st.sampled_from(ITEMS), st.lists(st.sampled_from(ITEMS), max_size=3)),
    st.lists(
        st.tuples(st.sampled_from(["natural", "human-made"]), st.lists(st.sampled_from(ITEMS), max_size=2)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 3),
)
def test_levels_are_nested_whatever_p279_says(
    parents: dict[str, list[str]], roots_and_items: list[tuple[str, list[str]]], n_levels: int
) -> None:
    groups = [Group(f"g{n}", root, "-", tuple(items)) for n, (root, items) in enumerate(roots_and_items)]
    labels = {item: f"class {n % 4}" for n, item in enumerate(ITEMS)}
    result = subclass_levels(groups, parents, labels, n_levels)
    chains = [(group.name, *result[group.name], group.root) for group in groups]
    assert {len(chain) for chain in chains} == {n_levels + 2}
    for finer in range(n_levels + 1):
        assert len({chain[finer] for chain in chains}) == len({chain[finer : finer + 2] for chain in chains})
    further = subclass_levels(groups, parents, labels, n_levels + 1)
    assert {name: names[:n_levels] for name, names in further.items()} == result
