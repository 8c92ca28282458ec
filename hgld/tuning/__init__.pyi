from .search import SearchSummary as SearchSummary
from .search import Trial as Trial
from .search import tune as tune
from .space import Dimension as Dimension
from .space import parse_dimension as parse_dimension
