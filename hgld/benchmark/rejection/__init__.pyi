from .comparison import RejectionComparison as RejectionComparison
from .comparison import compare_rejection as compare_rejection
from .settings import RejectionSettings as RejectionSettings
from .settings import read_rejection_settings as read_rejection_settings
