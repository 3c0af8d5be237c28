"""Networks that come with the package: their records, their weights, and what they know."""

from __future__ import annotations

import ast
import hashlib
import json
import shlex
from pathlib import Path

import pytest
import torch

from acclimate.cli.parser import build_parser
from acclimate.cli.pretrain import plan_and_method
from acclimate.models import load
from acclimate.models.shipped import checkpoints

ROOT = Path(__file__).parents[2]
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
    files = ROOT / "src/acclimate/models/checkpoints"
    assert (files / f"{name}.safetensors").stat().st_size < 6_000_000


@pytest.mark.parametrize("name", sorted(checkpoints()))
def test_the_weights_are_those_that_were_scored(name):
    data = (ROOT / f"src/acclimate/models/checkpoints/{name}.safetensors").read_bytes()
    assert hashlib.sha256(data).hexdigest() == checkpoints()[name].sha256
