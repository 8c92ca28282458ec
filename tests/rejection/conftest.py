import pytest

from hgld.rejection import DETECTORS, Detector, build_detector
from tests.rejection.test_detectors import FAST, index_images


@pytest.fixture(scope="session", params=DETECTORS)
def fitted(request: pytest.FixtureRequest) -> Detector:
    """Each score with its default options, but for those of training, fitted on the index."""
    return build_detector(request.param, FAST.get(request.param)).fit(**index_images())
