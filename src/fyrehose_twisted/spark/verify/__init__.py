"""Comparing independent journals of one stream: do they agree, what does each lack, what have all together."""
