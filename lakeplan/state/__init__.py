"""What lakeplan remembers: leases, applied records, baselines, records of sweeps."""

__all__ = ["baselines", "clocks", "store", "sweeps"]
