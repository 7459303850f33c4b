"""Measurements of trees and of routing."""
