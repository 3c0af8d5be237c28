"""The Recipe: a method as data. It names its parts; one loop runs any of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from torch import nn

from acclimate.errors import AcclimateError, unknown_name
from acclimate.models.checks import check_layers, check_learnable
from acclimate.models.layers import batch_norm_layers
from acclimate.models.outputs import find_classifier
from acclimate.parts.base import PARTS, Part, part_class, part_kind
from acclimate.parts.filters import Everything, Filter
from acclimate.parts.normalization import BatchStatistics, Normalization
from acclimate.parts.objectives import CrossEntropy, Objective
from acclimate.parts.optimizers import SGD, Optimizer
from acclimate.parts.predictors import Predictor, Student
from acclimate.parts.regularizers import NoRegularizer, Regularizer
from acclimate.parts.selectors import NormAffine, Selector
from acclimate.parts.teachers import Instant, Teacher
from acclimate.registry import parse_value

__all__ = ["Recipe"]

EPISODES = (None, "batch", "image")
_BASES: dict[str, type[Part]] = {
    "objective": Objective,
    "selector": Selector,
    "normalization": Normalization,
    "teacher": Teacher,
    "filter": Filter,
    "regularizer": Regularizer,
    "optimizer": Optimizer,
    "predictor": Predictor,
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method, as data: which parts it is made of, for how long, at which batch size.

    ``objective=None`` is a recipe without gradients: statistics change, or the way predictions
    are made. ``batch_size`` is the size the learning rate holds for; at another size it is scaled
    linearly. With an ``episode`` of "batch" or "image", each of them starts from the source, is
    learnt from ``epochs`` times, predicted, and forgotten.

    >>> recipe = Recipe(name="mine", epochs=2).with_options({"optimizer.lr": "0.01"})
    >>> recipe.optimizer.lr, recipe.epochs
    (0.01, 2)
    """

    name: str
    summary: str = ""
    objective: Objective | None = field(default_factory=CrossEntropy)
    selector: Selector = field(default_factory=NormAffine)
    normalization: Normalization = field(default_factory=BatchStatistics)
    teacher: Teacher = field(default_factory=Instant)
    filter: Filter = field(default_factory=Everything)
    regularizer: Regularizer = field(default_factory=NoRegularizer)
    optimizer: Optimizer = field(default_factory=SGD)
    predictor: Predictor = field(default_factory=Student)
    episode: str | None = None
    epochs: int = 1
    batch_size: int = 128

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise AcclimateError(f"expected {name} >= 1, got {getattr(self, name)}")
        if self.episode not in EPISODES:
            raise unknown_name("episode", str(self.episode), [str(each) for each in EPISODES])
        for slot, base in _BASES.items():
            part = getattr(self, slot)
            if not (isinstance(part, base) or (slot == "objective" and part is None)):
                raise AcclimateError(
                    f"expected an acclimate.parts.{base.__name__} as {slot}, got {part!r}"
                )
        seeing = [f"{s} {part_kind(s, p)!r}" for s, p in self.parts().items() if _has_views(p)]
        if len(seeing) > 1:
            raise AcclimateError(
                f"expected one part that makes views of the images, got {' and '.join(seeing)}: "
                "each would be shown the other's; choose another of either"
            )
        if not self.learns and self.predictor.asks_teacher:
            raise AcclimateError(
                "the recipe learns nothing, so it has no teacher to predict with; "
                "choose predictor=student"
            )
        objective = self.objective
        shares_gradient = isinstance(objective, CrossEntropy) and not objective.stop_gradient
        if shares_gradient and not isinstance(self.teacher, Instant):
            raise AcclimateError(
                "without stop-gradient (entropy minimisation) teacher and student are one: "
                f"expected teacher=instant, got {part_kind('teacher', self.teacher)!r}; for a "
                "separate teacher set objective.stop_gradient=true"
            )

    @property
    def learns(self) -> bool:
        """Whether any gradient is taken."""
        return self.objective is not None

    @property
    def steps(self) -> bool:
        """Whether going through the images changes later predictions."""
        gathers = any(part.gathers for part in self.parts().values())
        return self.episode is None and (self.learns or gathers)

    @property
    def exports(self) -> bool:
        """Whether a plain model can make this recipe's predictions."""
        return self.episode is None and self.predictor.exports and self.normalization.exports

    def parts(self) -> dict[str, Part]:
        """The parts by slot, in the order in which they are prepared."""
        # The optimiser comes last: it needs to know everything that learns.
        slots = ["normalization"]
        if self.learns:
            slots += ["selector", "objective", "teacher", "filter", "regularizer", "predictor"]
            slots += ["optimizer"]
        else:
            slots += ["predictor"]
        return {slot: getattr(self, slot) for slot in slots}

    def check(self, model: nn.Module) -> None:
        """Refuse a model this recipe cannot work with."""
        check_layers(model)
        check_learnable(model, gradients=self.learns)
        for part in self.parts().values():
            part.check(model)
        if self.objective is not None and not self.objective.classifies:
            _check_below_classifier(model, self.objective, self.selector)
        only_statistics = not self.learns and isinstance(self.predictor, Student)
        if only_statistics and self.normalization.adapts and not batch_norm_layers(model):
            raise AcclimateError(
                f"the recipe {self.name!r} only changes batch-norm statistics, and "
                f"{type(model).__name__} keeps none; choose a recipe that learns (ent, rpl)"
            )

    def with_options(self, options: Mapping[str, Any]) -> Recipe:
        """A copy with other options: ``part=name``, ``part.option=value``, ``epochs=3``."""
        changed: dict[str, Any] = {}
        inner: dict[str, dict[str, Any]] = {}
        for key, value in options.items():
            slot, dot, option = key.partition(".")
            if slot in PARTS and dot:
                inner.setdefault(slot, {})[option] = value
            elif slot in PARTS:
                changed[slot] = _part_named(slot, value)
            else:
                changed[key] = self._parsed(key, value)
        # All at once, and whole parts first: `teacher.momentum` finds the teacher `teacher=` chose,
        # and options that only fit together never meet a recipe they do not fit.
        for slot, values in inner.items():
            part = changed.get(slot, getattr(self, slot))
            if part is None:
                raise AcclimateError(f"{slot}.{next(iter(values))}: {self.name!r} has no {slot}")
            changed[slot] = _part_with(slot, part, values)
        return replace(self, **changed)

    def _parsed(self, key: str, value: Any) -> Any:
        own = [f.name for f in fields(self) if f.name not in PARTS]
        if key not in own:
            raise unknown_name("option", key, [*own, *PARTS])
        return parse_value(key, value, _type_of(self, key))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; :meth:`from_dict` reads them back."""
        plain: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Part):
                options = {f.name: getattr(value, f.name) for f in fields(value)}
                value = {"kind": part_kind(item.name, value), **options}
            plain[item.name] = value
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Recipe:
        """Build a recipe from :meth:`to_dict`'s values."""
        values = dict(plain)
        for slot in PARTS:
            if isinstance(values.get(slot), Mapping):
                options = dict(values[slot])
                kind = part_class(slot, options.pop("kind", ""))
                _check_names(slot, kind, options)
                values[slot] = kind(**options)
        _check_names("recipe", cls, values)
        return cls(**values)


