"""A plan in a YAML file, with the names of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from acclimate.errors import AcclimateError, unknown_name

__all__ = ["read_plan"]

_MANY = {
    "model": "models",
    "dataset": "datasets",
    "recipe": "recipes",
    "seed": "seeds",
    "setting": "settings",
}
_BY_NAME = {"root": "roots", "weights": "weights"}
_NAMES = {
    **_MANY,
    **_BY_NAME,
    "shift": "shifts",
    "set": "options",
    "images": "images",
    "forgetting": "forgetting",
    "split": "split",
}
_REQUIRED = ("model", "dataset")
_HOW = ("choice", "device", "engine", "score", "speed", "store", "workers")


def read_plan(path: str | Path) -> dict[str, Any]:
    """The fields of a plan. All mistakes are told at once."""
    plain = _read(Path(path).expanduser())
    found: list[str] = []
    values: dict[str, Any] = {}
    for given, value in plain.items():
        name = _singular(str(given))
        if name not in _NAMES:
            found.append(_unknown(str(given)))
        elif _NAMES[name] in values:
            found.append(f"expected {name} once, got it as {given} too")
        else:
            try:
                values[_NAMES[name]] = _value(name, value, plain)
            except AcclimateError as error:
                found.append(str(error))
    given_names = {_singular(str(name)) for name in plain}
    missing = [name for name in _REQUIRED if name not in given_names]
    found += [f"expected {name}: in the plan, got none" for name in missing]
    if found:
        raise AcclimateError(f"{path} is no plan:" + "".join(f"\n  - {each}" for each in found))
    return values


def _unknown(name: str) -> str:
    if name in _HOW:
        return f"a plan says what is run, not how: expected --{name} on the command line, got a key"
    return str(unknown_name("key", name, _NAMES))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AcclimateError(f"cannot read the plan {path}: {reason}") from error
    except yaml.YAMLError as error:
        words = " ".join(str(error).split())
        raise AcclimateError(f"{path} is not YAML: {words}") from error
    if not isinstance(plain, Mapping):
        raise AcclimateError(
            f"expected a plan with lines such as 'model: acclimate:wrn-40-2' in {path}, got "
            f"{type(plain).__name__}"
        )
    return plain


def _singular(name: str) -> str:
    """models for model, and so on, as the fields of a Plan are called."""
    plural = {many: one for one, many in _NAMES.items()} | {"images-per-shift": "images"}
    return plural.get(name, name)


def _value(name: str, value: Any, plain: Mapping[str, Any]) -> Any:
    if name in _MANY:
        read = _whole if name == "seed" else _word
        return [read(name, each) for each in _listed(value)]
    if name == "shift":
        if isinstance(value, Mapping):
            return {str(k): [_word(name, w) for w in _listed(v)] for k, v in value.items()}
        return [_word(name, each) for each in _listed(value)]
    if name in _BY_NAME:
        return _by_name(name, value, plain)
    if name == "set" and not isinstance(value, Mapping):
        raise AcclimateError(f"set: expected options such as optimizer.lr: [1e-3], got {value!r}")
    if name == "set":
        for option, below in value.items():
            for word in (option, *(below if isinstance(below, Mapping) else ())):
                _word(name, word)
    if name == "split" and value is not None:
        return _word(name, value)
    if name == "forgetting" and not isinstance(value, bool):
        raise AcclimateError(f"forgetting: expected true or false, got {value!r}")
    if name == "images":
        return None if value is None else _whole(name, value)
    return value


def _by_name(name: str, value: Any, plain: Mapping[str, Any]) -> dict[str, str]:
    """A folder may hold several data sets, where a file of weights is of one model."""
    if isinstance(value, Mapping):
        return {str(each): _word(name, path) for each, path in value.items()}
    value = _word(name, value)
    owner = "dataset" if name == "root" else "model"
    owners = _listed(plain.get(owner, plain.get(_MANY[owner])))
    if owner == "model" and len(owners) != 1:
        raise AcclimateError(
            f"{name}: expected a path for each {owner} ({', '.join(map(str, owners))}), got "
            f"{value!r}"
        )
    return {str(each): value for each in owners}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _word(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise AcclimateError(f"{name}: expected a name, got {value!r}")
    return value


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise AcclimateError(f"{name}: expected a whole number, got {value!r}")
    return value
