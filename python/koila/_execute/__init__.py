"""Runs captured programs as they were planned: whole, or in tiles."""
