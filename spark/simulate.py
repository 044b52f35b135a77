"""spark-submit entry of ``lakeplan simulate``: the same arguments, the cluster's session.

spark-submit --py-files lakeplan.whl spark/simulate.py --namespace s3://… --rules rules.json --output DIR
"""

import os
import sys

# Python looks for modules beside a script first, which may be in a checkout. os and sys are loaded already.
_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) != _HERE]

from lakeplan.cli.main import run  # noqa: E402

if __name__ == "__main__":
    sys.exit(run(["simulate", *sys.argv[1:]]))
