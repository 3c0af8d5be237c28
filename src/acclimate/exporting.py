"""export(): the adapted plain model in one file for other programs, checked before it appears."""

from __future__ import annotations

import io
import json
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from acclimate._version import __version__
from acclimate.checkpoint import read_tensors, tensors_writer
from acclimate.errors import AcclimateError, unknown_name
from acclimate.files import write_files
from acclimate.models import LoadedModel, as_loaded, load
from acclimate.models.checks import check_layers
from acclimate.models.device import copy_model
from acclimate.models.libraries import import_optional
from acclimate.models.outputs import checked_logits, logits_of
from acclimate.models.record import model_metadata, read_metadata
from acclimate.parts.adapters import NAME
from acclimate.reading import read_object
from acclimate.result import MODEL, SUMMARY, AdaptationResult, RunRecord, tensors_of, unwrapped
from acclimate.text import user_path

__all__ = ["Exported", "Format", "export"]

Format = Literal["onnx", "torch-export", "safetensors"]

SUFFIXES: dict[str, Format] = {
    ".onnx": "onnx",
    ".pt2": "torch-export",
    ".safetensors": "safetensors",
}
RECORD = "acclimate"
"""Where the record lies: a metadata property in ONNX, an extra file (.json) in torch-export."""

BATCHES = (2, 1, 5)
"""Sizes of the batches on which the file is compared; the model is traced with the first."""

TOLERANCE = 1e-3
"""Logits may differ by this much of their largest; other kernels add up in another order."""

LARGEST_ONNX = 2**31
"""Bytes: the format's own limit for one file."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written, and how it was checked.

    ``checker`` ran the file, and its logits differ from PyTorch's by at most ``difference`` of
    their largest. ``notes`` say what a user of the file should know.
    """

    path: Path
    format: Format
    bytes: int
    checker: str
    images: int
    difference: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"note: {note}" for note in self.notes]
        lines.append(
            f"checked by {self.checker}: {self.images} images in batches of "
            f"{', '.join(map(str, sorted(BATCHES)))}; logits differ by at most "
            f"{self.difference:.1e} of their largest"
        )
        lines.append(f"written to {self.path}: {self.format}, {self.bytes / 1e6:,.1f} MB")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "path": str(self.path)}


Runs = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Model input → logits, as a written file gives them."""


@torch.inference_mode(False)
def export(
    run: AdaptationResult | str | Path,
    out: str | Path,
    *,
    format: Format | None = None,
    model: nn.Module | LoadedModel | str | None = None,
    image_shape: Sequence[int] | None = None,
) -> Exported:
    """Write the plain model of a finished run to one file, for use without this package.

    The file takes any number of images, and its metadata hold the preprocessing, the names of the
    classes and the temperature of calibrated probabilities. It is run on random images and compared
    with PyTorch's logits first; where they differ nothing is written.

    Args:
        run: what ``adapt`` returned, or the folder it was saved to.
        out: the file.
        format: "onnx" (needs the extra ``export``), "torch-export" (``torch.export.load``) or
            "safetensors" (the weights; ``acclimate.models.load(name, weights=out)``); by the ending
            of ``out`` (.onnx, .pt2, .safetensors) where it is not given.
        model: with a folder, the source model or its name, where the run does not record a name
            that it can be loaded by.
        image_shape: channels, height and width of the model's input, where no preprocessing is
            recorded.

    >>> import acclimate, tempfile
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    >>> result = acclimate.adapt(net, torch.rand(64, 3, 2, 2), "ent", progress=False)
    >>> file = Path(tempfile.mkdtemp()) / "net.safetensors"
    >>> acclimate.export(result, file, image_shape=(3, 2, 2)).format
    'safetensors'
    """
    out = user_path(out)
    chosen = _format(out, format)
    loaded, result = _opened(run, model)
    _check_exportable(result.record, chosen)
    plain = copy_model(unwrapped(loaded.model)).cpu().float().eval()
    check_layers(plain)
    network = _Logits(plain).eval()
    shape = _image_shape(loaded, image_shape, wanted=chosen != "safetensors")
    batches = [] if shape is None else _random_batches(shape)
    for batch in batches[:1]:
        checked_logits(plain, batch)
    record = _record(loaded, result)
    make = {"onnx": _onnx, "torch-export": _torch_export, "safetensors": _safetensors}[chosen]
    content, checker, runs = make(network, batches, record)
    difference = _compare(network, runs, batches, checker)
    _write(out, content)
    return Exported(
        path=out,
        format=chosen,
        bytes=len(content),
        checker=checker,
        images=sum(map(len, batches)),
        difference=difference,
        notes=_notes(loaded, result),
    )


class _Logits(nn.Module):
    """A model that returns its logits and nothing else."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return logits_of(self.model(images))


