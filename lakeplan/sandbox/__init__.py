"""An embedded lakeFS: an HTTP server on 127.0.0.1 that speaks the part of the lakeFS API lakeplan uses, and
keeps a real storage namespace (SSTables, refs dumps, Parquet, CSV) under ``D/NAME`` for ``local://NAME``.

``server.start_sandbox`` starts one; ``table.routes_of`` lists every route it answers. Statuses, messages and
quirks are those observed on a real server, and ``tests/contract`` runs the same suite against both.

Left out, so answered as routes that do not exist (404 ``invalid API endpoint``): users, groups, policies and
logins (there is one access key); imports; refs restore and repository restore; presigned multipart uploads;
``objects/stat/user_metadata``, ``underlyingProperties``, ``stage_allowed`` and symlinks; commit records
(``POST …/commits``); actions and hooks; closing and merging pull requests; statistics and usage reports; the
deprecated twins ``gc/rules`` and ``branch_protection`` of the settings.
Parameters that are not looked at: ``presign`` of uploads and of objects, ``no_tombstone``, ``search``,
``objects`` and ``prefixes`` of the log; ``force``, except of merges and of deleting a read-only repository.

What differs from a server on an object store: writes and deletions are seen at once (a real one keeps
repositories and settings cached for seconds), asynchronous tasks are done when they are started, nothing is
cleaned up behind a deleted repository.
"""

from lakeplan.sandbox.faults import Faults, Recorded
from lakeplan.sandbox.server import SandboxHandle, start_sandbox
from lakeplan.sandbox.service import Flavor, Options

__all__ = ["Faults", "Flavor", "Options", "Recorded", "SandboxHandle", "start_sandbox"]
