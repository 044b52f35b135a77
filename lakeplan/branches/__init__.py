"""Branch policies on open-source servers: observations, verdicts, deletion, undo."""