def _format(out: Path, asked: str | None) -> Format:
    known = get_args(Format)
    if asked is None:
        asked = SUFFIXES.get(out.suffix.lower())
        if asked is None:
            raise AcclimateError(
                f"expected a file that ends in {', '.join(SUFFIXES)}, or format= "
                f"(--format {'|'.join(known)}), got {str(out)!r}"
            )
    if asked not in known:
        raise unknown_name("format", asked, known)
    return asked  # type: ignore[return-value]


def _opened(
    run: AdaptationResult | str | Path, model: nn.Module | LoadedModel | str | None
) -> tuple[LoadedModel, AdaptationResult]:
    """The adapted model with its record, and the result it is from."""
    if isinstance(run, AdaptationResult):
        if model is not None:
            raise AcclimateError(
                "expected model= with the folder of a run only: a result has its model"
            )
        return _with_metadata(as_loaded(run.model), run), run
    folder = user_path(run)
    if not isinstance(model, nn.Module | LoadedModel):
        model = _rebuilt(folder, model)
    loaded = as_loaded(model)
    copied = copy_model(loaded.model)
    result = AdaptationResult.load(folder, copied)
    return _with_metadata(
        LoadedModel(
            name=loaded.name,
            model=copied,
            preprocessing=loaded.preprocessing,
            classes=loaded.classes,
        ),
        result,
    ), result


def _rebuilt(folder: Path, spec: str | None) -> LoadedModel:
    """The model a run was made from, by its name; its weights come from the run."""
    record = read_object(
        folder / SUMMARY, "run", hint=f"; expected the folder of `acclimate adapt --out {folder}`"
    )["run"]
    name = spec or str(record.get("model"))
    if ":" not in name:
        raise AcclimateError(
            f"the run in {folder} was made from a module in Python ({name}), which has no name to "
            "load it by; add --model py:package.module:function, or in Python "
            "acclimate.export(result, ...) or model=net"
        )
    tensors, _ = read_tensors(folder / MODEL)
    adapted = any(NAME in key.split(".") for key in tensors)
    # Layers that were added come with the recipe: the weights alone do not fit the architecture.
    return load(name, weights=None if adapted else folder / MODEL)


def _with_metadata(loaded: LoadedModel, result: AdaptationResult) -> LoadedModel:
    known = result.metadata
    if known is None:  # a run of an older version
        return loaded
    return LoadedModel(
        name=result.record.model,
        model=loaded.model,
        preprocessing=known.preprocessing or loaded.preprocessing,
        classes=known.classes or loaded.classes,
    )


def _check_exportable(record: RunRecord, chosen: Format) -> None:
    recipe = record.recipe
    if not recipe.exports:
        if recipe.episode is not None:
            why = f"it learns anew for each {recipe.episode} and keeps nothing"
        else:
            slot = "predictor" if not recipe.predictor.exports else "normalization"
            why = f"its {slot} computes predictions in a way that the plain model does not have"
        raise AcclimateError(
            f"a run of recipe {recipe.name!r} cannot be exported: {why}; export a run of another "
            "recipe (ent, rpl), or run this one with acclimate.Stream or acclimate serve"
        )
    if chosen == "onnx":
        for package in ("onnx", "onnxscript"):
            import_optional(package, extra="export")


