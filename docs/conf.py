"""Sphinx settings for `make docs`."""

import builtins
import os
import sys
from configparser import ConfigParser
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
settings = ConfigParser()
settings.read(Path(__file__).parents[1] / "setup.cfg", encoding="utf-8")
version = release = os.environ.get("DOCS_VERSION") or settings["metadata"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"fyrehose_twisted {release}"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
        "versions.html",
    ]
}
# Several versions side by side (docs/versions.py) have a list of them one directory above.
html_context = {"other_versions": "DOCS_VERSION" in os.environ}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_default_options = {"members": True, "member-order": "bysource", "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
# Docstrings link to classes of Python and Twisted; resolving them would need their inventories from the network.
nitpicky = False


def resolve_names(app: Sphinx, document: Any) -> None:
    """Let names in signatures lead to what they mean in their module.

    A name that several modules define is ambiguous to Sphinx. Links from built-in names, such as ``type``, which would
    lead to attributes of that name, are removed.
    """
    for link in list(document.findall(pending_xref)):
        name = link.get("reftarget")
        if link.get("refdomain") != "py":
            continue
        if name in vars(builtins):
            link.replace_self(link.children)
            continue
        meant = getattr(sys.modules.get(link.get("py:module") or ""), name, None)
        if isinstance(meant, type):
            link["reftarget"] = f"{meant.__module__}.{meant.__qualname__}"


def setup(app: Sphinx) -> None:
    """Register the handlers of this file."""
    app.connect("doctree-read", resolve_names)
