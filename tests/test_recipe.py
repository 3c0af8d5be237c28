"""A method as data: named, changed by options, stored, and opened to users."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.methods.registry import RECIPES, get_recipe, list_recipes, register_recipe
from acclimate.parts.base import PARTS
from acclimate.parts.objectives import CrossEntropy, GeneralizedCrossEntropy
from acclimate.parts.optimizers import SGD, Adam
from acclimate.parts.regularizers import Regularizer
from acclimate.parts.teachers import Epoch, Instant, MovingAverage
from acclimate.recipe import Recipe
from acclimate.registry import Registry, parse_assignments, parse_value

NAMES = ["none", "bn", "bn-prior", "ent", "hard", "soft", "rpl", "rpl-epoch", "dino"]


@pytest.fixture(autouse=True)
def _leave_the_tables_as_they_were() -> Iterator[None]:
    tables: list[Registry[Any]] = [RECIPES, *PARTS.values()]
    before = [dict(table._entries) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table._entries = entries


# Named recipes


@pytest.mark.parametrize("name", NAMES)
def test_every_named_recipe_survives_json(name: str) -> None:
    recipe = get_recipe(name)
    assert recipe.name == name
    assert recipe.summary
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_the_papers_methods_are_made_of_the_papers_parts() -> None:
    assert get_recipe("ent").objective == CrossEntropy(stop_gradient=False)
    assert get_recipe("hard").objective == CrossEntropy(teacher_temperature=0.0)
    assert get_recipe("rpl").objective == GeneralizedCrossEntropy(q=0.8)
    assert get_recipe("rpl").teacher == Instant()
    assert get_recipe("rpl-epoch").teacher == Epoch()
    assert [get_recipe(name).learns for name in ("none", "bn", "bn-prior")] == [False] * 3


def test_a_recipes_parts_can_be_pasted_back() -> None:
    part = get_recipe("rpl").objective
    assert eval(repr(part), {"GeneralizedCrossEntropy": GeneralizedCrossEntropy}) == part


def test_listing_takes_wildcards() -> None:
    assert {"ent", "rpl", "dino"} <= {r.name for r in list_recipes()}
    assert [r.name for r in list_recipes("rpl*")] == ["rpl", "rpl-epoch"]


def test_an_unknown_recipe_suggests_the_nearest() -> None:
    with pytest.raises(AcclimateError, match=r"unknown recipe 'rlp'; did you mean 'rpl'\?"):
        get_recipe("rlp")


def test_something_else_than_a_recipe_is_refused() -> None:
    with pytest.raises(AcclimateError, match="expected a recipe's name or a Recipe, got int"):
        get_recipe(3)


# Options


def test_options_change_parts_and_their_options_whatever_their_order() -> None:
    recipe = get_recipe(
        "rpl",
        {
            "teacher.momentum": "0.9",
            "teacher": "moving-average",
            "objective.q": "0.5",
            "optimizer": "adam",
            "optimizer.lr": "1e-4",
            "epochs": "7",
        },
    )
    assert recipe.teacher == MovingAverage(momentum=0.9)
    assert recipe.objective == GeneralizedCrossEntropy(q=0.5)
    assert recipe.optimizer == Adam(lr=1e-4)
    assert recipe.epochs == 7
    assert get_recipe("rpl").epochs == 5, "the named recipe itself must not change"


def test_options_that_only_fit_together_fit_together() -> None:
    recipe = get_recipe("ent", {"teacher": "epoch", "objective.stop_gradient": "true"})
    assert recipe.teacher == Epoch()
    sgd = {"optimizer.momentum": 0.5, "optimizer.nesterov": True}
    base = get_recipe("ent", {"optimizer": SGD(momentum=0)})
    assert base.with_options(sgd).optimizer == SGD(momentum=0.5, nesterov=True)


def test_parts_may_be_given_as_objects_for_their_own_slot_only() -> None:
    assert get_recipe("rpl", {"teacher": Epoch()}).teacher == Epoch()
    with pytest.raises(AcclimateError, match=r"as objective, got Epoch\(\)"):
        get_recipe("rpl", {"objective": Epoch()})


def test_an_objective_can_be_taken_away() -> None:
    assert not get_recipe("rpl", {"objective": "none"}).learns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimiser.lr": 1}, r"unknown option 'optimiser.lr'; did you mean 'optimizer'\?"),
        ({"epoch": 1}, r"unknown option 'epoch'; did you mean 'epochs'\?"),
        ({"epochs.lr": 1}, r"unknown option 'epochs.lr'"),
        ({"teacher": "epcoh"}, r"unknown teacher 'epcoh'; did you mean 'epoch'\?"),
        (
            {"objective.Q": 0.5},
            r"unknown option of objective 'generalized-cross-entropy' 'Q'; did you mean 'q'\?",
        ),
        ({"objective.q": "much"}, r"objective.q: expected float, got 'much'"),
        ({"epochs": "two"}, r"epochs: expected int, got 'two'"),
        ({"epochs": 2.5}, r"epochs: expected int, got 2.5"),
        ({"epochs": 0}, r"expected epochs >= 1, got 0"),
        ({"batch_size": -4}, r"expected batch_size >= 1, got -4"),
        ({"optimizer.nesterov": "maybe"}, r"optimizer.nesterov: expected bool, got 'maybe'"),
        ({"optimizer.lr": "nan"}, r"expected lr >= 0, got nan"),
        ({"optimizer.lr": "inf"}, r"expected lr >= 0, got inf"),
        ({"optimizer.lr": -1}, r"expected lr >= 0, got -1"),
        ({"optimizer.momentum": 0, "optimizer.nesterov": True}, r"expected momentum > 0, got 0"),
        ({"optimizer": "adam", "optimizer.beta1": 1}, r"expected beta1 >= 0 and < 1, got 1.0"),
        ({"filter": "confidence", "filter.threshold": 2}, r"threshold >= 0 and <= 1, got 2.0"),
    ],
)
def test_a_wrong_option_is_refused_with_what_was_expected(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AcclimateError, match=message):
        get_recipe("rpl", options)


def test_an_option_of_an_objective_that_is_not_there() -> None:
    with pytest.raises(AcclimateError, match=r"objective\.q: 'bn' has no objective"):
        get_recipe("bn", {"objective.q": 0.5})


def test_entropy_with_a_separate_teacher_is_refused() -> None:
    with pytest.raises(AcclimateError, match=r"expected teacher=instant, got 'epoch'"):
        get_recipe("ent", {"teacher": "epoch"})


@pytest.mark.parametrize(
    ("word", "annotation", "value"),
    [
        ("1e-3", "float", 1e-3),
        ("1e-3", "float | None", 1e-3),
        ("none", "float | None", None),
        ("3", "int", 3),
        ("off", "bool", False),
        ("Yes", "bool", True),
        (True, "bool", True),
        ("none", "str", "none"),
        ("a/b", "str | None", "a/b"),
    ],
)
def test_words_are_read_as_the_options_type(word: Any, annotation: str, value: Any) -> None:
    parsed = parse_value("x", word, annotation)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize("word", ["optimizer.lr", "=3", "optimizer.lr="])
def test_half_an_assignment_is_refused(word: str) -> None:
    with pytest.raises(AcclimateError, match=r"expected part\.option=value .*, got"):
        parse_assignments([word])


# Stored recipes


def test_a_stored_recipe_with_an_unknown_option_is_refused() -> None:
    plain = get_recipe("rpl").to_dict()
    plain["objective"]["qq"] = 1
    with pytest.raises(AcclimateError, match=r"unknown option of objective 'qq'; did you mean 'q'"):
        Recipe.from_dict(plain)
    with pytest.raises(AcclimateError, match=r"unknown option of recipe 'epoch'"):
        Recipe.from_dict({"name": "mine", "epoch": 3})


@dataclass(frozen=True, kw_only=True)
class Mine(Regularizer):
    """A part that nobody registered."""

    strength: float = 1.0


def test_a_part_nobody_registered_is_stored_by_where_it_is_defined() -> None:
    recipe = Recipe(name="mine", regularizer=Mine(strength=2.0))
    plain = json.loads(json.dumps(recipe.to_dict()))
    assert plain["regularizer"] == {"kind": f"py:{__name__}:Mine", "strength": 2.0}
    assert Recipe.from_dict(plain) == recipe
    options = {"regularizer": f"py:{__name__}:Mine", "regularizer.strength": "2"}
    assert Recipe(name="mine").with_options(options) == recipe


def test_a_part_that_cannot_be_found_again_is_named() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Local(Regularizer):
        pass

    plain = Recipe(name="mine", regularizer=Local()).to_dict()
    with pytest.raises(AcclimateError, match="Local is defined inside a function"):
        Recipe.from_dict(plain)
    with pytest.raises(AcclimateError, match="no module 'gone'; expected it in"):
        Recipe.from_dict({"name": "mine", "regularizer": {"kind": "py:gone:Part"}})
    with pytest.raises(AcclimateError, match=r"expected py:math:pi to be a subclass of .*Part"):
        Recipe.from_dict({"name": "mine", "regularizer": {"kind": "py:math:pi"}})
    with pytest.raises(AcclimateError, match=r"expected an acclimate\.parts\.Filter as filter"):
        Recipe.from_dict({"name": "mine", "filter": {"kind": f"py:{__name__}:Mine"}})


# The user's own


def test_a_user_registers_a_recipe() -> None:
    @register_recipe
    def careful() -> Recipe:
        return get_recipe("rpl", {"name": "careful", "filter": "confidence"})

    assert get_recipe("careful").filter == PARTS["filter"]["confidence"]()
    assert "careful" in [r.name for r in list_recipes()]


def test_a_name_that_is_registered_again_is_replaced_with_a_warning() -> None:
    with pytest.warns(AcclimateWarning, match="the recipe 'rpl' was registered before"):
        register_recipe(lambda: Recipe(name="rpl", epochs=7))
    assert get_recipe("rpl").epochs == 7
    first = PARTS["regularizer"].register("again")(Mine)
    PARTS["regularizer"].register("again")(first)  # the same: nothing is replaced
    assert Recipe(name="mine", regularizer=Mine()).to_dict()["regularizer"]["kind"] == "again"


def by_function() -> Recipe:
    return Recipe(name="mine", epochs=3)


def test_a_recipe_comes_from_a_users_function() -> None:
    found = get_recipe(f"py:{__name__}:by_function", {"optimizer.lr": "0.1"})
    assert (found.epochs, found.optimizer.lr) == (3, 0.1)
    with pytest.raises(AcclimateError, match=r"expected a Recipe, or a function .* got float"):
        get_recipe("py:math:pi")
    with pytest.raises(AcclimateError, match=r"expected py:package\.module:function"):
        get_recipe("py:math")


def test_a_users_option_needs_no_postponed_annotations() -> None:
    """Without ``from __future__ import annotations`` a field's type is a type, not its name."""
    namespace = {"dataclass": dataclass, "Regularizer": Regularizer, "PARTS": PARTS}
    source = (
        "@PARTS['regularizer'].register('pull')\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Pull(Regularizer):\n"
        "    strength: float = 1.0\n"
        "    cap: float | None = None\n"
    )
    exec(compile(source, "user", "exec", dont_inherit=True), namespace)
    options = {"regularizer": "pull", "regularizer.strength": "2", "regularizer.cap": "3"}
    pull: Any = get_recipe("ent", options).regularizer
    assert (pull.strength, pull.cap) == (2.0, 3.0)


