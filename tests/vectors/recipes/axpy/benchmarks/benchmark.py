"""Nothing is measured here; the file is there to be published."""
