"""Trials: networks that grow, are used and hurt, and are measured."""
