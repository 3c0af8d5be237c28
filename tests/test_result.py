"""What is stored: files anyone can read, and all of them or none."""

from __future__ import annotations

import copy
import csv
import json
import os
import resource
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

import acclimate
from acclimate.adaptation.folder import RunFolder
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.guard.verdict import Verdict
from acclimate.models.networks.digits import load_digits_model
from acclimate.result import AdaptationResult, RunRecord

IMAGES = digits("held-out", shifted=True)[0][:100]
FILES = ["history.json", "model.safetensors", "predictions.csv", "run.json", "summary.json"]


def adapt(data=IMAGES, model=None, seed=0, **options):
    model = load_digits_model() if model is None else model
    options = {"options": {"epochs": 1}, "batch_size": 50, "progress": False, **options}
    return acclimate.adapt(model, data, "ent", seed=seed, **options)


@pytest.fixture(scope="module")
def result():
    return adapt()


NET = """
from torch import nn

def build():
    def block(i, o, s):
        return [nn.Conv2d(i, o, 3, stride=s, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
    return nn.Sequential(*block(1, 32, 1), *block(32, 32, 1), *block(32, 64, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
"""

WITHOUT_US = """
import csv, sys
import torch
from safetensors.torch import load_file
from net import build

model = build()
model.load_state_dict(load_file("out/model.safetensors"), strict=True)
images = torch.load("images.pt", weights_only=True)
with torch.no_grad():
    classes = [int(model.eval()(image[None]).argmax()) for image in images]
rows = list(csv.DictReader(open("out/predictions.csv")))
assert classes == [int(row["class"]) for row in rows], "other predictions"
assert len(set(classes)) > 3
assert "acclimate" not in sys.modules
print("same", len(classes))
"""


def test_the_saved_model_needs_no_acclimate(result, tmp_path):
    result.save(tmp_path / "out")
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "check.py").write_text(WITHOUT_US)
    images = PREPROCESSING.normalize(torch.from_numpy(IMAGES)[:, None])
    torch.save(images, tmp_path / "images.pt")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "check.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout == "same 100\n", done.stderr


def test_the_files_say_everything(result, tmp_path):
    assert result.save(tmp_path / "deep" / "out") == tmp_path / "deep" / "out"
    out = tmp_path / "deep" / "out"
    assert sorted(p.name for p in out.iterdir()) == FILES
    assert set(load_file(out / "model.safetensors")) == set(result.model.state_dict())
    rows = list(csv.DictReader((out / "predictions.csv").open()))
    assert [int(row["class"]) for row in rows] == result.predictions.tolist()
    assert [row["name"] for row in rows] == [row["class"] for row in rows]  # digits are so called
    assert [row["image"] for row in rows] == list(result.names)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["guard"]["verdict"] == result.verdict.word
    assert summary["recipe"]["name"] == "ent"
    assert summary["recipe"]["optimizer"]["lr"] == 0.03
    assert {"seed", "weights", "images", "versions", "batch_size"} <= set(summary["run"])
    history = json.loads((out / "history.json").read_text())
    assert history["epochs"][0]["before_update"]["images"] == 100


def test_predictions_are_there_before_and_after(result, tmp_path):
    result.save(tmp_path)
    rows = list(csv.DictReader((tmp_path / "predictions.csv").open()))
    assert list(rows[0]) == [
        "image", "class", "name", "confidence", "probability",
        "class_before", "name_before", "confidence_before", "probability_before", "changed",
    ]  # fmt: skip
    model = load_digits_model().model.eval()
    with torch.no_grad():
        logits = model(PREPROCESSING.normalize(torch.from_numpy(IMAGES)[:, None]))
    raw, classes = logits.softmax(dim=1).max(dim=1)
    assert [int(row["class_before"]) for row in rows] == classes.tolist()
    found = torch.tensor([float(row["confidence_before"]) for row in rows])
    assert torch.allclose(found, raw, atol=1e-4)
    assert [row["changed"] == "true" for row in rows] == result.changed.tolist()
    assert [row["class"] != row["class_before"] for row in rows] == result.changed.tolist()
    assert result.changed.any()
    again = AdaptationResult.load(tmp_path, load_digits_model().model)
    for name in ("predictions_before", "confidence_before", "probabilities_before", "changed"):
        assert torch.allclose(getattr(again, name).float(), getattr(result, name).float(), 0, 1e-6)


