"""Settings of the site, which ``make docs`` builds without network into docs/_build."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from hgld import __version__

project = "hgld"
author = "the hgld developers"
copyright = "the hgld developers, Apache License 2.0"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "reference_pages",
]
# The source folder is the checkout, so that links between documents are the same on the site as in the repository.
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/tutorials/*.md",
    "docs/tutorials/*.ipynb",
    "docs/how-to/*.md",
    "docs/explanation/*.md",
    "docs/reference/*.md",
    "docs/reference/generated/*",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "annotations/*.md",
    "benchmarks/README.md",
    "data/subsets/README.md",
    "pipelines/README.md",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
# Tests execute the notebooks; the site shows the outputs that they hold.
nb_execution_mode = "off"
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# Quotation marks and -- of options are shown as they are typed.
smartquotes = False

# Most blocks are shell commands and what they print.
highlight_language = "text"
html_theme = "furo"
html_title = f"hgld {__version__}"
html_favicon = "../hgld/templates/pages/icon.svg"
html_static_path = ["_static"]
html_extra_path = ["_extra"]  # what leads from docs/_build/index.html to the first page
html_math_renderer = "mathml"
html_css_files = ["site.css"]
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
