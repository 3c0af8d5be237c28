"""Stream: a module that predicts while it learns from every batch."""

from __future__ import annotations

import json
import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from acclimate import parallel
from acclimate.acceleration import check_speed, choose
from acclimate.adaptation.auto import AUTO
from acclimate.callbacks import Callback, StepRecord, check_callbacks
from acclimate.checkpoint import tensors_sha256
from acclimate.data.arrays import model_input, warn_of_unscaled
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.guard.containment import HALVES, Comparison
from acclimate.guard.estimate import ErrorEstimate
from acclimate.guard.evidence import observe
from acclimate.guard.guard import Guard, Watch, drift, make_guard, warn_of_temperatures
from acclimate.guard.history import Event
from acclimate.learner.learner import Learner
from acclimate.learner.state import pack, transform, under, unpack
from acclimate.methods.registry import get_recipe
from acclimate.models import LoadedModel, as_loaded
from acclimate.models.device import copy_model, floating_dtype
from acclimate.models.layers import batch_norm_layers
from acclimate.parts.normalization import BatchStatistics
from acclimate.presets import scaling_note, tuned_recipe
from acclimate.recipe import Recipe
from acclimate.text import Speed, counted, first_difference, titled_rows

__all__ = ["Stream"]

EVENTS = 1000
"""So many of the last events are kept; ``event_count`` counts them all."""

FEW = 16
"""Batch statistics of fewer images are warned of."""

PATIENCE = 3
"""After this many rollbacks in a row the stream stops learning and only predicts."""


