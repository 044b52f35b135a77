"""The ``lakeplan`` command.

Nothing is imported from the current folder, whose files may be untrusted. ``python -m lakeplan`` looks
there before this line runs, so it cannot protect itself: use the ``lakeplan`` command, or
``python -P -m lakeplan``.
"""

import os
import sys

# Before anything else is imported; os and sys are loaded already.
_HERE = os.path.realpath(os.curdir)
sys.path[:] = [entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) != _HERE]

from lakeplan.cli.main import main  # noqa: E402
from lakeplan.values.local import hide_pandas  # noqa: E402

hide_pandas()

if __name__ == "__main__":
    main()
