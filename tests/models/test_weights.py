"""Weights files: what can be read, what is refused, and what does not fit."""

from __future__ import annotations

import argparse
import os
import pickle
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from acclimate.checkpoint import tensors_writer
from acclimate.errors import AcclimateError
from acclimate.models import fill, load_weights


def make_net(classes: int = 3, *, width: int = 8) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Flatten(), nn.Linear(width, classes)
    )


def assert_same(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    for name, value in model.state_dict().items():
        if name in tensors:
            torch.testing.assert_close(value, tensors[name].to(value.dtype), rtol=0, atol=0)


@pytest.mark.parametrize("wrap", [None, "state_dict", "model", "model_state_dict", "net"])
def test_torch_files_are_unwrapped(tmp_path: Path, wrap: str | None) -> None:
    state = make_net().state_dict()
    path = tmp_path / "net.pth"
    torch.save({wrap: state, "epoch": 3} if wrap else state, path)
    tensors = load_weights(path)
    assert tensors.keys() == state.keys()
    model = make_net()
    fill(model, tensors)
    assert_same(model, state)


def test_nesting_twice_is_unwrapped(tmp_path: Path) -> None:
    state = make_net().state_dict()
    torch.save({"model": {"state_dict": state, "step": 1}}, tmp_path / "net.tar")
    assert load_weights(tmp_path / "net.tar").keys() == state.keys()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_other_precisions_become_float32(tmp_path: Path, dtype: torch.dtype, suffix: str) -> None:
    path = tmp_path / f"net{suffix}"
    state = make_net().to(dtype).state_dict()
    if suffix == ".bin":
        torch.save(state, path)
    else:
        save_file(state, path)
    tensors = load_weights(path)
    floats = {value.dtype for value in tensors.values() if value.is_floating_point()}
    assert floats == {torch.float32}
    assert tensors["1.num_batches_tracked"].dtype == torch.int64


@pytest.mark.parametrize("prefix", ["module.", "model.", "module.model.", "_orig_mod."])
def test_a_prefix_of_all_names_is_taken_off(prefix: str) -> None:
    state = make_net().state_dict()
    model = make_net()
    fill(model, {prefix + name: value for name, value in state.items()})
    assert_same(model, state)


def test_the_average_of_a_model_is_read_as_the_model() -> None:
    source, model = make_net(), make_net()
    fill(model, torch.optim.swa_utils.AveragedModel(source).state_dict())
    assert_same(model, source.state_dict())
    averaged = torch.optim.swa_utils.AveragedModel(make_net())
    fill(averaged, torch.optim.swa_utils.AveragedModel(source).state_dict())
    assert_same(averaged.module, source.state_dict())


def test_a_prefix_the_model_has_too_is_kept() -> None:
    source = nn.ModuleDict({"model": make_net()})
    model = nn.ModuleDict({"model": make_net()})
    fill(model, source.state_dict())
    assert_same(model, source.state_dict())


def test_counters_may_be_absent() -> None:
    state = make_net().state_dict()
    del state["1.num_batches_tracked"]
    model = make_net()
    fill(model, state)
    assert_same(model, state)


def test_counters_are_not_counted_as_matching() -> None:
    state = make_net().state_dict()
    del state["0.weight"]
    with pytest.raises(AcclimateError, match=r"7 of 8 tensors match.*missing.*: 0\.weight"):
        fill(make_net(), state)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["1.weight", "1.running_var"])
def test_numbers_that_are_not_finite_are_refused(name: str, value: float) -> None:
    state = make_net().state_dict()
    state[name][-1] = value
    model = make_net()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(AcclimateError, match=rf"not finite, {name} the first.*diverged"):
        fill(model, state)
    assert_same(model, before)


def test_large_numbers_are_finite_though_their_sum_is_not() -> None:
    state = make_net().state_dict()
    state["0.weight"].fill_(3e38)
    model = make_net()
    fill(model, state)
    assert_same(model, state)


def test_a_mask_of_minus_infinity_that_the_model_was_made_with_is_fine() -> None:
    class Masked(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))

    fill(Masked(), Masked().state_dict())
    state = Masked().state_dict()
    state["bias"][0] = -torch.inf
    with pytest.raises(AcclimateError, match="not finite, bias the first"):
        fill(Masked(), state)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.complex64])
