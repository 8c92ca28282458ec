from .search import Dimension as Dimension
from .search import SearchSummary as SearchSummary
from .search import Trial as Trial
from .search import is_comparison as is_comparison
from .search import parse_dimension as parse_dimension
from .search import tune as tune
from .search import tune_methods as tune_methods
