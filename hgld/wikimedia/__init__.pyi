from .categories import LandmarkCategory as LandmarkCategory
from .categories import read_categories as read_categories
from .client import ClientConfig as ClientConfig
from .client import WikimediaClient as WikimediaClient
from .scraper import ScrapeConfig as ScrapeConfig
from .scraper import ScrapeSummary as ScrapeSummary
from .scraper import scrape_file as scrape_file
