"""``lakeplan pins sync``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from lakeplan.cli import options
from lakeplan.cli.formats import RenderContext
from lakeplan.cli.namespaces import CacheOptions
from lakeplan.cli.options import CommandGroup, command, option
from lakeplan.cli.outputs import Outputs
from lakeplan.cli.process import check_lasting_state, this_run
from lakeplan.cli.wiring import SelectionOptions, SessionOptions
from lakeplan.output.plan import render_apply
from lakeplan.plan.apply import exit_code_of, report_document
from lakeplan.plan.pin_sync import SyncOptions, sync_pins
from lakeplan.plan.planning import Ports
from lakeplan.review.run import ApplyPorts


@command("Create missing pins and write the rules that pins need.")
def sync(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    adopt: Annotated[
        bool,
        option(
            "First, record existing hidden branches whose name and commit match a pin. Use this option"
            " if the state was lost."
        ),
    ] = False,
    outputs: Annotated[Outputs, options.documents("apply")],
    allowed: options.AllowedHere,
    opening: SessionOptions,
    runners: options.RunnerOptions,
    cache: CacheOptions,
) -> int:
    """Create missing pins and write the rules that pins need. Run this command on a schedule.

    The command does not write the tree's own rules or shorten retention. If the settings in the tree have not
    changed since the last apply, it also deletes pins that are no longer required. If the settings have
    changed, run `lakeplan plan` to review what would be deleted.

    \b
    Examples:
      lakeplan pins sync
      lakeplan pins sync --target analytics
      lakeplan pins sync --adopt
    """
    outputs.check_files()
    session = opening.session(tree, runners=runners, cache=cache)
    check_lasting_state(session.tree.state_url, os.environ)  # what is not on record is never deleted
    report = sync_pins(
        session.tree,
        SyncOptions(selection, allowed, adopt),
        Ports(session.reader, session.simulator, session.progress, pins=session.pins()),
        ApplyPorts(session.connection, session.state(), session.progress, tree=session.tree.name),
        this_run(tree, session.tree),
    )
    return outputs.emit(
        report_document(report),
        render_apply,
        RenderContext.of(session.tree),
        code=exit_code_of(report),
        sort_keys=True,
    )


pins = CommandGroup({"sync": sync})
