"""What lakeplan remembers: leases, applied records, records of sweeps."""
