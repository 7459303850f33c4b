"""Extension modules, which mypyc makes of pure modules if FYREHOSE_COMPILE is 1. All else is in setup.cfg."""

import os
import sys

from setuptools import setup

# Metadata are asked for before the wheel, and do not depend on the extensions.
if os.environ.get("FYREHOSE_COMPILE") == "1" and "bdist_wheel" in sys.argv:
    from compiled_modules import extensions

    setup(ext_modules=extensions(), options={"build_ext": {"parallel": os.cpu_count()}})
else:
    setup()
