"""The server on Ray Serve: replicas that predict on any node, and one learner for all of them.

``serve run acclimate.serve.on_ray:build model=acclimate:digits state=versions/ replicas=4`` deploys
it on a cluster, ``acclimate serve --replicas 4`` starts one for it or joins one.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Metric, generate_latest
from ray import serve
from ray.serve.handle import DeploymentHandle
from torch import Tensor, nn

from acclimate.adaptation.auto import AUTO
from acclimate.errors import AcclimateError
from acclimate.models import LoadedModel, load
from acclimate.serve.app import ADMIN_TOKEN, make_app
from acclimate.serve.background import Background, chosen_recipe, make_background
from acclimate.serve.follower import Follower, News, SharedMetrics
from acclimate.serve.metrics import Metrics
from acclimate.serve.replica import Source
from acclimate.serve.server import NEVER
from acclimate.serve.settings import Settings
from acclimate.serve.versions import Version
from acclimate.text import Speed

__all__ = ["Learner", "Plan", "Predictor", "application", "build", "running_on"]

NAME = "acclimate"
"""Of the application on the cluster."""

GONE = 3.0
"""Seconds after which a replica that asks no more is left out."""

PATIENCE = 5.0
"""Seconds that a replica waits for the learner's word."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What every process of the application is made from; ``load`` is called on each.

    Args:
        load: returns the source model. It is pickled, and called in each process.
        folder: of the versions, which the node of the learner, whichever it is, has to see.
    """

    load: Callable[[], LoadedModel]
    recipe: str = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    folder: str | None = None
    settings: Settings = field(default_factory=Settings)
    temperature: float | None = None
    reference: str | None = None
    admin_token: str | None = None
    client_header: str | None = None
    device: str | None = None
    speed: Speed = "auto"
    seed: int = 0

    def source(self) -> Source:
        """The source model on this process's device."""
        return Source.of(self.load(), device=self.device)


class Learner:
    """Learns from a sample of what all replicas predict, and has the newest version for them."""

    def __init__(self, plan: Plan) -> None:
        torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS") or 1)))
        self._plan, self._source = plan, plan.source()
        self._newest: News | None = None
        self._replicas: dict[str, tuple[float, int, list[Any]]] = {}
        self._metrics = Metrics(plan.settings)
        self._background: Background | None = None
        if plan.settings.mode != "frozen":
            self._background, _ = make_background(
                self._source,
                plan.recipe,
                options=plan.options,
                folder=plan.folder,
                settings=plan.settings,
                publish=self._publish,
                observer=self._metrics,
                reference=plan.reference,
                seed=plan.seed,
                speed=plan.speed,
            )

    def _publish(self, model: nn.Module, version: Version) -> None:
        """Keep what of a version differs from the source model, for replicas to fetch."""
        source = self._source.model.state_dict()
        state = {k: v for k, v in model.state_dict().items() if isinstance(v, Tensor)}
        if unknown := state.keys() - source.keys():
            raise AcclimateError(
                f"the recipe adds layers ({min(unknown)}), which replicas do not have; choose "
                "another, or serve in one process, without --replicas"
            )
        tensors = {
            name: tensor.cpu().numpy()
            for name, tensor in state.items()
            if not torch.equal(tensor, source[name])
        }
        self._newest = News(wanted=0, version=version, tensors=tensors)
        self._metrics.on_version(version)

    async def news(
        self,
        replica: str,
        known: tuple[int, str],
        images: NDArray[np.float32] | None,
        clients: list[str],
        families: list[Any],
    ) -> News:
        """Take images, and answer with another version where there is one."""
        self._replicas[replica] = time.monotonic(), known[0], families
        background, newest = self._background, self._newest
        if background is None:
            return News(wanted=0)
        if images is not None:
            for client, image in zip(clients, torch.from_numpy(np.array(images)), strict=True):
                background.offer(image[None], client)
        wanted = -(-background.room // max(1, len(self._present())))
        version = newest.version if newest is not None else None
        if newest is None or version is None or (version.number, version.created) == known:
            return News(wanted=wanted)
        return News(wanted=wanted, version=version, tensors=newest.tensors)

    def _present(self) -> dict[str, tuple[float, int, list[Any]]]:
        since = time.monotonic() - GONE
        self._replicas = {k: seen for k, seen in self._replicas.items() if seen[0] > since}
        return self._replicas

    async def status(self) -> dict[str, Any]:
        """What an operator wants to see, with the version that each replica has."""
        learning = NEVER if self._background is None else self._background.status()
        return {**learning, "replicas": {k: seen[1] for k, seen in self._present().items()}}

    async def listed(self) -> list[Version]:
        """The versions that are kept."""
        if self._background is None:
            return [Version(number=0, cause="start", created="")]
        return self._background.versions.list()

    async def operate(self, action: str, *arguments: Any) -> tuple[str, str | None]:
        """Do what an operator asked for; what speaks against it, and of which kind that is."""
        if self._background is None:
            return AcclimateError.__name__, "the server is frozen: it does not learn"
        try:
            await asyncio.to_thread(getattr(self._background, action), *arguments)
        except AcclimateError as error:
            return type(error).__name__, str(error)
        return "", None

    async def metrics(self) -> bytes:
        """Of the learner, and of each replica under a label with its name."""
        measured = {name: seen[2] for name, seen in self._present().items()}
        measured["learner"] = list(self._metrics.registry.collect())
        registry = CollectorRegistry()
        registry.register(_Labelled(measured))
        return generate_latest(registry)

    def check_health(self) -> None:
        """Called by Ray Serve; a learner that fails leaves predictions alone, and is reported."""


class _Labelled:
    """The metrics of several processes, each under a label with its name."""

    def __init__(self, measured: Mapping[str, list[Any]]) -> None:
        self._measured = measured

    def collect(self) -> list[Any]:
        """As prometheus_client asks for them."""
        families: dict[str, Any] = {}
        for name, measured in self._measured.items():
            for each in measured:
                new = Metric(each.name, each.documentation, each.type)
                family = families.setdefault(each.name, new)
                family.samples += [
                    sample._replace(labels={**sample.labels, "replica": name})
                    for sample in each.samples
                ]
        return list(families.values())


class _Front:
    """The application of this process: Ray Serve wants one before there is a replica."""

    current: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await type(self).current(scope, receive, send)
            return
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})


