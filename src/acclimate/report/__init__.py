"""Charts, tables and pages that open from disk, offline."""
