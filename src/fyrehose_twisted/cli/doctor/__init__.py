"""``fyrehose doctor``: what of a machine the services depend on, how it stands there, and what to change.

Reading and judging are apart: ``judge_...`` takes what was read and says what it means. No wing is imported.
"""
