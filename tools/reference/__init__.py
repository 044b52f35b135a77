"""What is made from the program: pages of commands, settings and gates, a computed picture, and the settings
in the schemas of a tree.

``python -P -m tools.reference FOLDER`` writes it below a checkout (``make docs``); tests hold the files to
it.
"""
