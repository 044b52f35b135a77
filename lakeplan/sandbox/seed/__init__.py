"""Histories from a small YAML, made through the lakeFS API only: they seed a real server as well."""