def test_other_kinds_of_numbers_are_refused(dtype: torch.dtype) -> None:
    state = make_net().state_dict()
    state["3.weight"] = torch.ones_like(state["3.weight"]).to(dtype)
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(AcclimateError, match=rf"floating-point.*got {kind} for 3\.weight"):
        fill(make_net(), state)


def test_another_class_count_is_named() -> None:
    with pytest.raises(AcclimateError, match=r"for 3 classes, the model has 5.*num_classes=3"):
        fill(make_net(5), make_net(3).state_dict())


def test_another_architecture_names_the_first_keys() -> None:
    other = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    with pytest.raises(AcclimateError) as caught:
        fill(make_net(), other.state_dict())
    message = str(caught.value)
    assert "missing in the file: 1.running_mean, 1.running_var, 3.weight and 1 more" in message
    assert "unknown to the model: 2.weight, 2.bias" in message
    assert "of another shape: 0.weight: 2×2 in the file, 8×3×3×3 in the model" in message


def test_another_width_is_not_taken_for_a_class_count() -> None:
    with pytest.raises(AcclimateError, match="do not fit this Sequential"):
        fill(make_net(width=4), make_net(width=8).state_dict())


def test_a_model_that_does_not_fit_is_left_alone() -> None:
    model = make_net(5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(AcclimateError):
        fill(model, make_net(3).state_dict())
    assert_same(model, before)


def test_missing_file_folder_empty_file_and_foreign_suffix(tmp_path: Path) -> None:
    with pytest.raises(AcclimateError, match="no weights file"):
        load_weights(tmp_path / "none.pth")
    with pytest.raises(AcclimateError, match="got the folder"):
        load_weights(tmp_path)
    (tmp_path / "empty.pth").touch()
    with pytest.raises(AcclimateError, match="is empty"):
        load_weights(tmp_path / "empty.pth")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.safetensors")  # opening it would wait
        with pytest.raises(AcclimateError, match="got the pipe or device"):
            load_weights(tmp_path / "pipe.safetensors")
    (tmp_path / "net.onnx").write_bytes(b"x")
    with pytest.raises(AcclimateError, match="expected weights in a file ending in"):
        load_weights(tmp_path / "net.onnx")


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("part", [0.02, 0.5, 0.95])
@pytest.mark.parametrize("unsafe_pickle", [False, True])
def test_a_truncated_torch_file_is_said_to_be_so(
    tmp_path: Path, legacy: bool, part: float, unsafe_pickle: bool
) -> None:
    path = tmp_path / "net.pth"
    torch.save(make_net().state_dict(), path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(AcclimateError, match="damaged or cut short"):
        load_weights(path, unsafe_pickle=unsafe_pickle)


def test_a_flipped_bit_in_weights_written_here_is_found(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    tensors_writer(make_net().state_dict())(path)
    load_weights(path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 16
    path.write_bytes(content)
    with pytest.raises(AcclimateError, match=r"expected contents with the sha256 .*damaged"):
        load_weights(path)


def test_a_truncated_safetensors_file_is_said_to_be_so(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save_file(make_net().state_dict(), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(AcclimateError, match="damaged or cut short"):
        load_weights(path)


def test_a_web_page_in_place_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "net.pth"
    path.write_text("<!DOCTYPE html>")
    with pytest.raises(AcclimateError, match=r"not written by torch\.save"):
        load_weights(path)


@pytest.mark.parametrize("content", [{}, {"epoch": 3}, [1, 2], {"state_dict": {}}])
def test_files_without_tensors(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "net.pt")
    with pytest.raises(AcclimateError, match=r"expected tensors by name|holds no tensors"):
        load_weights(tmp_path / "net.pt")


@pytest.mark.parametrize("wrap", [False, True])
def test_numbers_and_words_beside_tensors_are_passed_over(tmp_path: Path, wrap: bool) -> None:
    state = make_net().state_dict()
    noted = {**state, "epoch": 3, "accuracy": 0.9, "name": "net", "_extra_state": None}
    torch.save({"state_dict": noted} if wrap else noted, tmp_path / "net.pt")
    assert load_weights(tmp_path / "net.pt").keys() == state.keys()


def test_an_architectures_name_is_not_taken_for_its_weights(tmp_path: Path) -> None:
    state = make_net().state_dict()
    torch.save({"model": "resnet18", "net": state}, tmp_path / "net.pt")
    assert load_weights(tmp_path / "net.pt").keys() == state.keys()


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(
    ("entry", "kind"), [(OrderedDict(a=torch.ones(2)), "OrderedDict"), ([1, 2], "list")]
)
def test_anything_else_among_tensors_is_named(
    tmp_path: Path, entry: Any, kind: str, wrap: bool
) -> None:
    mixed = {**make_net().state_dict(), "optimizer": entry}
    torch.save({"state_dict": mixed} if wrap else mixed, tmp_path / "net.pt")
    with pytest.raises(AcclimateError, match=rf"got {kind} under 'optimizer' among them"):
        load_weights(tmp_path / "net.pt")


def test_a_key_that_is_no_name_is_named(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2), 7: torch.ones(2)}, tmp_path / "net.pt")
    with pytest.raises(AcclimateError, match="got Tensor under 7 among them"):
        load_weights(tmp_path / "net.pt")


def test_entries_that_hold_no_weights_are_listed_with_their_kinds(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "parts": {"a": torch.ones(2)}}, tmp_path / "net.pt")
    with pytest.raises(AcclimateError, match=r"got the entries epoch \(int\), parts \(dict\)"):
        load_weights(tmp_path / "net.pt")


def test_objects_are_read_only_when_trusted(tmp_path: Path) -> None:
    path = tmp_path / "net.pth"
    state = make_net().state_dict()
    torch.save({"state_dict": state, "args": types.SimpleNamespace(lr=1)}, path)
    with pytest.raises(AcclimateError, match=r"--unsafe-pickle \(it asks for types"):
        load_weights(path)
    assert load_weights(path, unsafe_pickle=True).keys() == state.keys()


def test_the_options_of_a_training_run_are_plain_values(tmp_path: Path) -> None:
    state = make_net().state_dict()
    torch.save({"model": state, "args": argparse.Namespace(lr=1)}, tmp_path / "net.pth")
    assert load_weights(tmp_path / "net.pth").keys() == state.keys()


def test_a_named_entry_comes_first(tmp_path: Path) -> None:
    student, teacher = ({"weight": torch.full((1,), value)} for value in (1.0, 2.0))
    torch.save({"model": student, "teacher": teacher}, tmp_path / "net.pth")
    assert load_weights(tmp_path / "net.pth")["weight"] == 1
    assert load_weights(tmp_path / "net.pth", entry="teacher")["weight"] == 2
    assert load_weights(tmp_path / "net.pth", entry="other")["weight"] == 1


def test_a_checkpoint_of_wilds(tmp_path: Path) -> None:
    net = make_net()
    algorithm = {f"model.{name}": value for name, value in net.state_dict().items()}
    path = tmp_path / "best_model.pth"
    torch.save({"algorithm": algorithm, "epoch": 4, "best_val_metric": 0.9}, path)
    again = make_net()
    fill(again, load_weights(path))
    assert_same(again, dict(net.state_dict()))


def test_a_whole_module_is_read_when_trusted(tmp_path: Path) -> None:
    torch.save(make_net(), tmp_path / "net.pth")
    tensors = load_weights(tmp_path / "net.pth", unsafe_pickle=True)
    assert tensors.keys() == make_net().state_dict().keys()


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("trap-was-sprung"),))


def test_nothing_hidden_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.pth").write_bytes(pickle.dumps(_Trap(), protocol=2))
    with pytest.raises(AcclimateError):
        load_weights("net.pth")
    assert not (tmp_path / "trap-was-sprung").exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_cut_anywhere(zipped, tmp_path):
    whole, cut = tmp_path / "whole.pt", tmp_path / "cut.pt"
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5)}
    torch.save(tensors, whole, _use_new_zipfile_serialization=zipped)
    data = whole.read_bytes()
    for length in range(1, len(data), max(1, len(data) // 80)):
        cut.write_bytes(data[:length])
        with pytest.raises(AcclimateError, match=r"cut\.pt"):
            load_weights(cut)
    assert torch.equal(load_weights(whole)["b"], tensors["b"])