class _Lock:
    """A lock that can be copied and saved; a copy has its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[_Lock], tuple[()]]:
        return _Lock, ()


class Stream(nn.Module):
    """A classifier that adapts to the batches it predicts.

    ``stream(images)`` returns logits, by default those computed *before* learning from the batch
    (``predictions="before"``); ``predictions="after"`` costs a second forward pass. ``episodic``
    predicts after the update and forgets everything after each batch. Batches may have any size; a
    single image is normalised with a mixture of its own and the source's statistics (1 : 16). From
    a few images batch statistics are mostly noise, and predictions can be worse than the source
    model's: take ``options={"normalization": "mixture"}`` for batches of fewer than 16. A learning
    rate holds for the recipe's own batch size; name another ``batch_size`` and it is scaled
    linearly. Where you name neither, it is scaled to the size of the first batch.

    The guard's comparisons cost seven gradient-free forward passes of every ``check_every``-th
    batch, and one of every third; the first four batches are all compared.
    A batch whose loss is not finite is predicted by the source model and undone at once; from
    images that are not finite nothing is learnt to begin with.

    A batch is a tensor or an array: uint8 images of any size (N×H×W×3 or N×3×H×W) are resized, cut
    and scaled by ``preprocessing``, which comes from the model's own record where it has one (what
    ``models.load`` gave, or timm's); float tensors are model input as they are, in the
    model's precision. ``repr(stream)`` shows which preprocessing is used. Of the first batch, and
    where the size of the images changes, one image is tried first: what the model does not take is
    refused before anything is learnt.

    Threads take turns; ``reset``, ``to``, ``state_dict`` and the like wait for the batch at work.
    ``events`` has the last 1,000 things the guard saw, ``event_count`` counts them all.

    In a process group every process gives its own part of each batch, and all learn the same.

    ``speed`` is as in :func:`acclimate.adapt`; what is faster is measured on the first batch.

    ``recipe="auto"`` is ``ent`` for models with batch norm, else ``rpl``; the learning rate goes by
    the number of classes (docs/defaults.md), and ``notes`` says which it is and why.

    Where the guard acts, the first four batches and then every ``check_every``-th are shown to the
    unadapted model too, in mild views, and as long as adapting is estimated to do harm the
    unadapted model predicts (``contained``). Where the mix of classes varies from batch to batch
    harm is to be expected, and it predicts unless a gain is likely. The same tells the error
    without labels (``estimated_error``) and calibrates :meth:`probabilities`.

    ``callbacks`` are called after every step, and with what the guard saw in place of a warning
    (see :mod:`acclimate.callbacks`).

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    >>> stream = Stream(net, "ent")
    >>> stream(torch.rand(8, 3, 2, 2)).shape
    torch.Size([8, 3])
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        model: nn.Module | LoadedModel,
        recipe: str | Recipe = AUTO,
        *,
        options: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        preprocessing: Preprocessing | None = None,
        episodic: bool = False,
        predictions: Literal["before", "after"] | None = None,
        guard: str | Guard = "rollback",
        speed: Speed = "auto",
        inplace: bool = False,
        seed: int = 0,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        super().__init__()
        self.callbacks = check_callbacks(callbacks)
        loaded = as_loaded(model, preprocessing)
        self.name, self.preprocessing = loaded.name, loaded.preprocessing
        self.notes: list[str] = []
        if recipe == AUTO:
            recipe = "ent" if batch_norm_layers(loaded.model) else "rpl"
        chosen = get_recipe(recipe, options)
        chosen.check(loaded.model)  # before it is asked for its classes
        self._unsized = batch_size is None and chosen.learns and chosen.optimizer.lr is None
        if isinstance(recipe, str):
            chosen, self.notes = tuned_recipe(
                get_recipe(recipe),
                options or {},
                model_name=self.name,
                images=None,
                model=loaded.model,
                classes=loaded.class_count,
            )
        self.guard = make_guard(guard)
        if self.guard.action != "off":
            warn_of_temperatures(chosen)
        if predictions not in (None, "before", "after"):
            raise AcclimateError(f"expected predictions='before' or 'after', got {predictions!r}")
        if episodic and chosen.episode is None:
            chosen = replace(chosen, episode="batch")
        chosen.check(loaded.model)  # before it is copied
        if chosen.episode and predictions == "before":
            raise AcclimateError(
                "an episode predicts after its update: expected predictions='after'"
            )
        self.episodic = chosen.episode is not None
        self.predictions = predictions or ("after" if self.episodic else "before")
        self.model = loaded.model if inplace else copy_model(loaded.model)
        count = len(loaded.classes) if loaded.classes else None
        self.learner = Learner(self.model, chosen, batch_size=batch_size, seed=seed, classes=count)
        self.notes += scaling_note(self.learner)
        check_speed(speed)
        self.speed = speed
        self._unchosen = not parallel.active()
        self.learner.start_epoch()
        self.events: list[Event] = []
        self.event_count = 0
        self._tried: torch.Size | None = None
        self.paused = False
        self._fresh = self.learner.snapshot()
        self._watch = Watch()
        self._watch.start(self.learner)
        self._rollbacks = 0
        self._comparison = Comparison()
        self._lock = _Lock()

    @property
    def learns(self) -> bool:
        """Whether the next batch will move any parameter."""
        return self.learner.recipe.learns and not self.paused

    @property
    def checked(self) -> bool:
        """Whether the guard has looked at what was learnt last, and found nothing."""
        return self.guard.action == "off" or self._watch.steps == 0

    @property
    def _called(self) -> Sequence[Callback]:
        return self.callbacks if parallel.is_main() else ()

    def __repr__(self) -> str:
        """A few lines: the layers of the model are ``repr(stream.model)``."""
        known = self.preprocessing
        rows = {
            "model": self.name,
            "recipe": self.learner.recipe.name,
            "predictions": f"{self.predictions} the update",
            "guard": f"{self.guard.action}, {counted(self.event_count, 'event')}",
            "preprocessing": known.describe() if known else "none: takes float model input only",
        }
        doing = "learning" if self.learns else "not learning"
        return titled_rows(f"Stream: step {self.learner.steps}, {doing}", rows)

    @torch.inference_mode(False)
    def forward(self, images: Tensor | NDArray[Any]) -> Tensor:
        """Logits for a batch; learns from it unless paused. Threads take turns."""
        with self._lock:
            return self._predict(self._model_input(images))

    def _model_input(self, images: Tensor | NDArray[Any]) -> Tensor:
        """A batch as the model takes it, with the preprocessing of its record."""
        if not isinstance(images, Tensor | np.ndarray):
            raise AcclimateError(
                "expected a batch of images as a tensor or array (uint8 N×H×W×3 or N×3×H×W, or "
                f"float N×C×H×W model input), got {type(images).__name__}"
            )
        parameter = next(self.model.parameters(), torch.zeros(()))
        known = self.preprocessing
        ready = model_input(images, known, device=parameter.device)
        if known and (ready.ndim != 4 or ready.shape[1] != known.channels):
            raise AcclimateError(
                f"expected float images as N×{known.channels}×H×W, as the model takes them, got "
                f"{'×'.join(map(str, ready.shape))}"
            )
        return ready.to(parameter.device, floating_dtype(self.model))

    def _predict(self, images: Tensor) -> Tensor:
        if images.is_inference():  # made under inference_mode: autograd wants one of its own
            images = images.clone()
        if not len(images) and not parallel.active():  # nothing to learn from
            return self.learner.source_forward(images).logits
        if len(images) and images.shape[1:] != self._tried:
            self.learner.try_out(images)
            self._tried = images.shape[1:]
        if self._unsized:
            self._fit_rate(len(images))
        if self._unchosen:  # the first batch shows what is faster
            self.learner.network.accelerate(choose(self.model, images, speed=self.speed))
            self._unchosen = False
            self._warn_of_few(len(images))
            warn_of_unscaled(float(images.min()), float(images.max()))
        if self._compares:
            self._comparison.count()
            self._sample(images)
            if self._comparison.is_due(self.guard.check_every):
                self._compare(images)
        if self._comparison.contained:
            return self.learner.source_forward(images).logits
        if self.paused:
            logits = self.learner.logits(images)
            fit = self._is_fit(logits)
        elif self.guard.acts and self._is_broken(images):  # lost alone, with no step to undo
            logits, fit = images, False
        else:
            result = self.learner.step(images)
            step = StepRecord(step=self.learner.steps, images=len(images), loss=result.loss)
            for callback in self._called:
                callback.on_step_end(step)
            logits, fit = result.logits, self._guard(images, result.logits, result.loss)
            if fit and self.predictions == "after" and not self.episodic:
                logits = self.learner.logits(images)
        # Batch statistics spread one broken image over the whole batch; the source's do not.
        return logits if fit else self.learner.source_forward(images).logits

    def _fit_rate(self, images: int) -> None:
        """Learn at the rate for batches as small as the first: it is ours, and fits larger ones."""
        self._unsized = False
        small = images < self.learner.batch_size and not parallel.active()
        if small and not self.learner.steps:
            self.learner.resize(images)
            self._fresh = self.learner.snapshot()
            self._watch.start(self.learner)
            self.notes += scaling_note(self.learner)

    @property
    def _compares(self) -> bool:
        """Whether the unadapted model can be compared with the adapting one, and used for it."""
        recipe = self.learner.recipe
        keeps = recipe.exports and recipe.episode is None
        adapts = recipe.learns or (recipe.normalization.adapts and bool(self._layers))
        return self.guard.acts and keeps and adapts and not parallel.active()

    @property
    def _layers(self) -> Mapping[str, nn.Module]:
        return self.learner.statistics.layers

    def _compare(self, images: Tensor) -> None:
        """Show both models a batch in several views; the one with the lower estimate predicts."""
        comparison, learner = self._comparison, self.learner
        was_contained = comparison.contained
        before = observe(lambda x: learner.source_forward(x).logits, [images])
        if learner.recipe.normalization.adapts and self._layers:
            pool = learner.statistics.pool()
            try:
                after = observe(learner.logits, [images])
            finally:
                pool.close()
            shift = learner.statistics.distances(pool)
        else:
            after, shift = observe(learner.logits, [images]), []
        comparison.add(before, after, shift)
        if comparison.contained:
            self._contain(anew=not was_contained)
        elif was_contained:
            self._record(
                Event(step=learner.steps, trouble=str(comparison.estimate), action="adapts again")
            )

    def _sample(self, images: Tensor) -> None:
        """From time to time, keep what the norm layers see of both halves of a batch."""
        adapts = self.learner.recipe.normalization.adapts and bool(self._layers)
        if self._comparison.sample_is_due and adapts and len(images) >= 2 * HALVES:
            self._comparison.sample([self._statistics(images[start::2]) for start in (0, 1)])

    def _statistics(self, images: Tensor) -> dict[str, Tensor]:
        """What the norm layers see of some images, in units of the source's."""
        pool = self.learner.statistics.pool()
        try:
            self.learner.logits(images)
        finally:
            pool.close()
        return {k: each.cpu() for k, each in self.learner.statistics.in_units(pool).items()}

    def _contain(self, *, anew: bool) -> None:
        """Let the unadapted model predict; what may have been learnt from such images is undone."""
        learner, estimate, step = self.learner, self._comparison.estimate, self.learner.steps
        action = "the unadapted model predicts"
        if self.guard.action == "rollback" and drift(learner) > 0:
            if anew:
                action += f"; went back to step {self._watch.roll_back(learner)}"
            else:
                learner.load_state_tensors(self._fresh)
                self._watch.start(learner)
            self._comparison.forget_adapted()
        if anew:
            trouble = f"adapting does harm: {estimate}"
            if self._comparison.mix_varies:
                trouble += "; the mix of classes varies from batch to batch"
            self._record(Event(step=step, trouble=trouble, action=action))

    @property
    def estimated_error(self) -> ErrorEstimate | None:
        """Of the unadapted and the adapting model on the latest images, without labels.

        None before 30 images were compared, and where the guard does not compare them.
        """
        return self._comparison.estimate

    @property
    def contained(self) -> bool:
        """Whether the unadapted model predicts, since adapting is estimated to do harm."""
        return self._comparison.contained

    @torch.inference_mode(False)
    def probabilities(self, images: Tensor | NDArray[Any]) -> Tensor:
        """As a call, in place of logits probabilities, calibrated by the estimated error.

        >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
        >>> Stream(net).probabilities(torch.rand(8, 3, 2, 2)).sum(dim=1).allclose(torch.ones(8))
        True
        """
        with self._lock:
            logits = self.forward(images)
            return (logits.float() / self._comparison.temperature).softmax(dim=1)

    def _warn_of_few(self, images: int) -> None:
        batch = isinstance(self.learner.recipe.normalization, BatchStatistics)
        if batch and self.learner.statistics.layers and 1 < images < FEW:
            warnings.warn(
                f"statistics of {images} images are mostly noise, and predictions may be worse "
                f"than the source model's: for batches of fewer than {FEW} take "
                "options={'normalization': 'mixture'}",
                AcclimateWarning,
                stacklevel=4,
            )

    def _is_broken(self, images: Tensor) -> bool:
        """Whether an image has values that are not finite, which nothing can be learnt from."""
        recipe = self.learner.recipe
        if parallel.active() or not (recipe.learns and recipe.steps):
            return False  # all processes take each step; or nothing is kept from batch to batch
        if bool(torch.isfinite(images).all()):
            return False
        trouble, action = "images are not finite", "learnt nothing from the batch"
        self._record(Event(step=self.learner.steps, trouble=trouble, action=action))
        return True

    def _is_fit(self, logits: Tensor) -> bool:
        """Whether logits may be returned; the caller is about to read them anyway."""
        return not self.guard.acts or bool(torch.isfinite(logits).all())

    def _guard(self, images: Tensor, logits: Tensor, loss: Tensor | None) -> bool:
        """Watch a step; False when its logits are not fit to be returned."""
        recipe = self.learner.recipe
        if self.guard.action == "off":
            return True
        # Waiting for one number costs little, and a stream that learnt from nonsense must not
        # return it. Where no image counted there is no loss to look at.
        shown = logits if loss is None and recipe.learns else loss
        broken = shown is not None and not bool(torch.isfinite(shown).all())
        if not recipe.steps:  # nothing is kept from batch to batch
            # The loss is that of an episode's first step; the logits are made after the last.
            return self._is_fit(logits) and not (broken and self.guard.acts)
        full = broken or self._watch.steps + 1 >= self.guard.check_every
        source = self.learner.source_forward(images).logits if full else None
        if parallel.active():  # all processes must come to one decision
            logits = parallel.gathered(logits)
            source = None if source is None else parallel.gathered(source)
        self._watch.see(logits, loss, source_logits=source)
        if full:
            trouble = self._watch.check(self.guard, self.learner)
            if trouble is None:
                self._rollbacks = 0
            else:
                self._react(trouble)
        return not (broken and self.guard.acts)

    def _react(self, trouble: str) -> None:
        step, action = self.learner.steps, "recorded"
        # A stream that only stops continues to predict, with parameters that are finite.
        broken = self.guard.acts and not math.isfinite(drift(self.learner))
        if self.guard.action == "rollback" or broken:
            action = f"went back to step {self._watch.roll_back(self.learner)}"
            self._rollbacks += 1
        if self.guard.action == "stop" or self._rollbacks >= PATIENCE:
            action += " and stopped learning"
            self.pause()
        self._record(Event(step=step, trouble=trouble, action=action))

    def _record(self, event: Event) -> None:
        self.events.append(event)
        self.event_count += 1
        del self.events[:-EVENTS]
        for callback in self._called:
            callback.on_event(event)
        if self.guard.action != "observe" and not self.callbacks:
            warnings.warn(str(event), AcclimateWarning, stacklevel=4)

    def pause(self) -> None:
        """Predict only, with the recipe's statistics, until :meth:`resume`."""
        with self._lock:
            self.paused = True

    def resume(self) -> None:
        """Learn again."""
        with self._lock:
            self.paused = False
            self._rollbacks = 0

    def reset(self) -> None:
        """Forget everything learnt: back to the source model."""
        with self._lock:
            self.learner.load_state_tensors(self._fresh)
            self._watch = Watch()
            self._watch.start(self.learner)
            self._comparison = Comparison()
            self.events.clear()
            self.event_count = 0
            self.resume()

    def train(self, mode: bool = True) -> Stream:
        """A stream sets the modes of its layers itself; ``train`` and ``eval`` leave them alone."""
        self.training = mode
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Stream:
        """What ``to``, ``cuda`` and ``double`` call: all state follows the model."""
        with self._lock:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            self.learner.transform(fn)
            self._unchosen, self._tried = not parallel.active(), None
            # Numbers, such as a learning rate, are kept to the last digit.
            self._fresh = {name: fn(t) if t.ndim else t for name, t in self._fresh.items()}
            transform(self._watch, fn)
        return self

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As of any module, between two batches."""
        with self._lock:
            return super().load_state_dict(*args, **kwargs)

    def get_extra_state(self) -> dict[str, Tensor]:
        """What ``state_dict`` holds beside the model: all it takes to resume, or to reset."""
        with self._lock:
            state = {f"learner/{k}": v for k, v in self.learner.snapshot().items()}
            state |= {f"fresh/{k}": v for k, v in self._fresh.items()}
            state |= {f"watch/{k}": v for k, v in pack(self._watch).items()}
            state |= {f"comparison/{k}": v for k, v in pack(self._comparison).items()}
            state["recipe"] = torch.tensor(list(_described(self.learner.recipe)), dtype=torch.uint8)
            state["paused"] = torch.tensor(self.paused)
            state["rollbacks"] = torch.tensor(self._rollbacks)
            return {**state, _SEAL: _sealed(state)}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Resume from what ``state_dict`` held; that of another recipe, or damaged, is refused."""
        try:
            self._resume_from(state)
        except torch.OutOfMemoryError:
            raise
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise AcclimateError(
                f"expected what state_dict of a stream held, got something else ({error!r:.120}): "
                "it is damaged; load another, and make this stream anew, since a part of the state "
                "may have been loaded"
            ) from error

    def _resume_from(self, state: dict[str, Tensor]) -> None:
        with self._lock:
            if "recipe" in state:  # 0.1 wrote none
                _check_recipe(bytes(state["recipe"].tolist()), self.learner.recipe)
            _check_seal(state)
            self.learner.load_state_tensors(under("learner/", state))
            self._fresh = under("fresh/", state)
            for name, tensor in self.learner.source.items():
                tensor.copy_(self._fresh[f"learning/{name}"])
            unpack(self._watch, under("watch/", state))
            self._comparison = Comparison()  # 0.1 compared nothing
            unpack(self._comparison, under("comparison/", state))
            if int(self._comparison.sizes.sum()) != self._comparison.images:
                self._comparison.forget_adapted()  # of before batches were told apart
            self.paused = bool(state["paused"])
            self._rollbacks = int(state["rollbacks"])


