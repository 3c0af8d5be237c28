"""Networks this package trained: their records, their weights, and where those are found."""

from __future__ import annotations

import ast
import copy
import hashlib
import json
import shlex
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from acclimate.cli.parser import build_parser
from acclimate.cli.pretrain import plan_and_method
from acclimate.errors import AcclimateError
from acclimate.models import LoadedModel, builtin, load, register_builtin
from acclimate.models import checkpoints as checkpoints_module
from acclimate.models.checkpoints import checkpoints

ROOT = Path(__file__).parents[2]
FILES = ROOT / "checkpoints/acclimate_checkpoints"
STORED = json.loads((ROOT / "benchmarks/results/pretraining.json").read_text())


@pytest.mark.parametrize("name", sorted(checkpoints()))
def test_records_are_the_stored_runs(name):
    record, run = checkpoints()[name], STORED[name]
    scored = run["error"]["target" if run["target"] else "source"]
    assert record.error == pytest.approx(scored["value"], abs=0.005)
    assert record.images == scored["images"]


@pytest.mark.parametrize("name", sorted(checkpoints()))
def test_the_command_is_that_of_the_stored_run(name):
    record, run = checkpoints()[name], STORED[name]
    program, *words = shlex.split(record.command)
    # What the command leaves out is what the command line takes by default.
    args = build_parser().parse_args([*words, "--root", "data", "--out", "run"])
    assert program == "acclimate"
    assert record.architecture == run["model"].removeprefix("acclimate:")
    asked = (args.model, args.dataset, args.target)
    assert asked == (run["model"], run["dataset"], run["target"])
    plan, method = plan_and_method(args)
    # Options that came later are not in older runs, and change nothing where they are left out.
    (kind, options), (now, options_now) = map(_called, (run["method"], repr(method)))
    assert kind == now
    assert options == {key: options_now[key] for key in options}
    assert {key: getattr(plan, key) for key in run["plan"]} == run["plan"]
    assert {"epochs", "batch_size", "lr", "seed"} <= run["plan"].keys()


def _called(text: str) -> tuple[str, dict[str, str]]:
    """The name and the options in the repr of a record."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    return ast.unparse(call.func), {str(k.arg): ast.unparse(k.value) for k in call.keywords}


@pytest.mark.parametrize("name", sorted(checkpoints()))
def test_they_load_small_and_ready(name):
    loaded = load(f"acclimate:{name}")
    assert not loaded.model.training
    assert len(loaded.classes) == 10
    assert "trained for this package" in loaded.describe()
    with torch.no_grad():
        logits = loaded.model(torch.zeros(2, 3, 32, 32))
    assert logits.shape == (2, 10)
    assert logits.isfinite().all()
    assert all(p.dtype == torch.float32 for p in loaded.model.parameters())
    assert (FILES / f"{name}.safetensors").stat().st_size < 6_000_000


def test_the_list_names_every_file_and_its_sha256():
    listed = {f"{name}.safetensors": record.sha256 for name, record in checkpoints().items()}
    for name, record in checkpoints().items():
        if record.head_sha256 is not None:
            listed[f"{name}.head.safetensors"] = record.head_sha256
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in FILES.glob("*.safetensors")
    }
    assert found == listed


def test_the_package_itself_carries_the_embedded_weights_alone():
    package = ROOT / "src/acclimate"
    assert [file.name for file in package.rglob("*.safetensors")] == ["digits.safetensors"]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for weights, and no other."""
    monkeypatch.setattr(checkpoints_module, "_CLONE", tmp_path)
    monkeypatch.setattr(checkpoints_module, "entry_points", lambda group: [])
    return tmp_path


def test_weights_that_are_not_installed(clone: Path):
    with pytest.raises(AcclimateError, match="not installed; run: pip install acclimate-checkp"):
        load("acclimate:wrn-26-1-mt-tf-mnist-usps")
    assert "wrn-26-1-mt-tf-mnist-usps" in builtin.builtin_names()


def test_a_flipped_byte_is_refused_before_it_is_loaded(clone: Path):
    name = "wrn-26-1-mt-tf-mnist-usps"
    data = bytearray((FILES / f"{name}.safetensors").read_bytes())
    (clone / f"{name}.safetensors").write_bytes(data)
    assert load(f"acclimate:{name}").name == f"acclimate:{name}"
    data[-1] ^= 1
    (clone / f"{name}.safetensors").write_bytes(data)
    with pytest.raises(AcclimateError, match=r"expected the sha256 cbf7aa7c9de8… of .*damaged"):
        load(f"acclimate:{name}")


def test_an_entry_point_leads_to_the_weights(clone: Path, monkeypatch: pytest.MonkeyPatch):
    name = "wrn-26-1-mt-tf-mnist-usps"
    package = clone / "some_weights"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / f"{name}.safetensors").symlink_to(FILES / f"{name}.safetensors")
    monkeypatch.syspath_prepend(str(clone))
    entry = EntryPoint("some", "some_weights", "acclimate.checkpoints")
    monkeypatch.setattr(checkpoints_module, "entry_points", lambda group: [entry])
    assert load(f"acclimate:{name}").name == f"acclimate:{name}"


def test_a_registered_model_settles_its_class_count(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(builtin, "_MODELS", copy.deepcopy(builtin._MODELS))
    maker = partial(LoadedModel, name="mine", model=torch.nn.Linear(2, 2), source="my notes")
    assert register_builtin("linear-for-test")(maker) is maker
    loaded = load("acclimate:linear-for-test")
    assert (loaded.name, loaded.source) == ("acclimate:linear-for-test", "my notes")
    with pytest.raises(AcclimateError, match="settles its own class count"):
        load("acclimate:linear-for-test", num_classes=5)
