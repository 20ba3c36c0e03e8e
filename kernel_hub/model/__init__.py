"""Values: parse, format, compare. Pure, and free of I/O. Import from the modules; this package re-exports nothing."""