def test_probabilities_before_are_as_high_as_the_estimated_accuracy(result):
    accuracy = 1 - result.estimated_error.before.value / 100
    raw, calibrated = result.confidence_before.mean(), result.probabilities_before.mean()
    assert abs(calibrated - accuracy) < abs(raw - accuracy)


def test_what_was_not_asked_is_not_there(tmp_path):
    result = adapt(guard="off")
    assert (result.predictions_before, result.changed) == (None, None)
    result.save(tmp_path)
    rows = list(csv.DictReader((tmp_path / "predictions.csv").open()))
    assert list(rows[0]) == ["image", "class", "name", "confidence", "probability"]
    assert AdaptationResult.load(tmp_path, load_digits_model().model).changed is None


def test_an_unadapted_model_that_is_returned_changes_no_prediction():
    images, labels = digits("held-out")
    result = adapt(images[labels == 1])
    assert result.verdict.word == "refused"
    assert not result.changed.any()
    assert torch.equal(result.probabilities_before, result.probabilities)


def test_the_repr_fits_on_a_screen(result):
    long = replace(result, skipped=2, predictions=torch.zeros(100_000, dtype=torch.int64))
    lines = repr(long).splitlines()
    assert lines[0] == f"AdaptationResult: {result.verdict}"
    assert len(lines) < 10
    assert [line.split()[0] for line in lines[1:]] == [
        "model", "recipe", "images", "estimated", "history",
    ]  # fmt: skip
    assert "100,000 (2 skipped)" in lines[3]
    assert lines[5].startswith("  history          1 epoch, loss ")


def test_the_repr_shows_errors_where_there_are_labels():
    images, labels = digits("held-out", shifted=True)
    labelled = adapt(images[:100], labels=labels[:100])
    before, after = labelled.error_before, labelled.error_after
    assert f"  error            {before:.1f} % -> {after:.1f} %" in repr(labelled).splitlines()


def test_notebooks_get_a_small_escaped_table(result):
    odd = replace(result, verdict=Verdict("unclear", "a < b & <script>"))
    table = odd._repr_html_()
    assert table.startswith("<table>")
    assert table.count("<tr>") == 6
    assert "unclear: a &lt; b &amp; &lt;script&gt;" in table


def test_the_record_of_a_run_has_the_keys_that_folders_have(result):
    plain = result.record.to_dict()
    assert list(plain) == [
        "model", "weights", "recipe", "images", "count", "shift", "preprocessing", "batch_size",
        "seed", "guard", "keep", "score", "device", "speed", "versions", "estimate",
        "options", "plan", "acceleration",
    ]  # fmt: skip
    assert list(plain["guard"]) == [
        "action", "check_every", "min_diversity", "max_drift", "max_flips",
    ]  # fmt: skip
    assert RunRecord.from_dict(json.loads(json.dumps(plain))) == result.record
    assert "acceleration" not in replace(result.record, acceleration=None).to_dict()


def test_a_record_of_another_kind_is_refused_with_its_folder(result, tmp_path):
    result.save(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    summary["run"]["colour"] = "red"
    del summary["sha256"]["summary.json"]
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(AcclimateError, match=r"does not hold a finished result: .*colour"):
        AdaptationResult.load(tmp_path, load_digits_model().model)


def test_what_was_saved_loads_again(result, tmp_path):
    result.save(tmp_path)
    model = load_digits_model().model
    again = AdaptationResult.load(tmp_path, model)
    assert again.model is model
    assert not model.training
    for key, value in result.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[key])
    assert torch.equal(again.predictions, result.predictions)
    torch.testing.assert_close(again.confidence, result.confidence, atol=1e-6, rtol=0)
    assert again.history == result.history
    assert again.recipe == result.recipe
    assert again.verdict == result.verdict
    assert (list(again.names), again.notes, again.record) == (
        list(result.names),
        result.notes,
        result.record,
    )


