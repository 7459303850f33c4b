"""Sphinx settings for `make docs`."""

import builtins
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from diagrams import write as draw_diagrams
from maps import write as draw_maps
from renames import write as write_renames
from repair import write as draw_repair
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

draw_diagrams()
draw_maps()
draw_repair()
write_renames()

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
# Docstrings link to classes of Python and Twisted; resolving them would need their inventories from the network.
nitpicky = False


def unlink_builtins(app: Sphinx, document: Any) -> None:
    """Remove links from built-in names in signatures, such as ``type``, which would lead to attributes of that name."""
    for link in list(document.findall(pending_xref)):
        if link.get("refdomain") == "py" and link.get("reftarget") in vars(builtins):
            link.replace_self(link.children)


def setup(app: Sphinx) -> None:
    """Register the handlers of this file."""
    app.connect("doctree-read", unlink_builtins)