@serve.ingress(_Front())
class Predictor:
    """One replica: the HTTP side, and a model that follows the learner."""

    def __init__(self, plan: Plan, learner: DeploymentHandle) -> None:
        torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS") or 1)))
        source = plan.source()
        recipe = chosen_recipe(plan.recipe, plan.options, source.model, plan.settings).name
        metrics = SharedMetrics(plan.settings)

        def call(method: str, *arguments: Any) -> Any:
            asked = getattr(learner, method).remote(*arguments)
            try:
                return asked.result(timeout_s=PATIENCE)
            except TimeoutError:
                asked.cancel()
                raise

        metrics.everyone = partial(call, "metrics")
        self._follower = Follower(
            source,
            plan.settings,
            call,
            recipe=recipe,
            name=serve.get_replica_context().replica_id.unique_id,
            temperature=plan.temperature,
            metrics=metrics,
        )
        _Front.current = make_app(
            self._follower,
            metrics,
            admin_token=plan.admin_token,
            client_header=plan.client_header,
        )

    def __del__(self) -> None:
        if (follower := getattr(self, "_follower", None)) is not None:
            follower.close()


def application(plan: Plan, *, replicas: int = 2, cpus: float = 1.0, gpus: float = 0.0) -> Any:
    """The application, for ``ray.serve.run``: so many replicas, and one learner.

    Ray Serve restarts what dies. ``cpus`` and ``gpus`` are what each process reserves.
    """
    if replicas < 1:
        raise AcclimateError(f"expected replicas >= 1, got {replicas}")
    if plan.folder is None and plan.settings.mode != "frozen":
        raise AcclimateError(
            "expected --state DIR: a learner that is restarted, maybe on another node, continues "
            "with the versions it finds there"
        )
    chosen = {
        "ray_actor_options": {"num_cpus": cpus, "num_gpus": gpus},
        "health_check_period_s": 1.0,
        "health_check_timeout_s": 10.0,
        "graceful_shutdown_timeout_s": 10.0,
    }
    learner = serve.deployment(Learner).options(num_replicas=1, max_ongoing_requests=1000, **chosen)
    predictor = serve.deployment(Predictor).options(
        num_replicas=replicas,
        max_ongoing_requests=plan.settings.queue,
        max_queued_requests=plan.settings.queue,  # more are refused, and not kept in memory
        **chosen,
    )
    return predictor.bind(plan, learner.bind(plan))


@contextmanager
def running_on(
    made: Any, *, address: str | None, host: str, port: int, processes: int
) -> Iterator[None]:
    """The application on a cluster, gone at the end; without an address the cluster goes too."""
    own = address is None
    room = {"num_cpus": max(processes, os.cpu_count() or 1)} if own else {}
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level="ERROR",
            include_dashboard=False,
            **room,
        )
    except (OSError, ValueError) as error:
        raise AcclimateError(
            f"no Ray cluster at {address or 'this machine'}: {error}; start one (ray start "
            "--head), or leave --address out for one of this machine alone"
        ) from error
    try:
        serve.start(http_options={"host": host, "port": port})
        serve.run(made, name=NAME, route_prefix="/", logging_config={"log_level": "ERROR"})
    except RuntimeError as error:
        ray.shutdown()
        raise AcclimateError(f"the application did not start: {error}") from error
    try:
        yield
    finally:
        if own:
            serve.shutdown()
        else:
            serve.delete(NAME)
        ray.shutdown()


def build(arguments: Mapping[str, Any]) -> Any:
    """The application from words, for ``serve run acclimate.serve.on_ray:build model=... ...``.

    Known are ``model``, ``weights``, ``recipe``, ``state``, ``reference``, ``replicas``, ``cpus``,
    ``gpus``, ``device`` and the fields of :class:`acclimate.serve.Settings`. The token of the admin
    routes is read from the environment.
    """
    given = dict(arguments)
    if "model" not in given:
        raise AcclimateError("expected model=SPEC (see acclimate list models)")
    spec, weights = given.pop("model"), given.pop("weights", None)
    shape = {name: float(given.pop(name)) for name in ("cpus", "gpus") if name in given}
    replicas = int(given.pop("replicas", 2))
    known = {
        name: given.pop(key)
        for name, key in (
            *(("recipe", "recipe"), ("folder", "state")),
            *(("reference", "reference"), ("device", "device")),
        )
        if key in given
    }
    kinds = {item.name: type(getattr(Settings(), item.name)) for item in fields(Settings)}
    kinds["learn_batch"] = int
    if unknown := given.keys() - kinds.keys():
        raise AcclimateError(
            f"unknown argument {min(unknown)!r}; expected model, weights, recipe, state, "
            f"reference, replicas, cpus, gpus, device or one of {', '.join(sorted(kinds))}"
        )
    plan = Plan(
        load=partial(load, spec, weights=weights),
        settings=Settings(**{name: kinds[name](value) for name, value in given.items()}),
        admin_token=os.environ.get(ADMIN_TOKEN),
        **known,
    )
    return application(plan, replicas=replicas, **shape)
