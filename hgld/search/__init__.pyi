from .gallery import Gallery as Gallery
from .gallery import read_gallery as read_gallery
from .query_model import QueryModel as QueryModel
from .query_model import load_query_model as load_query_model
from .searcher import Answers as Answers
from .searcher import Searcher as Searcher
