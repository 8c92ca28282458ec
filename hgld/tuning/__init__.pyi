from .search import Dimension as Dimension
from .search import SearchSummary as SearchSummary
from .search import Trial as Trial
from .search import parse_dimension as parse_dimension
from .search import tune as tune
