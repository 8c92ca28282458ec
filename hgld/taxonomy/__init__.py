"""Groups and their roots, the vocabulary, decisions on labels, and the identity of labels."""

from hgld.taxonomy.decisions import DECISIONS, Decision, DecisionIndex, read_decisions, write_decisions
from hgld.taxonomy.groups import Group, VocabularyTerm, read_taxonomy, read_vocabulary, write_taxonomy
from hgld.taxonomy.label_identity import label_id, normalise_label, unify_labels

__all__ = [
    "DECISIONS",
    "Decision",
    "DecisionIndex",
    "Group",
    "VocabularyTerm",
    "label_id",
    "normalise_label",
    "read_decisions",
    "read_taxonomy",
    "read_vocabulary",
    "unify_labels",
    "write_decisions",
    "write_taxonomy",
]


def __dir__() -> list[str]:
    return __all__
