"""``python -m lakeplan``."""

from lakeplan.cli.main import main

main()
