"""How much is tried by the tests in ``tests/fuzz``, and how files are damaged there."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TIMES = int(os.environ.get("ACCLIMATE_FUZZ", "0"))
"""How many times as many cases as ``./check`` tries, drawn anew each time; 0 is its fixed few."""


def cases(count: int) -> settings:
    """So many cases, the same each time, in ``./check``; ``./check --fuzz`` has other ones."""
    return settings(
        max_examples=count * max(1, TIMES),
        derandomize=not TIMES,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


WORDS = st.sampled_from(
    ["", "none", "nan", "-1", "../..", "\x1b[31m", "\r\n", "é\ud800", "a" * 300]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2**31, 2**70, 0.5, float("nan"), float("inf"), -1e308]),
    st.floats(),
    WORDS,
    st.text(max_size=5),
    st.builds(list),
    st.builds(dict),
    st.builds(lambda: [[], {}, None]),
    st.builds(lambda: {"": {"a": None}}),
)


def others(value: Any) -> st.SearchStrategy[Any]:
    """Another value, of the same kind more often than not."""
    kinds: dict[type, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(-1, 5),
        float: st.floats(-1, 2),
        str: st.one_of(WORDS, st.just(f"{value}x"), st.just(f"{value}"[:-1])),
    }
    fitting = kinds.get(type(value), st.none())
    return st.one_of(fitting, fitting, VALUES)


@st.composite
def damaged_values(draw: st.DrawFn, value: Any) -> Any:
    """A plain value in which a part or two are others, gone, or under another name."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        if not isinstance(value, dict | list) or not value or draw(st.integers(0, 50)) == 0:
            return draw(VALUES)
        place: Any = value
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw(st.sampled_from(keys))
            inner = place[key]
            if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 4)) == 0:
                break
            place = inner
        what = draw(st.sampled_from(["other", "other", "other", "gone", "renamed", "twice"]))
        if what == "other":
            place[key] = draw(others(inner))
        elif what == "gone":
            del place[key]
        elif isinstance(place, list):
            place.append(copy.deepcopy(inner))
        else:
            place[draw(st.one_of(WORDS, st.text(max_size=5)))] = copy.deepcopy(inner)
            if what == "renamed":
                place.pop(key, None)
    return value


def damaged_json(value: Any) -> st.SearchStrategy[bytes]:
    """A JSON file whose value, or whose bytes, are damaged."""
    text = st.one_of(damaged_values(value).map(json.dumps), st.just(json.dumps(value)))
    whole = damaged_values(value).map(lambda each: json.dumps(each).encode())
    return st.one_of(whole, whole, text.flatmap(lambda each: damaged_bytes(each.encode())))


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """A file that was cut, overwritten, or lost or won some bytes."""
    for _ in range(draw(st.sampled_from([1, 1, 2, 4]))):
        at = draw(st.integers(0, len(content)))
        what = draw(st.sampled_from(["cut", "other", "gone", "more", "zeros"]))
        if what == "cut":
            content = content[:at]
        elif what == "gone":
            content = content[:at] + content[at + draw(st.integers(1, 64)) :]
        elif what == "zeros":
            content = content[:at] + bytes(len(content[at : at + 512])) + content[at + 512 :]
        else:
            new = draw(st.binary(min_size=1, max_size=8))
            content = content[:at] + new + content[at + (len(new) if what == "other" else 0) :]
    return content
