"""The one step that runs any recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import parallel
from acclimate.acceleration import EXACT, PLAIN, Acceleration, GraphedWork
from acclimate.errors import AcclimateError
from acclimate.learner.network import Network
from acclimate.learner.state import pack, transform, under, unpack
from acclimate.models.outputs import Outputs, checked_logits, find_classifier
from acclimate.parts.base import Part, Step
from acclimate.parts.statistics import StatisticsControl
from acclimate.recipe import Recipe

__all__ = ["Learner", "StepResult", "check_shareable", "mean_term"]


def mean_term(term: Tensor, weights: Tensor | None, counting: Tensor | None, images: int) -> Tensor:
    """Mean over the images that count; a scalar term is taken unchanged.

    Of several processes each has its part of the mean; the parts add up.

    >>> import torch
    >>> mean_term(torch.tensor([1.0, 3.0]), None, None, 2)
    tensor(2.)
    """
    if term.ndim == 0:
        if parallel.active():
            raise AcclimateError(
                "a part of the recipe returns a single number as its loss, which cannot be shared "
                "out over processes; return one value per image, or adapt in one process"
            )
        return term
    if weights is not None:
        assert counting is not None
        return (term * weights).sum() / counting.clamp_min(1)
    return term.sum() / images if parallel.active() else term.mean()


def check_shareable(model: nn.Module, recipe: Recipe) -> None:
    """Refuse what several processes cannot do as one would."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise AcclimateError(
            "expected the plain model, got one wrapped in DistributedDataParallel; pass "
            "model.module: gradients and statistics are shared here already"
        )
    alone = (
        f"which {parallel.world()} processes would do differently from one; adapt in one process, "
        "or each by itself: with acclimate.parallel.alone()"
    )
    if recipe.episode is not None:
        raise AcclimateError(f"recipe {recipe.name!r} forgets after each {recipe.episode}, {alone}")
    for slot, part in recipe.parts().items():
        kind = type(part)
        own = (kind.views, kind.collect, kind.predict) != (Part.views, Part.collect, Part.predict)
        if own or not part.shareable:
            raise AcclimateError(
                f"the {slot} of recipe {recipe.name!r} draws views of each image, keeps images or "
                f"compares them, {alone}"
            )


DEFAULT_LR = 1e-3
"""The paper's rate for a ResNet-50, where neither recipe nor preset names one."""


@dataclass(frozen=True)
class StepResult:
    """What one step gave: the logits *before* the update, and the loss (no host sync).

    Of several processes each gets the logits of its own images, and the loss over all.
    """

    logits: Tensor
    loss: Tensor | None


