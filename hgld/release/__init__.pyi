from .facts import ReleaseSettings as ReleaseSettings
from .facts import write_questions as write_questions
from .publish import ReleaseSummary as ReleaseSummary
from .publish import verify_checksums as verify_checksums
from .publish import write_release as write_release
