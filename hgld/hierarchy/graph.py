"""The tree of a hierarchy as a networkx graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hgld.errors import ConfigurationError

if TYPE_CHECKING:
    from hgld.hierarchy.tree import Hierarchy


def hierarchy_graph(hierarchy: Hierarchy, *, landmarks: bool) -> Any:
    """See :meth:`hgld.hierarchy.Hierarchy.to_networkx`."""
    try:
        import networkx as nx
    except ImportError as error:
        raise ConfigurationError(
            "networkx is not installed; type pip install '.[networkx]' in a clone of hgld"
        ) from error
    graph = nx.DiGraph()
    graph.add_node((0, "all"), level=0, level_name="all", name="all", n_landmarks=len(hierarchy))
    for level in range(1, hierarchy.n_levels + landmarks):
        column = hierarchy.column(level)
        names = hierarchy.names(level)
        first_rows = np.unique(hierarchy.labels[:, column], return_index=True)[1]
        parents = hierarchy.names_by_row(level - 1, first_rows) if level > 1 else ["all"] * len(names)
        counts = np.bincount(hierarchy.labels[:, column]).tolist()
        for name, parent, count in zip(names, parents, counts, strict=True):
            level_name = hierarchy.level_names[column]
            graph.add_node((level, name), level=level, level_name=level_name, name=name, n_landmarks=count)
            graph.add_edge((level - 1, parent), (level, name))
    return graph
