"""spark-submit entry of ``lakeplan simulate``: the same arguments, the cluster's session.

spark-submit --py-files lakeplan.whl spark/simulate.py --namespace s3://… --rules rules.json --output DIR
"""

import sys

from lakeplan.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["simulate", *sys.argv[1:]]))
