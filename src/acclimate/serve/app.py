"""The HTTP side of a server: FastAPI over :class:`acclimate.serve.Server`."""

from __future__ import annotations

import asyncio
import functools
import hmac
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from torch import Tensor

from acclimate._version import __version__
from acclimate.errors import AcclimateError
from acclimate.serve import bodies
from acclimate.serve.batching import ClosedError, FullError
from acclimate.serve.bodies import RefusedError
from acclimate.serve.follower import Follower, UnreachableError
from acclimate.serve.metrics import Metrics
from acclimate.serve.replica import Answer
from acclimate.serve.server import Server
from acclimate.serve.versions import NoVersionError

__all__ = ["ADMIN_TOKEN", "make_app"]

ADMIN_TOKEN = "ACCLIMATE_ADMIN_TOKEN"
"""The environment variable with the token of the admin routes."""

MOST_TOP = 1000
_BEARER = HTTPBearer(auto_error=False, description=f"The token of --admin-token or {ADMIN_TOKEN}")
_OWN_PAGE = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'"
)
_DECODERS = min(4, os.cpu_count() or 1)
_IMAGE = {"type": "string", "format": "binary"}
_BASE64 = {"type": "string", "contentEncoding": "base64"}
_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["image"],
                "properties": {"image": {"type": "array", "items": _IMAGE, "minItems": 1}},
            }
        },
        "application/json": {
            "schema": {
                "oneOf": [
                    {
                        "type": "object",
                        "required": [name],
                        "properties": {name: schema},
                        "additionalProperties": False,
                    }
                    for name, schema in (
                        ("image", _BASE64),
                        ("images", {"type": "array", "items": _BASE64, "minItems": 1}),
                    )
                ]
            }
        },
        "application/x-npy": {"schema": _IMAGE},
        "application/safetensors": {"schema": _IMAGE},
        "image/*": {"schema": _IMAGE},
    },
}


class Problem(BaseModel):
    """Why a request was refused, and what was expected."""

    detail: str


class ClassProbability(BaseModel):
    """A class, by index and, where known, by name."""

    index: int
    name: str | None
    probability: float


class Prediction(ClassProbability):
    """The predicted class of one image, and the most probable ones."""

    top: list[ClassProbability]


class Predictions(BaseModel):
    """One prediction for each image, and which model made them."""

    predictions: list[Prediction]
    model: str
    version: int
    adapted: bool = Field(description="Whether another model than the source model answered.")
    calibrated: bool = Field(description="Whether probabilities are divided by a temperature.")
    mode: Literal["frozen", "shadow", "live"]


class VersionRecord(BaseModel):
    """One version, as :class:`acclimate.serve.Version` describes it."""

    number: int
    cause: str
    created: str
    step: int
    images: int
    drift: float
    statistics_shift: float | None
    changed: float | None
    error_before: float | None
    error_after: float | None
    temperature: float | None
    adapted: bool
    restored_from: int | None
    reason: str | None


class VersionList(BaseModel):
    """All versions that are kept, the one that answers and the newest."""

    serving: int
    candidate: int
    versions: list[VersionRecord]


class Health(BaseModel):
    """What an operator wants to see first."""

    model: str
    recipe: str
    mode: str
    version: int
    candidate: int
    learning: Literal["yes", "no", "never"]
    not_learning_because: str | None
    contained: bool = Field(description="Whether the guard lets the source model predict.")
    estimated_error: str | None
    steps: int
    events: list[str]
    waiting: int
    replicas: dict[str, int] = Field(
        default={}, description="The version that each replica has, where there are several."
    )


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem} for status in statuses}


