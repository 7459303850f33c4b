"""HTML report on a comparison of journals and on the pipeline's tables."""
