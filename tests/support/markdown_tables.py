"""Markdown tables, read back."""

from __future__ import annotations


def table_of(text: str) -> list[list[str]]:
    """The cells of a table, line by line, without the rule under its head."""
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[word.strip() for word in line.strip("|").split("|")] for line in lines]
