"""The document of a mark."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakeplan.errors import FormatError
from lakeplan.sweep.mark_record import read_mark
from lakeplan.values.simulation import MarkClass
from lakeplan.values.sweep import SweepSettings
from tests.sweep.test_official import a_mark


def it_reads_a_mark_that_was_made_before_a_setting_was_added() -> None:
    """Else objects in its quarantine could not be restored."""
    mark = a_mark({MarkClass.BACKLOG: 5}, quarantine_age_seconds=3 * 86_400)
    document = json.loads(mark.to_bytes())
    for block in ("settings", "tree_settings"):
        del document[block]["quarantine_age_seconds"]
    settings = replace(mark.settings, quarantine_age_seconds=SweepSettings().quarantine_age_seconds)
    read = read_mark(json.dumps(document).encode(), name="mark.json")
    assert (read.settings, read.tree_settings) == (settings, settings)
    del document["settings"]["never_committed"]
    with pytest.raises(FormatError, match="never_committed"):
        read_mark(json.dumps(document).encode(), name="mark.json")
