"""Settings of Sphinx; `make docs` builds with them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from diagrams import write as draw_diagrams
from maps import write as draw_maps
from repair import write as draw_repair

draw_diagrams()
draw_maps()
draw_repair()

project = "fyrehose_twisted"
author = "The fyrehose_twisted authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "fyrehose_twisted"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_default_options = {"members": True, "member-order": "bysource", "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
# Roles in docstrings name classes of Python and of Twisted, whose inventories a build would have to fetch.
nitpicky = False
# Signatures have short names, and some stand in several modules: then a link may lead to a namesake.
suppress_warnings = ["ref.python"]