def make_app(
    server: Server | Follower,
    metrics: Metrics,
    *,
    admin_token: str | None = None,
    client_header: str | None = None,
) -> FastAPI:
    """The application; ``metrics`` is what the server was made with as its observer.

    Args:
        server: closed with the application, once all that waits is answered.
        metrics: shown at /metrics.
        admin_token: for /pause, /resume, /reset and /rollback, which are refused without one.
        client_header: the header with the client's address, where a proxy you trust sets it; else
            a client is who opened the connection.
    """
    decoders = ThreadPoolExecutor(_DECODERS, thread_name_prefix="acclimate-decode")
    reading = _Reading(server)
    metrics.watch_queue(lambda: server.waiting)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(server.close)
        decoders.shutdown()

    app = FastAPI(
        title="acclimate",
        summary=f"{server.source.name}, adapting by {server.recipe}",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads its script from a public server
        redoc_url=None,
    )
    page = (files("acclimate.serve") / "serve_assets" / "page.html").read_text("utf-8")

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": _OWN_PAGE})

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        words = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
        )
        return JSONResponse({"detail": words}, status_code=422)

    @app.post(
        "/predict",
        response_model=Predictions,
        responses=_refusals(400, 408, 413, 415, 422, 429, 503),
        openapi_extra={"requestBody": _BODY},
        summary="Classify images",
    )
    async def predict(
        request: Request,
        top: Annotated[int, Query(ge=1, le=MOST_TOP, description="How many classes to name.")] = 1,
    ) -> Any:
        """The class of each image: files in a form, base64 in JSON, a .npy or a safetensors file.

        Arrays are uint8 images of any size, or floats as the model takes them.
        """
        kind = _kind(request)
        async with reading.body(request) as body:
            sent = await _form_files(request, body, server) if kind == "multipart" else None
            decode = functools.partial(_decode, kind, body, sent, server)
            images = await asyncio.get_running_loop().run_in_executor(decoders, decode)
            client = _client(request, client_header)
            answer = await asyncio.wrap_future(server.predict(images, client=client))
        return _predictions(answer, server, top=top)

    app.add_middleware(_Observed, metrics=metrics)
    for kind, status in ((FullError, 429), (ClosedError, 503), (RefusedError, None)):
        app.add_exception_handler(kind, functools.partial(_refused, status=status))

    @app.get("/versions", response_model=VersionList)
    def versions() -> Any:
        """The versions that are kept; going back made new ones, so the list is the log."""
        return {
            "serving": server.version.number,
            "candidate": server.candidate.number,
            "versions": [version.to_dict() for version in server.listed()],
        }

    @app.get("/health", response_model=Health)
    def health() -> Any:
        """Alive, and what it is doing."""
        return server.status()

    @app.get("/ready", responses=_refusals(503))
    def ready() -> dict[str, bool]:
        """200 while requests are taken, 503 while shutting down."""
        if not server.ready:
            raise HTTPException(503, "the server is shutting down")
        return {"ready": True}

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    def prometheus() -> Response:
        """Metrics for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def admin(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
    ) -> None:
        if not admin_token:
            raise HTTPException(
                403,
                "admin routes are off: start the server with --admin-token TOKEN, or with "
                f"{ADMIN_TOKEN} in its environment",
            )
        if given is None or not hmac.compare_digest(
            given.credentials.encode(), admin_token.encode()
        ):
            raise HTTPException(
                401,
                "expected the header Authorization: Bearer TOKEN with the admin token",
                headers={"WWW-Authenticate": "Bearer"},
            )

    operated: dict[str, Any] = {
        "dependencies": [Depends(admin)],
        "responses": _refusals(401, 403, 409, 503),
    }

    @app.post("/pause", response_model=Health, **operated)
    def pause() -> Any:
        """Answer, and learn nothing until /resume, also after a restart."""
        return _operate(server, server.pause)

    @app.post("/resume", response_model=Health, **operated)
    def resume() -> Any:
        """Learn again, also where the guard had stopped it."""
        return _operate(server, server.resume)

    @app.post("/reset", response_model=Health, **operated)
    def reset() -> Any:
        """Forget everything learnt: the source model, as a new version."""
        return _operate(server, server.reset)

    @app.post(
        "/rollback",
        response_model=Health,
        dependencies=[Depends(admin)],
        responses=_refusals(401, 403, 404, 409, 422, 503),
    )
    def rollback(version: Annotated[int | None, Query(ge=0, lt=2**31)] = None) -> Any:
        """Go back to a version, by default to the one before the newest."""
        return _operate(server, lambda: server.rollback(version))

    return app


def _operate(server: Server | Follower, action: Callable[[], object]) -> dict[str, Any]:
    try:
        action()
    except UnreachableError as error:
        raise HTTPException(503, str(error), headers={"Retry-After": "1"}) from error
    except NoVersionError as error:
        raise HTTPException(404, str(error)) from error
    except AcclimateError as error:
        raise HTTPException(409, str(error)) from error
    return server.status()


async def _refused(_: Request, error: Exception, *, status: int | None) -> JSONResponse:
    if isinstance(error, RefusedError):
        status = error.status
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return JSONResponse({"detail": str(error)}, status_code=status or 500, headers=headers)


class _Observed:
    """Measures the responses of /predict."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/predict":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - began
                self._metrics.on_response(status=message["status"], seconds=seconds)
            await send(message)

        await self._app(scope, receive, measured)


