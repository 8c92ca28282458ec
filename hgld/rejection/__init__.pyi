from .classifiers import LinearClassifier as LinearClassifier
from .detection_metrics import detection_metrics as detection_metrics
from .detector import Detector as Detector
from .registry import DETECTORS as DETECTORS
from .registry import build_detector as build_detector
