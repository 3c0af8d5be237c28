"""Which tables a name asks for."""

from __future__ import annotations

import pytest

from acclimate.errors import AcclimateError
from acclimate.paper import find_tables
from acclimate.paper.tables import tables


def labels(name: str) -> list[str]:
    return [table.label for table in find_tables(name)]


def test_a_label_with_or_without_its_prefix():
    assert labels("tbl:table-2") == labels("table-2") == ["tbl:table-2"]
    assert labels("learning_rate") == ["learning_rate"]


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.label)
def test_every_label_is_found(table):
    assert labels(table.label) == [table.label]


def test_an_alias_is_the_table():
    assert labels("tab:my_label") == labels("my_label") == ["tbl:app-bit-tuning"]


def test_wildcards():
    assert labels("*bit*") == ["tbl:app-bit-tuning", "tbl:app-bit-final"]
    assert len(labels("*")) == 50


def test_a_wrong_name_is_told_the_nearest():
    with pytest.raises(AcclimateError, match="did you mean 'tbl:groupnorm'"):
        find_tables("tbl:gruopnorm")
    with pytest.raises(AcclimateError, match="did you mean 'groupnorm'"):
        find_tables("groupnrom")