def _image_shape(
    loaded: LoadedModel, asked: Sequence[int] | None, *, wanted: bool
) -> tuple[int, ...] | None:
    if asked is not None:
        shape = tuple(asked)
        if len(shape) != 3 or min(shape) < 1:
            raise AcclimateError(
                f"expected image_shape=(channels, height, width), got {tuple(asked)}"
            )
        return shape
    if loaded.preprocessing is None and wanted:
        raise AcclimateError(
            f"{loaded.name} has no record of its preprocessing, so the shape of its input is not "
            "known: add --image-shape 3 224 224 (image_shape=(3, 224, 224))"
        )
    return None if loaded.preprocessing is None else loaded.preprocessing.shape


def _random_batches(shape: tuple[int, ...]) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(count, *shape, generator=draw) for count in BATCHES]


def _record(loaded: LoadedModel, result: AdaptationResult) -> dict[str, Any]:
    """What a user of the file should know, in plain values."""
    return {
        **model_metadata(loaded),
        "model": loaded.name,
        "recipe": result.recipe.name,
        "verdict": result.verdict.word,
        "adapted": result.verdict.returns_adapted,
        "temperature": result.temperature,
        "source_weights": result.record.weights,
        "images": result.record.images,
        "versions": {"acclimate": __version__, "torch": torch.__version__},
    }


def _notes(loaded: LoadedModel, result: AdaptationResult) -> tuple[str, ...]:
    notes = []
    if not result.verdict.returns_adapted:
        notes.append(f"this is the source model: {result.verdict}")
    if loaded.preprocessing is None:
        notes.append("no preprocessing is recorded in the file: none is known")
    if loaded.classes is None:
        notes.append("no class names are recorded in the file: none are known")
    return tuple(notes)


Made = tuple[bytes, str, Runs]


