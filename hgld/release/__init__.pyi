from .checksums import verify_checksums as verify_checksums
from .publish import ReleaseConfig as ReleaseConfig
from .publish import ReleaseSummary as ReleaseSummary
from .publish import write_release as write_release