class Learner:
    """A model, a recipe and what the recipe's parts remember; :meth:`step` learns from one batch.

    The model is not copied: parameters that the selector leaves out stop requiring
    gradients, dropout and the like stay off, and its buffers are not written before
    :meth:`release`. Only ``learning`` ever changes, so only ``learning`` is ever copied.

    ``classes`` is how many the model predicts, where its last layer does not show it.

    In a process group each process gives its own part of every batch, any number of images or none,
    and all take one step: the one a single process would take on the whole batch.
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        *,
        batch_size: int | None = None,
        seed: int = 0,
        classes: int | None = None,
        acceleration: Acceleration = EXACT,
    ) -> None:
        recipe.check(model)
        if parallel.active():
            check_shareable(model, recipe)
        self.model = model.eval()
        self.network = Network(self.model)
        self.recipe = recipe
        self.batch_size = recipe.batch_size if batch_size is None else batch_size
        if self.batch_size < 1:
            raise AcclimateError(f"expected batch_size >= 1, got {batch_size}")
        self.lr = self._rate()
        self.generator = torch.Generator().manual_seed(seed)
        self._classes = classes
        self.steps = 0
        self.forwards = 0
        self.backwards = 0
        self.cost = 0  # forward passes of one image; a backward pass is the work of two
        self._tapped: nn.Module | None = None
        self._features: Tensor | None = None
        self._counted: tuple[Tensor, int] | None = None
        self._fresh: dict[str, Tensor] | None = None
        self._overwritten: dict[str, Tensor] = {}
        self._asked_gradient = {name: p.requires_grad for name, p in model.named_parameters()}
        self.parts: dict[str, Part] = recipe.parts()
        self._transforming = {
            slot: part
            for slot, part in self.parts.items()
            if type(part).transform is not Part.transform
        }
        self.states: dict[str, Any] = {}
        self.learning: dict[str, nn.Parameter] = {}
        self._prepare()
        self.network.accelerate(acceleration)
        self._graphed: GraphedWork | None = None
        self._counts_before = self._counts_per_step = self._counts
        self.ran = EXACT
        self.source = {name: p.detach().clone() for name, p in self.learning.items()}

    def _rate(self) -> float:
        """The recipe's learning rate, scaled linearly to the size of the batches."""
        recipe = self.recipe
        at_own_size = DEFAULT_LR if recipe.optimizer.lr is None else recipe.optimizer.lr
        # An episode of one image is one image, however many arrive together.
        scale = 1.0 if recipe.episode == "image" else self.batch_size / recipe.batch_size
        return at_own_size * scale

    def resize(self, batch_size: int) -> None:
        """Learn at the rate for batches of another size."""
        self.batch_size = batch_size
        self.lr = self._rate()
        optimizer = self.states["optimizer"]
        if isinstance(optimizer, torch.optim.Optimizer):
            for group in optimizer.param_groups:
                group["lr"] = self.lr

    def _prepare(self) -> None:
        if any("features" in part.needs for part in self.parts.values()):
            classifier = find_classifier(self.model)[1]
            self._tap = classifier.register_forward_pre_hook(self._keep_features)
            self._tapped = classifier
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        for slot, part in self.parts.items():
            self.states[slot] = part.prepare(self)
            if slot == "selector":
                self._select(self.recipe.selector.names(self.model))
            for name, parameter in part.parameters(self.states[slot]).items():
                self.learning[f"{slot}:{name}"] = parameter

    def _select(self, names: list[str]) -> None:
        parameters = dict(self.model.named_parameters())
        for name in names:
            if not parameters[name].is_floating_point():
                raise AcclimateError(f"the parameter {name} is not floating point and cannot learn")
            parameters[name].requires_grad_(True)
            self.learning[name] = parameters[name]

    def _keep_features(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._features = inputs[0].flatten(1)

    @property
    def classes(self) -> int:
        """How many classes the model predicts: as given, or the outputs of its classifier."""
        if self._classes is None:
            weight = find_classifier(self.model)[1].weight
            assert isinstance(weight, Tensor)
            self._classes = len(weight)
        return self._classes

    @property
    def statistics(self) -> StatisticsControl:
        """The switchboard over the batch-norm layers."""
        control: StatisticsControl = self.states["normalization"]
        return control

    def forward(
        self,
        images: Tensor,
        *,
        weights: Mapping[str, Tensor] | None = None,
        learning: bool = True,
    ) -> Outputs:
        """One forward pass with the recipe's statistics, the student's weights or those given."""
        self._verify(images)
        count = self._count(images)
        self.recipe.normalization.apply(self.statistics, count, learning=learning)
        return self._run(images, weights)

    def set_total(self, images: Tensor, total: int) -> None:
        """Set how many images all processes have where this one has ``images``, without a sync."""
        if parallel.active():
            self._counted = images, total

    def _count(self, images: Tensor) -> int:
        """How many images the batch has over all processes; counted once a batch at most."""
        if not parallel.active():
            return len(images)
        if self._counted is None or self._counted[0] is not images:
            own = torch.tensor(len(images), device=images.device)
            self._counted = images, int(parallel.summed(own))
        return self._counted[1]

    @torch.no_grad()
    def source_forward(self, images: Tensor) -> Outputs:
        """The unadapted model: source parameters, source statistics."""
        self._verify(images)
        self.statistics.release()
        # Before the first step the source is what is loaded: no need to swap anything.
        return self._run(images, self.source if self.steps else None)

    def teacher_forward(self, step: Step, images: Tensor) -> Outputs:
        """Ask the recipe's teacher."""
        return self.recipe.teacher.outputs(self.states["teacher"], step, images)

    def _run(self, images: Tensor, weights: Mapping[str, Tensor] | None) -> Outputs:
        self.forwards += 1
        self.cost += len(images) * (3 if torch.is_grad_enabled() else 1)
        for slot, part in self._transforming.items():
            others = None if weights is None else under(f"{slot}:", weights)
            images = part.transform(self.states[slot], images, others)
        own = {name: tensor for name, tensor in (weights or {}).items() if ":" not in name}
        logits = self.network.logits(images, self.statistics, None if weights is None else own)
        features, self._features = self._features, None
        features = None if features is None else features[: len(images)].to(logits.dtype)
        projections = None
        if self.recipe.objective is not None and features is not None:
            state = self.states.get("objective")
            own_head = None if weights is None else under("objective:", weights)
            projections = self.recipe.objective.project(state, features, own_head)
        return Outputs(logits, features, projections)

    def try_out(self, images: Tensor) -> None:
        """Refuse images the model does not take, before anything is learnt from them."""
        self.statistics.release()  # one image alone has none
        checked_logits(self.model, images[:1])
        self._features = None

    def step(self, images: Tensor) -> StepResult:
        """Predict, then learn from one batch of images; an episode learns, then predicts."""
        self._verify(images)
        with self.network.acceleration.kernels(images.device):
            if self.recipe.episode is not None:
                return self._episodes(images)
            return self._replayed(images) if self._replays(images) else self._take_step(images)

    def _episodes(self, images: Tensor) -> StepResult:
        episodes = images.split(1) if self.recipe.episode == "image" else (images,)
        results = [self._episode(each) for each in episodes]
        losses = [result.loss for result in results if result.loss is not None]
        loss = torch.stack(losses).mean() if losses else None
        return StepResult(torch.cat([result.logits for result in results]), loss)

    def _episode(self, images: Tensor) -> StepResult:
        """Learn from images, predict, and forget."""
        fresh = self._fresh or self.snapshot()
        with torch.enable_grad():
            losses = [self._learn(images) for _ in range(self.recipe.epochs)]
        logits = self.logits(images)
        drawn = self.generator.get_state()
        self.load_state_tensors(fresh)
        self._fresh = fresh
        self.generator.set_state(drawn)  # what is drawn for the next images is drawn anew
        return StepResult(logits, losses[0])

    def _take_step(self, images: Tensor) -> StepResult:
        """A step as Python runs it."""
        with torch.set_grad_enabled(self.recipe.learns):
            step = self._collect(images)
            logits = self._predict(step, images)
            step.loss = self._update(step) if self.recipe.learns else None
        self._end(step)
        return StepResult(logits, step.loss)

    def _learn(self, images: Tensor) -> Tensor | None:
        """A step whose prediction is not needed; its loss."""
        step = self._collect(images)
        step.loss = self._update(step) if self.recipe.learns else None
        self._end(step)
        return step.loss

    def _end(self, step: Step) -> None:
        self.steps += 1
        for slot, part in self.parts.items():
            part.after_step(self.states[slot], step)

    def predict(self, images: Tensor) -> Tensor:
        """The logits for a batch, keeping nothing that was learnt from it."""
        if self.recipe.episode is not None:
            return self._episodes(images).logits
        return self.logits(images)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """The logits for a batch with what was learnt so far; nothing is learnt from it."""
        return self._predict(Step(self, images, learning=False), images)

    def _collect(self, images: Tensor) -> Step:
        for slot, part in self.parts.items():
            images = part.collect(self.states[slot], images)
        views = None
        for slot, part in self.parts.items():
            views = part.views(self.states[slot], images) or views
        return Step(self, images, views=views)

    def _predict(self, step: Step, images: Tensor) -> Tensor:
        """The logits for the batch that arrived."""
        for slot, part in self.parts.items():
            own = part.predict(self.states[slot], step)
            if own is not None:
                return own.detach()
        if any(view is images for view in step.views):
            return step.student_of(images).logits.detach()
        # The loss sees other images than those that arrived: predict without gradients.
        with torch.no_grad():
            return self.forward(images, learning=False).logits

    def _update(self, step: Step) -> Tensor | None:
        """Learn from the images that count; None when none does."""
        weights = self._weights(step)
        counting = None if weights is None else parallel.summed(weights.count_nonzero())
        if counting is not None and not bool(counting):
            return None
        before = self.backwards

        def closure() -> Tensor:
            nonlocal weights, counting
            if self.backwards > before:  # a second look within one step, after a move
                step.forget()
                weights = self._reweighed(step, weights)
                counting = None if weights is None else parallel.summed(weights.count_nonzero())
            return self._backward(step, weights, counting)

        loss = self.recipe.optimizer.update(self.states["optimizer"], self, closure)
        looked_again = self.backwards > before + 1
        return None if looked_again and counting is not None and not bool(counting) else loss

    def _weights(self, step: Step) -> Tensor | None:
        combined: Tensor | None = None
        for slot, part in self.parts.items():
            weights = part.weights(self.states[slot], step)
            if weights is not None:
                combined = weights if combined is None else combined * weights
        return combined

    def _reweighed(self, step: Step, weights: Tensor | None) -> Tensor | None:
        """What counts where the parameters moved within the step."""
        if weights is not None:
            for slot, part in self.parts.items():
                weights = part.reweigh(self.states[slot], step, weights)
        return weights

    def _backward(self, step: Step, weights: Tensor | None, counting: Tensor | None) -> Tensor:
        terms = [part.loss(self.states[slot], step) for slot, part in self.parts.items()]
        images = self._count(step.images)
        total = sum(mean_term(t, weights, counting, images) for t in terms if t is not None)
        assert isinstance(total, Tensor)
        if not total.requires_grad:
            raise AcclimateError(
                "the model's predictions do not depend on what is to learn: does its forward pass "
                "turn gradients off, or return something else before its logits?"
            )
        total.backward()
        self.backwards += 1
        loss = total.detach()
        gradients = [p.grad for p in self.learning.values() if p.grad is not None]
        parallel.sum_in_place([loss, *gradients])  # the loss travels with the gradients
        return loss

    def _verify(self, images: Tensor) -> None:
        """Check on a first batch that running faster changes nothing but rounding.

        Nothing is learnt, and no statistics are gathered.
        """
        if self.network.unverified and len(images) and not parallel.active():
            chosen = self.network.acceleration
            gradients = self.recipe.learns and (chosen.half or chosen.fused)
            with self.statistics.unwatched():
                self.network.verify(images, lambda some: self._probe(some, gradients=gradients))

    def _probe(self, images: Tensor, *, gradients: bool) -> tuple[Tensor, Tensor]:
        """The logits, and how all that learns in the model moves them, in one piece.

        Not by the recipe's own loss, which may be at its minimum to begin with, and all noise.
        """
        learning = [p for name, p in self.learning.items() if ":" not in name]
        self.recipe.normalization.apply(self.statistics, len(images), learning=False)
        with torch.set_grad_enabled(gradients and bool(learning)):
            logits = self.network.logits(images, self.statistics)
            self._features = None
            if not (gradients and learning):
                return logits, logits.new_zeros(0)
            with self.network.acceleration.kernels(images.device):
                loss = F.cross_entropy(logits, logits.detach().argmax(dim=1))
                found = torch.autograd.grad(loss, learning, allow_unused=True)
        pieces = [
            torch.zeros_like(parameter) if each is None else each
            for each, parameter in zip(found, learning, strict=True)
        ]
        return logits.detach(), torch.cat([each.flatten().float() for each in pieces])

    def _replays(self, images: Tensor) -> bool:
        """Whether a step on these images is the same work every time, and no hook would miss it."""
        return (
            self.network.acceleration.recorded
            and images.is_cuda
            and len(images) > 1
            and self.recipe.learns
            and all(vars(type(part)).get("steady", False) for part in self.parts.values())
            and not parallel.active()
            and not self.statistics.gathering
            and not self.network.hooked(except_for=self._tapped)
        )

    def _replayed(self, images: Tensor) -> StepResult:
        """A step from a captured CUDA graph, once there is one for batches of this shape."""
        self.network.follow()
        if self._graphed is None or self._graphed.memory is not self.network.memory:
            # The network has other graph memory once its own tensors are others.
            self._graphed = GraphedWork(self._captured_step, memory=self.network.memory)
        self._counts_before = self._counts
        (logits, loss), replayed = self._graphed(images)
        if replayed:  # no Python ran: count for it
            pairs = zip(self._counts_before, self._counts_per_step, strict=True)
            self._counts = tuple(now + each for now, each in pairs)
        return StepResult(logits, loss)

    def _captured_step(self, images: Tensor) -> tuple[Tensor, ...]:
        self._counts = self._counts_before  # a capture may fail half way, and is then run again
        result = self._take_step(images)
        assert result.loss is not None
        pairs = zip(self._counts, self._counts_before, strict=True)
        self._counts_per_step = tuple(now - before for now, before in pairs)
        return result.logits, result.loss

    @property
    def _counts(self) -> tuple[int, ...]:
        return self.steps, self.forwards, self.backwards, self.cost

    @_counts.setter
    def _counts(self, counts: tuple[int, ...]) -> None:
        self.steps, self.forwards, self.backwards, self.cost = counts

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_graphed": None}  # a copy captures its own steps

    def start_epoch(self) -> None:
        """Tell the parts that an epoch begins."""
        for slot, part in self.parts.items():
            part.start_epoch(self.states[slot], self)

    def state_tensors(self, *, optimizer: bool = True) -> dict[str, Tensor]:
        """Everything that changes while learning, flat and not copied."""
        tensors = {f"learning/{name}": p.detach() for name, p in self.learning.items()}
        for slot, state in self.states.items():
            if optimizer or slot != "optimizer":
                tensors |= {f"{slot}/{key}": value for key, value in pack(state).items()}
        tensors["learner/generator"] = self.generator.get_state()
        tensors["learner/steps"] = torch.tensor(self.steps)
        return tensors

    def snapshot(self, *, optimizer: bool = True) -> dict[str, Tensor]:
        """A copy of :meth:`state_tensors`, to go back to."""
        return {k: v.clone() for k, v in self.state_tensors(optimizer=optimizer).items()}

    @torch.inference_mode(False)
    @torch.no_grad()
    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put :meth:`state_tensors` back; without optimiser entries its moments start anew."""
        for name, parameter in self.learning.items():
            stored = tensors.get(f"learning/{name}")
            if stored is None or stored.shape != parameter.shape:
                got = "none" if stored is None else f"one of {tuple(stored.shape)}"
                raise AcclimateError(
                    f"this state is of another model or recipe: expected {name!r}, which learns "
                    f"under {self.recipe.name!r}, as a tensor of {tuple(parameter.shape)}, got "
                    f"{got}; load it into the model and recipe it was saved from"
                )
        for name, parameter in self.learning.items():
            parameter.copy_(tensors[f"learning/{name}"])
        for slot, state in self.states.items():
            packed = under(f"{slot}/", tensors)
            if packed:
                unpack(state, packed)
            elif isinstance(state, torch.optim.Optimizer):
                state.state.clear()
        self._fresh = None
        self._graphed = None  # the tensors are others now
        self.generator.set_state(tensors["learner/generator"].cpu())
        self.steps = int(tensors["learner/steps"])

    def transform(self, change: Callable[[Tensor], Tensor]) -> None:
        """Follow the model to another device or precision, with all that is remembered."""
        self.source = {name: change(tensor) for name, tensor in self.source.items()}
        self._fresh = None  # nothing of an episode is kept: it is taken anew
        for state in self.states.values():
            transform(state, change)
        self._graphed = None  # the tensors are others now
        self.network.decelerate()  # what is faster elsewhere must be chosen anew

    @torch.no_grad()
    def restore_source(self) -> None:
        """Put the source's parameters back."""
        for name, tensor in self._overwritten.items():
            self.model.get_parameter(name).copy_(tensor)
        for name, parameter in self.learning.items():
            parameter.copy_(self.source[name])

    @torch.no_grad()
    def overwrite(self, name: str, value: Tensor) -> None:
        """Write a parameter of the plain model, for a part's ``export``."""
        parameter = self.model.get_parameter(name)
        self._overwritten.setdefault(name, parameter.detach().clone())
        parameter.copy_(value.view_as(parameter))

    def forward_plain(self, images: Tensor) -> Tensor:
        """The model as it stands, with its own buffers: what a user without this package gets."""
        self.cost += len(images)
        return self.network.logits(images, self.statistics)

    def release(self) -> nn.Module:
        """Take all hooks and flags off: the plain model, with whatever it has learnt."""
        how = self.network.acceleration
        if how.changes:
            self.ran = self.network.ran
        self._graphed = None  # the tensors are others now
        for parameter in (*self.model.parameters(), *self.learning.values()):
            parameter.grad = None  # a graph's memory is freed where nothing lies in it
        # Exact kernels take several times as long on a GPU: only where the run was exact.
        self.network.accelerate(EXACT if how == EXACT else PLAIN)
        self.statistics.release()
        for slot, part in self.parts.items():
            part.export(self.states[slot], self)
        if hasattr(self, "_tap"):
            self._tap.remove()
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(self._asked_gradient.get(name, True))
        return self.model