def _onnx(network: nn.Module, batches: Sequence[Tensor], record: dict[str, Any]) -> Made:
    """An ONNX file's bytes, and who runs them: onnxruntime, or the format's own reference."""
    import onnx

    size = sum(t.numel() * t.element_size() for t in tensors_of(network).values())
    if size >= LARGEST_ONNX:
        raise AcclimateError(
            f"the model has {size / 2**30:.1f} GiB of weights, and one ONNX file holds less than "
            "2 GiB; export it as torch-export or safetensors"
        )
    with _quiet(), _explained("onnx"):
        program = torch.onnx.export(
            network,
            (batches[0],),
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        proto = program.model_proto
    _name_batch(proto)
    onnx.helper.set_model_props(
        proto, {RECORD: json.dumps(record), "producer": f"acclimate {__version__}"}
    )
    onnx.checker.check_model(proto)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content, *_onnx_runner(content)


def _name_batch(proto: Any) -> None:
    """Call the first axis of the images "batch", whatever the tracer called it."""
    graph = proto.graph
    first = graph.input[0].type.tensor_type.shape.dim[0]
    if first.HasField("dim_value"):
        raise _not_dynamic("onnx", f"to {first.dim_value}")
    traced = first.dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param == traced:
                axis.dim_param = "batch"


def _onnx_runner(content: bytes) -> tuple[str, Runs]:
    try:
        runtime: Any = import_optional("onnxruntime", extra="export")
    except AcclimateError:
        import onnx
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(onnx.load_from_string(content))
        name = f"the reference of onnx {onnx.__version__}, since onnxruntime is not installed"
        return name, lambda images: evaluator.run(None, {"images": images})[0]
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return f"onnxruntime {runtime.__version__}", lambda images: session.run(
        None, {"images": images}
    )[0]


def _torch_export(network: nn.Module, batches: Sequence[Tensor], record: dict[str, Any]) -> Made:
    """A program of torch.export, read back from the very bytes."""
    with _quiet(), _explained("torch-export"):
        program = torch.export.export(
            network, (batches[0],), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
        )
    file = io.BytesIO()
    extra = f"{RECORD}.json"
    torch.export.save(program, file, extra_files={extra: json.dumps(record)})
    content = file.getvalue()
    read = torch.export.load(io.BytesIO(content)).module()

    def run(images: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            logits: NDArray[np.float32] = read(torch.from_numpy(images)).numpy()
        return logits

    return content, f"torch.export of torch {torch.__version__}", run


def _safetensors(network: nn.Module, batches: Sequence[Tensor], record: dict[str, Any]) -> Made:
    """The weights alone; they are read back into a copy of the model."""
    assert isinstance(network, _Logits)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        tensors_writer(tensors_of(network.model), record)(path)
        tensors, _ = read_tensors(path)
        assert read_metadata(path) is not None
        content = path.read_bytes()
    copied = copy_model(network)
    assert isinstance(copied, _Logits)
    with torch.no_grad():
        for tensor in tensors_of(copied.model).values():
            tensor.zero_()  # what the file does not fill shows
    copied.model.load_state_dict(tensors)

    def run(images: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            logits: NDArray[np.float32] = copied(torch.from_numpy(images)).numpy()
        return logits

    return content, f"torch {torch.__version__}, the weights read back", run


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the tracer's own remarks off the screen: what counts is checked afterwards."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


_FIXED = re.compile(r"(?:specialized it to be a constant \(|inferred a static shape of )(\d+)")


@contextmanager
def _explained(chosen: Format) -> Iterator[None]:
    """What cannot be traced, with the reason in one line."""
    try:
        yield
    except AcclimateError:
        raise
    except Exception as error:  # the tracers raise nearly anything
        causes = [error]
        while isinstance(causes[-1].__cause__, Exception):
            causes.append(causes[-1].__cause__)
        words = [" ".join(str(each).split()) for each in causes]
        if fixed := _FIXED.search(" ".join(words)):
            raise _not_dynamic(chosen, f"to {fixed[1]}") from error
        raise AcclimateError(
            f"the model cannot be exported as {chosen}: torch.export cannot trace it "
            f"({type(causes[-1]).__name__}: {words[-1]:.300}); its forward pass must not branch "
            "on the values of its input, nor leave PyTorch. Its weights can be exported: "
            "--format safetensors"
        ) from error


def _not_dynamic(chosen: Format, words: str) -> AcclimateError:
    return AcclimateError(
        f"the model cannot be exported as {chosen} for any number of images: its forward pass "
        f"fixes it ({words:.100}); write x.flatten(1) in place of x.view(2, -1), for example. Its "
        "weights can be exported: --format safetensors"
    )


def _compare(network: nn.Module, runs: Runs, batches: Sequence[Tensor], checker: str) -> float:
    """The largest difference of logits, as a share of the largest logit; too large is refused."""
    largest = 0.0
    for batch in batches:
        with torch.no_grad():
            expected = network(batch).numpy()
        try:
            got = runs(batch.numpy())
        except Exception as error:
            words = " ".join(str(error).split())
            raise AcclimateError(
                f"the exported model fails on {len(batch)} images in {checker}: {words:.300}; "
                "nothing was written"
            ) from error
        scale = max(float(np.abs(expected).max()), 1e-6)
        difference = float(np.abs(got - expected).max()) / scale
        largest = max(largest, difference)
        if got.shape != expected.shape or not difference <= TOLERANCE:
            raise AcclimateError(
                f"the exported model predicts something else in {checker}: expected logits within "
                f"{TOLERANCE:g} of PyTorch's, got {difference:.2g} on {len(batch)} images; nothing "
                "was written. Its weights can be exported: --format safetensors"
            )
    return largest


def _write(out: Path, content: bytes) -> None:
    def write(path: Path) -> None:
        path.write_bytes(content)

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AcclimateError(f"could not make the folder {out.parent}: {error.strerror}") from error
    if out.is_dir():
        raise AcclimateError(f"expected a file to write, got the folder {out}")
    write_files({out: write})
