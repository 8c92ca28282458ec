import numpy as np
import pytest

from hgld.evaluation import RetrievalResult, evaluate_retrieval


@pytest.fixture(scope="session")
def evaluated() -> RetrievalResult:
    """Leave-one-out over 240 random embeddings with three levels."""
    rng = np.random.default_rng(0)
    rows = np.arange(240)
    return evaluate_retrieval(rng.normal(size=(240, 8)), np.stack([rows // 3, rows // 24, rows // 120], axis=1))