class _Reading:
    """Reads bodies, within limits on each and on all of them together."""

    def __init__(self, server: Server | Follower) -> None:
        self._limits, self._requests, self._bytes = server.settings, 0, 0

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body, counted until it is done with; refused once it is known too large."""
        most = self._limits.max_body
        announced = request.headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced[:20]) > most:
            raise self._too_large()
        if self._requests >= self._limits.queue:
            raise FullError("the server has as many requests as it may; try again in a moment")
        self._requests += 1
        chunks: list[bytes] = []
        try:
            try:
                await asyncio.wait_for(self._read(request, chunks), self._limits.body_seconds)
            except ClientDisconnect as error:
                raise RefusedError(400, "the client left before the end of its request") from error
            except asyncio.TimeoutError as error:
                raise RefusedError(
                    408, f"expected the whole request within {self._limits.body_seconds:g} s"
                ) from error
            yield b"".join(chunks)
        finally:
            self._requests -= 1
            self._bytes -= sum(map(len, chunks))

    async def _read(self, request: Request, chunks: list[bytes]) -> None:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > self._limits.max_body:
                raise self._too_large()
            if self._bytes + len(chunk) > self._limits.max_buffered:
                raise FullError("the server holds as many bytes of requests as it may; try again")
            self._bytes += len(chunk)
            chunks.append(chunk)

    def _too_large(self) -> RefusedError:
        return RefusedError(
            413, f"expected a request of at most {self._limits.max_body:,} bytes, got more"
        )


_KINDS = {
    "multipart/form-data": "multipart",
    "application/json": "json",
    "application/x-npy": "npy",
    "application/safetensors": "safetensors",
    "application/vnd.safetensors": "safetensors",
    "application/octet-stream": "bytes",
}


def _kind(request: Request) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith("image/"):
        return "image"
    if kind not in _KINDS:
        raise RefusedError(
            415, f"expected one of the content types image/*, {', '.join(_KINDS)}, got {kind!r:.60}"
        )
    return _KINDS[kind]


async def _form_files(request: Request, body: bytes, server: Server | Follower) -> list[bytes]:
    """The files of a form, whatever its fields are called."""

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    most = server.settings.max_images
    parser = MultiPartParser(request.headers, stream(), max_files=most, max_fields=most)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        status = 413 if error.message.startswith("Too many") else 422
        raise RefusedError(status, f"expected a form with image files: {error.message}") from error
    except (ValueError, UnicodeDecodeError, KeyError, AssertionError) as error:
        raise RefusedError(422, f"expected a form with image files: {error}") from error
    try:
        return [
            await value.read() for _, value in form.multi_items() if isinstance(value, UploadFile)
        ]
    finally:
        await form.close()


def _decode(kind: str, body: bytes, files: list[bytes] | None, server: Server | Follower) -> Tensor:
    wanted, limits = server.source.preprocessing, server.settings
    if kind == "bytes":
        kind = "npy" if body.startswith(b"\x93NUMPY") else "safetensors"
    if kind == "json":
        return bodies.from_json(body, wanted, limits)
    if kind == "npy":
        return bodies.from_npy(body, wanted, limits)
    if kind == "safetensors":
        return bodies.from_safetensors(body, wanted, limits)
    return bodies.from_files([body] if files is None else files, wanted, limits)


def _client(request: Request, header: str | None) -> str:
    if header is not None and (named := request.headers.get(header)):
        return named.partition(",")[0].strip()
    return request.client.host if request.client else ""


def _predictions(answer: Answer, server: Server | Follower, *, top: int) -> dict[str, Any]:
    known = server.source
    values, classes = answer.probabilities.topk(min(top, known.class_count), dim=1)
    names = None if known.classes is None else known.classes.names

    def described(index: int, probability: float) -> dict[str, Any]:
        name = None if names is None else names[index]
        return {"index": index, "name": name, "probability": probability}

    ranked = [
        [described(*pair) for pair in zip(row, shares, strict=True)]
        for row, shares in zip(classes.tolist(), values.tolist(), strict=True)
    ]
    return {
        "predictions": [{**best[0], "top": best} for best in ranked],
        "model": known.name,
        "version": answer.version,
        "adapted": answer.adapted,
        "calibrated": answer.calibrated,
        "mode": server.settings.mode,
    }