def test_adapters_are_kept_beside_the_models_own_keys(tmp_path):
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(64)
            self.attn, self.mlp = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x):
            return x + self.mlp(self.attn(self.norm(x)))

    def build() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), Block(), nn.Linear(64, 10))

    source = build()
    images = torch.randn(40, 1, 8, 8)
    options = {"selector": "adapters", "selector.width": 4, "epochs": 1, "optimizer.lr": 1.0}
    result = adapt(images, build(), options=options)
    assert set(source.state_dict()) < set(result.model.state_dict())
    result.save(tmp_path)
    again = AdaptationResult.load(tmp_path, build())
    with torch.no_grad():
        assert torch.equal(again.model(images), result.model(images))


def test_another_architecture_or_no_result_is_refused(result, tmp_path):
    result.save(tmp_path)
    with pytest.raises(AcclimateError, match="belongs to another architecture than Linear"):
        AdaptationResult.load(tmp_path, nn.Linear(2, 2))
    (tmp_path / "summary.json").unlink()
    with pytest.raises(AcclimateError, match="does not hold a finished result"):
        AdaptationResult.load(tmp_path, load_digits_model().model)
    with pytest.raises(AcclimateError, match="does not hold a finished result: cannot read"):
        AdaptationResult.load(tmp_path / "nowhere", load_digits_model().model)


