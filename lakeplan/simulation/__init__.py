"""Verdicts and ranges become objects and bytes: steps, runners, cache, curve."""
