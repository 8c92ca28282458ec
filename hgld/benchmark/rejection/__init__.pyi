from .comparison import RejectionSummary as RejectionSummary
from .comparison import compare_rejection as compare_rejection
from .comparison_settings import RejectionSettings as RejectionSettings
from .comparison_settings import read_rejection_settings as read_rejection_settings
from .plan import RejectionPlan as RejectionPlan
from .plan import plan_comparison as plan_comparison
