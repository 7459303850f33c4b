"""Command ``fyrehose doctor``: checks of the machine that the services run on.

Reading and assessment are separate: ``assess_...`` functions take what was read. No protocol is imported.
"""
