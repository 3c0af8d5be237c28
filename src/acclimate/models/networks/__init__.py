"""Small networks that are built here."""
