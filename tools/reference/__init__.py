"""Pages of the documentation that are made from the program: commands, settings, and a computed picture.

``python -P -m tools.reference FOLDER`` writes them (``make docs``); tests hold the files to it.
"""
