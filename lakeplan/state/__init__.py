"""What lakeplan remembers: leases, applied records, records of sweeps."""

__all__ = ["clocks", "store", "sweeps"]
