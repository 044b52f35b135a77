"""Generates pages of commands, settings and gates, a picture, and the settings in the tree's schemas.

``python -P -m tools.reference FOLDER`` writes it below a checkout (``make docs``); tests hold the files to
it.
"""