def plug_in(folder: Path, module: str, source: str, entry: str) -> None:
    """What pip leaves behind when it installs a package with an entry point."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[acclimate.recipes]\n{entry}\n")


def test_an_installed_package_brings_a_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from acclimate import get_recipe\n"
        "def make():\n"
        "    return get_recipe('rpl', {'name': 'plugged', 'epochs': 9})\n"
    )
    plug_in(tmp_path, "acclimate_plug_in", source, "plugged = acclimate_plug_in:make")
    monkeypatch.syspath_prepend(tmp_path)
    assert get_recipe("plugged").epochs == 9
    assert "plugged" in [r.name for r in list_recipes()]
    sys.modules.pop("acclimate_plug_in")


def test_a_broken_plug_in_is_named_and_takes_nothing_else_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(tmp_path, "acclimate_broken", "raise OSError('no luck')", "oops = acclimate_broken:f")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(AcclimateWarning, match=r"'acclimate_broken:f' failed to load: no luck"):
        assert "rpl" in [r.name for r in list_recipes()]


def test_the_package_knows_the_parts_of_every_method():
    code = (
        "from acclimate import Recipe; "
        "print(Recipe.from_dict({'name': 'x', 'optimizer': {'kind': 'sam'}}).optimizer, "
        "Recipe(name='y').with_options({'filter': 'shape-bound'}).filter)"
    )
    read = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr


def test_a_recipe_of_ones_own_may_import_its_neighbours(tmp_path, monkeypatch):
    (tmp_path / "neighbour_of_mine.py").write_text("RATE = 0.25\n")
    (tmp_path / "recipes_of_mine.py").write_text(
        "from acclimate import AcclimateError, get_recipe\n"
        "def mine():\n"
        "    from neighbour_of_mine import RATE\n"
        "    return get_recipe('ent', {'optimizer.lr': RATE})\n"
        "def refusing():\n"
        "    raise AcclimateError('set RATE first')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert get_recipe("py:recipes_of_mine:mine").optimizer.lr == 0.25
    with pytest.raises(AcclimateError, match=r"^set RATE first$"):
        get_recipe("py:recipes_of_mine:refusing")
