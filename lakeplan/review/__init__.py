"""What plans, branches and sweeps share: selection, gates, overrides, ceiling, strictness."""