def _has_views(part: Part) -> bool:
    return type(part).views is not Part.views


def _check_below_classifier(model: nn.Module, objective: Objective, selector: Selector) -> None:
    """Refuse a selector under which an objective of features would change nothing."""
    classifier = {id(p) for p in find_classifier(model)[1].parameters()}
    parameters = dict(model.named_parameters())
    below = [name for name in selector.names(model) if id(parameters[name]) not in classifier]
    if not (below or selector.changes_architecture):
        raise AcclimateError(
            f"the objective {part_kind('objective', objective)!r} is one of what the classifier is "
            f"fed: expected a selector of parameters below it, got "
            f"{part_kind('selector', selector)!r}, which has none in {type(model).__name__}; "
            "choose selector=backbone or selector=affine"
        )


def _part_named(slot: str, value: Any) -> Part | None:
    if isinstance(value, Part):
        return value
    if slot == "objective" and value in (None, "none"):
        return None
    return part_class(slot, str(value))()


def _part_with(slot: str, part: Part, values: Mapping[str, Any]) -> Part:
    _check_names(f"{slot} {part_kind(slot, part)!r}", type(part), values)
    parsed = {
        option: parse_value(f"{slot}.{option}", value, _type_of(part, option))
        for option, value in values.items()
    }
    return replace(part, **parsed)


def _check_names(what: str, kind: Any, values: Mapping[str, Any]) -> None:
    known = [f.name for f in fields(kind)]
    for name in values:
        if name not in known:
            raise unknown_name(f"option of {what}", name, known)


def _type_of(record: Any, name: str) -> str:
    kind = next(f.type for f in fields(record) if f.name == name)
    # A string, where the module postpones its annotations.
    return kind.__name__ if isinstance(kind, type) else str(kind)
