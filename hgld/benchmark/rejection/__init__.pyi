from .comparison import RejectionPlan as RejectionPlan
from .comparison import RejectionSummary as RejectionSummary
from .comparison import compare_rejection as compare_rejection
from .comparison import plan_comparison as plan_comparison
from .settings import RejectionSettings as RejectionSettings
from .settings import read_rejection_settings as read_rejection_settings
