"""How a mark differs from what the plan of the rules said would expire."""

from __future__ import annotations

from typing import Literal

from lakeplan.errors import FormatError
from lakeplan.state.forecasts import read_forecast
from lakeplan.state.store import read_applied
from lakeplan.stores.protocols import StateReader
from lakeplan.sweep.documents import ForecastRow
from lakeplan.sweep.values import Mark
from lakeplan.values.records import utc_text
from lakeplan.values.sweep import MarkClass


def forecast_of(state: StateReader, mark: Mark) -> ForecastRow | None:
    """None when no plan is on record for the mark's rules, or its record is damaged."""
    try:
        forecast, applied = read_forecast(state, mark.key), read_applied(state, mark.key)
    except FormatError:
        return None
    if forecast is None or applied is None or not forecast.expire:
        return None
    record, _ = applied
    if record.get("run_id") != forecast.run_id or record.get("etag") != mark.rules.etag:
        return None
    at, found = mark.looked_at, mark.marked.amount(MarkClass.NEWLY_EXPIRED)
    least = next((amount for moment, amount in reversed(forecast.expire) if moment <= at), None)
    most = next((amount for moment, amount in forecast.expire if moment >= at), None)
    differs: Literal["more", "fewer", "no"] = "no"
    if most is not None and (found.objects > most.objects or found.size_bytes > most.size_bytes):
        differs = "more"
    elif least is not None and found.objects < least.objects:
        differs = "fewer"
    return {
        "plan_digest": forecast.plan_digest,
        "as_of": utc_text(forecast.expire[0][0]),
        "least": None if least is None else least.to_row(),
        "most": None if most is None else most.to_row(),
        "found": found.to_row(),
        "differs": differs,
    }
