"""What a finished build must satisfy. Import from the modules; this package re-exports nothing."""
