"""The spark-submit entry point of ``lakeplan simulate``: the same arguments, but the cluster's session.

spark-submit --py-files lakeplan.whl spark/simulate.py --namespace s3://… --rules rules.json --output DIR
"""

import os
import sys

# Python searches the script's folder, which may be in a checkout, first. os and sys are already loaded.
_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) != _HERE]

from lakeplan.cli.main import run  # noqa: E402

if __name__ == "__main__":
    sys.exit(run(["simulate", *sys.argv[1:]]))
