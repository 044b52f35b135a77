"""Verdicts and ranges become objects and bytes: steps, runners, cache, curve."""

__all__ = [
    "archive",
    "cache",
    "checking",
    "curve",
    "documents",
    "foreign",
    "impact",
    "inputs",
    "listings",
    "marking",
    "requests",
    "run",
    "runners",
    "spark",
    "verdicts",
]
