from .altered_copies import COPIES as COPIES
from .altered_copies import measure_recall as measure_recall
from .duplicates import Duplicates as Duplicates
from .duplicates import DuplicatesConfig as DuplicatesConfig
from .duplicates import find_duplicates as find_duplicates
from .duplicates import read_thumbnails as read_thumbnails
from .duplicates import thumbnail_correlations as thumbnail_correlations
