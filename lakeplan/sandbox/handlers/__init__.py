"""Handlers by resource; each module lists its routes."""
