"""Published methods that need more than a combination of the common parts."""
