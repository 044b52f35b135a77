"""What lakeplan remembers: leases, applied records, baselines, records of sweeps."""

__all__ = ["clocks", "store", "sweeps"]