def test_odd_file_names_come_back_as_they_were(tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    odd = ['a,"b".png', "zwölf.png", "line\nbreak.png", os.fsdecode(b"\xff.png")]
    odd += ["return\r.png", "both\r\n.png", "=1+1.png", "'=1+1.png", "@a.png", "-1.png", "'a'.png"]
    for name, image in zip(odd, IMAGES, strict=False):
        try:
            Image.fromarray(image).save(photos / name)
        except OSError:
            pytest.skip("this file system refuses such names")
    result = adapt(photos, out=tmp_path / "out")
    assert sorted(result.names) == sorted(odd)
    assert list(adapt(photos, out=tmp_path / "out").names) == list(result.names)


def test_names_that_a_spreadsheet_would_take_for_formulas_are_quoted(result, tmp_path):
    names = ["=cmd|' /C calc'!A1", "+1", *list(result.names)[2:]]
    replace(result, names=names, class_names=["=2+2", *map(str, range(1, 10))]).save(tmp_path)
    rows = list(csv.DictReader((tmp_path / "predictions.csv").open(newline="")))
    assert [row["image"] for row in rows[:3]] == ["'=cmd|' /C calc'!A1", "'+1", names[2]]
    assert {row["name"] for row in rows if row["class"] == "0"} == {"'=2+2"}
    assert AdaptationResult.load(tmp_path, load_digits_model().model).names == names


def test_all_images_that_were_left_out_are_named_in_the_files(tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, image in enumerate(IMAGES[:4]):
        Image.fromarray(image).save(photos / f"{number}.png")
    for number in range(5):
        (photos / f"broken{number}.png").write_bytes(b"x")
    (photos / os.fsdecode(b"\xff.heic")).write_bytes(b"x")
    with pytest.warns(AcclimateWarning, match="6 of 10 images"):
        result = adapt(photos, out=tmp_path / "out")
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert (summary["skipped"], len(summary["left_out"])) == (6, 6)
    assert summary["left_out"][4] == {"name": "broken4.png", "reason": "not an image"}
    again = AdaptationResult.load(tmp_path / "out", load_digits_model().model)
    assert list(again.left_out) == list(result.left_out)
    assert list(again.left_out)[5].name == os.fsdecode(b"\xff.heic")


# Damage.


@pytest.mark.parametrize("name", ["model.safetensors", "predictions.csv", "history.json"])
def test_a_changed_byte_of_a_finished_run_is_found(result, name, tmp_path):
    result.save(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    content[-20] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AcclimateError, match=rf"expected the sha256 \w+… of {name}, got .*damaged"):
        AdaptationResult.load(tmp_path, load_digits_model().model)


def test_a_changed_summary_of_a_finished_run_is_found(result, tmp_path):
    result.save(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    summary["guard"]["returns_adapted"] = not summary["guard"]["returns_adapted"]
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(AcclimateError, match=r"expected the sha256 \w+… of summary\.json, got"):
        AdaptationResult.load(tmp_path, load_digits_model().model)


def without_hashes(folder: Path) -> None:
    """Make a result like those of 0.1."""
    summary = json.loads((folder / "summary.json").read_text())
    del summary["sha256"]
    (folder / "summary.json").write_text(json.dumps(summary))


def test_results_without_hashes_still_load(result, tmp_path):
    result.save(tmp_path)
    without_hashes(tmp_path)
    again = AdaptationResult.load(tmp_path, load_digits_model().model)
    assert torch.equal(again.predictions, result.predictions)


@pytest.mark.parametrize(
    "content", ["[]", "null", "3", "{}", "[" * 10_000, "\0", '{"run": []}', ""]
)
@pytest.mark.parametrize("name", ["summary.json", "history.json", "predictions.csv"])
def test_a_damaged_file_is_a_clear_error(result, name, content, tmp_path):
    result.save(tmp_path)
    without_hashes(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(AcclimateError, match="does not hold a finished result: "):
        AdaptationResult.load(tmp_path, load_digits_model().model)


@pytest.mark.parametrize("row", ["1,2", 'a,"b', "a.png,cat,0.5", "a,1,2,3,4,5", "a,1,b,high"])
def test_a_damaged_row_of_predictions_is_a_clear_error(result, row, tmp_path):
    result.save(tmp_path)
    without_hashes(tmp_path)
    with (tmp_path / "predictions.csv").open("a") as file:
        file.write(row + "\n")
    with pytest.raises(AcclimateError, match="does not hold a finished result: "):
        AdaptationResult.load(tmp_path, load_digits_model().model)


@pytest.mark.parametrize("content", ["[]", "null", "3", "{}", '{"versions": null}', "["])
@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_a_folder_whose_record_is_damaged_is_not_resumed(name, content, tmp_path):
    adapt(out=tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(AcclimateError, match=rf"{name}|holds another run|finished result"):
        adapt(out=tmp_path)


def test_models_with_tied_weights_are_saved_whole(tmp_path):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(64)
            self.one = nn.Linear(64, 64)
            self.head = nn.Linear(64, 64)
            self.head.weight = self.one.weight

        def forward(self, x):
            return self.head(self.one(self.norm(x.flatten(1))))

    result = adapt(np.float32(IMAGES[:, None] / 255), Tied())
    result.save(tmp_path)
    fresh = Tied()
    fresh.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=True)
    assert torch.equal(fresh.head.weight, result.model.head.weight)


# A full disk. RLIMIT_FSIZE makes the kernel refuse to write more, as a full disk does.


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def in_child(work: Callable[[], object]) -> str:
    """Do some work in a process of its own; what it returned, or the error it raised, in words."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            message = str(work())
        except AcclimateError as error:
            message = f"AcclimateError: {error}"
        except BaseException:
            message = traceback.format_exc()
        os.write(write, message.encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    return message


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("limit", [0, 10_000, 117_000])
def test_a_full_disk_leaves_the_previous_result_whole(result, limit, tmp_path):
    result.save(tmp_path)
    before = contents(tmp_path)
    assert len(before["model.safetensors"]) > limit
    other = adapt(seed=1)

    def save() -> object:
        limit_files(limit)
        return other.save(tmp_path, overwrite=True)

    message = in_child(save)
    assert message.startswith(f"AcclimateError: could not write {tmp_path / 'model.safetensors'}: ")
    assert message.endswith("; the previous one is untouched")
    assert contents(tmp_path) == before
    other.save(tmp_path, overwrite=True)  # room again
    assert contents(tmp_path)["model.safetensors"] != before["model.safetensors"]


def test_a_disk_that_fills_up_between_two_files_keeps_the_previous_result(result, tmp_path):
    result.save(tmp_path)
    before = contents(tmp_path)
    times = 200  # predictions.csv outgrows the model
    longer = replace(
        adapt(seed=1),
        names=list(result.names) * times,
        predictions=result.predictions.repeat(times),
        confidence=result.confidence.repeat(times),
        probabilities=result.probabilities.repeat(times),
        predictions_before=None,
    )

    def save() -> object:
        limit_files(150_000)
        return longer.save(tmp_path, overwrite=True)

    assert f"could not write {tmp_path / 'predictions.csv'}" in in_child(save)
    assert contents(tmp_path) == before


def test_a_checkpoint_that_cannot_be_written_only_warns(tmp_path):
    # DINO's head is in the checkpoint and not in the result: the one finds no room, the other does.
    options = {"epochs": 1, "objective.local_crops": 0, "objective.prototypes": 64}

    def run() -> object:
        limit_files(300_000)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            settings = {"options": options, "batch_size": 50, "progress": False}
            out = {"out": tmp_path, "checkpoint_every": 0}
            acclimate.adapt(load_digits_model(), IMAGES, "dino", **settings, **out)
        return [str(warning.message) for warning in caught]

    message = in_child(run)
    assert f"could not write {tmp_path / 'checkpoint.safetensors'}" in message
    assert "the run continues without it" in message
    assert sorted(contents(tmp_path)) == FILES


def test_a_result_that_cannot_be_written_leaves_its_checkpoint(tmp_path, monkeypatch):
    finish = RunFolder.finish

    def finish_on_full_disk(self: RunFolder, result: AdaptationResult) -> None:
        limit_files(1000)
        finish(self, result)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", finish_on_full_disk)
        message = in_child(lambda: adapt(out=tmp_path, checkpoint_every=0))
    assert f"could not write {tmp_path / 'model.safetensors'}" in message
    left = ["checkpoint.previous.safetensors", "checkpoint.safetensors", "run.json"]
    assert sorted(contents(tmp_path)) == left
    resumed, straight = adapt(out=tmp_path), adapt()  # room again: it resumes there
    assert torch.equal(resumed.predictions, straight.predictions)
    assert sorted(contents(tmp_path)) == FILES


# Folders that cannot be used.


def test_an_output_that_is_a_file_or_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below", Path("/dev/null/run")):
        with pytest.raises(AcclimateError, match=r"cannot write to .*; choose another folder"):
            adapt(out=out)
        with pytest.raises(AcclimateError, match="could not make the folder"):
            adapt().save(out)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_read_only_folder(result, tmp_path):
    tmp_path.chmod(0o555)

    def save() -> object:
        os.chdir(tmp_path)
        if os.geteuid() == 0:
            os.setuid(65534)  # root may write anywhere
        return result.save(".")

    message = in_child(save)
    assert "could not write model.safetensors" in message
    assert "Permission denied" in message
    assert contents(tmp_path) == {}


def test_a_result_does_not_replace_that_of_another_run(result, tmp_path):
    result.save(tmp_path)
    before = (tmp_path / "summary.json").read_bytes()
    result.save(tmp_path)  # the same run: nothing to lose
    other = replace(result, record=replace(result.record, seed=99))
    with pytest.raises(AcclimateError, match="another run"):
        other.save(tmp_path)
    assert (tmp_path / "summary.json").read_bytes() == before


def test_saved_files_may_be_read_by_whom_the_umask_lets(result, tmp_path):
    before = os.umask(0o022)
    try:
        result.save(tmp_path / "shared")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "shared").iterdir()}
    assert set(modes.values()) == {0o644}, modes


@pytest.mark.parametrize("wrap", [nn.DataParallel, partial(torch.compile, backend="eager")])
def test_what_a_wrapped_model_learnt_is_saved_for_the_plain_one(wrap, tmp_path):
    model = load_digits_model().model
    wrapped = adapt(model=replace(load_digits_model(), model=wrap(copy.deepcopy(model))))
    wrapped.save(tmp_path / "run")
    assert set(load_file(tmp_path / "run/model.safetensors")) == set(model.state_dict())
    for other in (model, wrap(copy.deepcopy(model))):
        loaded = AdaptationResult.load(tmp_path / "run", other)
        assert torch.equal(loaded.predictions, wrapped.predictions)