_SEAL = "sha256"
"""Of all the rest: a tensor of another shape would only be noticed in a later batch."""


def _sealed(state: Mapping[str, Tensor]) -> Tensor:
    digest = bytes.fromhex(tensors_sha256(state))
    return torch.tensor(list(digest), dtype=torch.uint8)


def _check_seal(state: Mapping[str, Tensor]) -> None:
    rest = {name: tensor for name, tensor in state.items() if name != _SEAL}
    if _SEAL in state and not torch.equal(state[_SEAL].cpu(), _sealed(rest)):  # 0.1 wrote none
        raise ValueError("its contents are not those that were saved")


def _described(recipe: Recipe) -> bytes:
    """What of a recipe changes what is learnt; its name does not."""
    plain = {k: v for k, v in recipe.to_dict().items() if k not in ("name", "summary")}
    return json.dumps(plain, default=str).encode()


def _check_recipe(stored: bytes, recipe: Recipe) -> None:
    there, here = json.loads(stored), json.loads(_described(recipe))
    if there == here:
        return
    option, got, expected = first_difference(there, here)
    raise AcclimateError(
        f"this state is of another recipe: expected {option} {expected}, as this stream has it, "
        f"got {got}; make the stream with the recipe and options it was saved with: "
        "Stream(model, recipe, options=...)"
    )
