from .client import WikimediaClient as WikimediaClient
from .scrape_files import LandmarkCategory as LandmarkCategory
from .scrape_files import read_categories as read_categories
from .scraper import ScrapeSummary as ScrapeSummary
from .scraper import scrape_file as scrape_file
from .settings import ClientConfig as ClientConfig
from .settings import ScrapeConfig as ScrapeConfig
