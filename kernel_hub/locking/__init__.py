"""Locks of a project: declare, make, find, check, export. Import from the modules; this package re-exports nothing."""
