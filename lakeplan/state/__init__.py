"""The state: leases, applied records, baselines, forecasts, the history, records of sweeps."""

__all__ = ["clocks", "store", "sweeps"]
