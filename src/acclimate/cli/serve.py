"""``acclimate serve``."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, get_args

from acclimate.cli.images import check_path, load_model
from acclimate.cli.options import (
    SPEED,
    add_command,
    add_device,
    add_model,
    add_recipe,
    assignments,
)
from acclimate.errors import AcclimateError
from acclimate.registry import parse_assignments
from acclimate.serve.settings import Mode, Settings
from acclimate.text import Speed, user_path

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["add_parser"]

_DESCRIPTION = """\
Serve a classifier that adapts to the images it is sent (pip install
'acclimate[serve]'). POST images to /predict; /docs describes all routes.

examples:
  acclimate serve --model timm:resnet50.a1_in1k --state versions/
  acclimate serve --model timm:resnet50.a1_in1k --mode shadow --port 8080
  acclimate serve --model timm:resnet50.a1_in1k --replicas 4 --state versions/
  curl -F image=@photo.jpg http://127.0.0.1:8000/predict
"""

_TOKEN = "ACCLIMATE_ADMIN_TOKEN"

_LIMITS = {
    "batch_size": ("N", "images answered at once"),
    "wait_ms": ("MS", "how long the first image of a batch waits for others"),
    "queue": ("N", "images that may wait; more get status 429"),
    "learn_batch": ("N", "images of a learning step; the learning rate follows"),
    "learn_share": ("X", "share of the time the learner may work, 0 to 1"),
    "client_share": ("X", "share of a learning step that one client may give, 0 to 1"),
    "every": ("N", "learning steps from version to version"),
    "keep": ("N", "versions that are kept"),
    "max_drift": ("X", "how far parameters may move before the guard goes back"),
    "max_body": ("BYTES", "largest request"),
    "max_pixels": ("N", "largest image, as it is sent"),
    "max_images": ("N", "most images of a request"),
}


def add_parser(commands: Any) -> None:
    """``acclimate serve`` and its options."""
    groups = add_command(
        commands,
        "serve",
        run,
        summary="serve a classifier that adapts to the images it is sent",
        description=_DESCRIPTION,
        data="model",
    )
    add_model(groups)
    groups.data.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="of calibrated probabilities (default: that of --weights from a run)",
    )
    known = "images the model is known to work on: no version may overturn many predictions there"
    groups.data.add_argument("--reference", metavar="PATH", help=known)
    add_recipe(groups, default="auto")
    add = groups.method.add_argument
    modes = "live: adapted answers; shadow: adapts beside; frozen: never (default: live)"
    add("--mode", choices=get_args(Mode), default="live", help=modes)
    add = groups.output.add_argument
    where = "keep versions there, and continue with the newest (default: in memory)"
    add("--state", metavar="DIR", help=where)
    add = groups.running.add_argument
    add("--host", default="127.0.0.1", help="default: %(default)s, this machine alone")
    add("--port", type=int, default=8000, metavar="N", help="default: %(default)s; 0: a free one")
    token = f"for /pause, /resume, /reset, /rollback (default: {_TOKEN} in the environment)"
    add("--admin-token", metavar="TOKEN", help=token)
    many = "processes that predict, on Ray Serve, beside one that learns (default: one for both)"
    add("--replicas", type=int, metavar="N", help=many)
    where = "of a Ray cluster to run on, or auto (default: one of this machine alone)"
    add("--address", metavar="HOST:PORT", help=where)
    header = "header with the client's address, where a proxy you trust sets it"
    add("--client-header", metavar="NAME", help=header)
    default = Settings()
    for name, (metavar, words) in _LIMITS.items():
        value = getattr(default, name)
        known = "the recipe's" if value is None else f"{value:,}"
        add(
            f"--{name.replace('_', '-')}",
            type=float if isinstance(value, float) else int,
            metavar=metavar,
            help=f"{words} (default: {known})",
        )
    add("--speed", choices=get_args(Speed), help=f"{SPEED} (default: auto)")
    add_device(groups)


def run(args: argparse.Namespace) -> int:
    """Serve until the process is told to end."""
    if args.model is None:
        raise AcclimateError("expected --model SPEC (see acclimate list models)")
    given = {name: getattr(args, name) for name in _LIMITS if getattr(args, name) is not None}
    settings = Settings(mode=args.mode, **given)
    if args.reference is not None:
        check_path(args.reference, "--reference")
    options = parse_assignments(assignments(args))
    if args.admin_token == "":
        raise AcclimateError("expected --admin-token TOKEN, got an empty one")

    from acclimate.models.libraries import import_optional

    for package in ("fastapi", "uvicorn", "python_multipart", "prometheus_client"):
        import_optional(package, extra="serve")
    import uvicorn

    from acclimate.adaptation.auto import AUTO
    from acclimate.methods.registry import get_recipe
    from acclimate.serve.app import make_app
    from acclimate.serve.metrics import Metrics
    from acclimate.serve.server import Server

    recipe = args.recipe or AUTO
    get_recipe(
        "ent" if recipe == AUTO else recipe, options
    )  # a typo shows before a model is loaded
    if args.address is not None and args.replicas is None:
        raise AcclimateError("--address needs --replicas N")
    if args.replicas is not None:
        return _run_on_ray(args, recipe, options, settings)
    listening = _listen(args.host, args.port)
    with listening:
        loaded = load_model(args)
        metrics = Metrics(settings)
        server = Server(
            loaded,
            recipe,
            options=options,
            folder=args.state,
            settings=settings,
            temperature=args.temperature or _temperature(args.weights),
            reference=args.reference,
            observer=metrics,
            device=args.device,
            speed=args.speed or "auto",
            seed=args.seed,
        )
        app = make_app(
            server,
            metrics,
            admin_token=args.admin_token or os.environ.get(_TOKEN),
            client_header=args.client_header,
        )
        print(loaded.describe(), end="\n\n")
        for note in server.notes:
            print(f"note: {note}")
        host, port = listening.getsockname()[:2]
        print(
            f"{settings.mode}, recipe {server.recipe}, version {server.version.number}: "
            f"http://{f'[{host}]' if ':' in host else host}:{port}/docs",
            flush=True,
        )
        sys.stdout.flush()
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=30
        )
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            server.close()
    return 0


def _run_on_ray(
    args: argparse.Namespace, recipe: str, options: dict[str, Any], settings: Settings
) -> int:
    """Serve on a Ray cluster until the process is told to end."""
    import logging
    import signal
    import threading
    from functools import partial

    from acclimate.models.libraries import import_optional

    for package in ("ray", "grpc", "aiohttp_cors"):
        import_optional(package, extra="ray")
    from acclimate.serve.background import chosen_recipe
    from acclimate.serve.on_ray import Plan, application, running_on

    args.weights = _everywhere(args.weights)
    loaded = load_model(args)  # what is wrong with it shows here, and not in the logs of a node
    name = chosen_recipe(recipe, options, loaded.model, settings).name
    plan = Plan(
        load=partial(load_model, args),
        recipe=recipe,
        options=options,
        folder=_everywhere(args.state),
        settings=settings,
        temperature=args.temperature or _temperature(args.weights),
        reference=_everywhere(args.reference),
        admin_token=args.admin_token or os.environ.get(_TOKEN),
        client_header=args.client_header,
        device=args.device,
        speed=args.speed or "auto",
        seed=args.seed,
    )
    made = application(plan, replicas=args.replicas, gpus=float(args.device == "cuda"))
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    ended = threading.Event()
    print(loaded.describe(), end="\n\n", flush=True)
    with running_on(
        made, address=args.address, host=args.host, port=args.port, processes=args.replicas + 1
    ):
        for number in (signal.SIGTERM, signal.SIGINT):  # Ray's own handlers print a trace
            signal.signal(number, lambda *_: ended.set())
        host = f"[{args.host}]" if ":" in args.host else args.host
        print(
            f"{settings.mode}, recipe {name}, {args.replicas} replicas: "
            f"http://{host}:{args.port}/docs",
            flush=True,
        )
        ended.wait()
    return 0


def _everywhere(path: str | None) -> str | None:
    """A path that does not depend on the folder a process of the cluster begins in."""
    return None if path is None else str(user_path(path).absolute())


def _listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; what is wrong with the address shows before the work."""
    if not 0 <= port < 2**16:
        raise AcclimateError(f"expected a port from 0 to 65535, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise AcclimateError(
            f"cannot listen at {host}:{port}: {error.strerror or error}; choose another --port"
        ) from error


def _temperature(weights: str | Path | None) -> float | None:
    """The temperature that the weights of a run record."""
    if weights is None or not str(weights).endswith(".safetensors"):
        return None

    from acclimate.checkpoint import read_record

    found = read_record(user_path(weights)).get("temperature")
    return float(found) if isinstance(found, int | float) and found > 0 else None
