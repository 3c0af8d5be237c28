"""A damaged file of ours is read, where it still makes sense, or refused: never a traceback."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import event, given
from hypothesis import strategies as st
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from acclimate.adaptation.folder import CHECKPOINT
from acclimate.bench import Store, export
from acclimate.bench.choices import read_choices
from acclimate.bench.plan import Plan
from acclimate.bench.store import read_json
from acclimate.callbacks import Callback
from acclimate.checkpoint import read_tensors
from acclimate.data import open_images
from acclimate.data.corrupted import write_corrupted
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.data.labels import ClassList
from acclimate.errors import AcclimateError
from acclimate.models.networks.digits import load_digits_model
from acclimate.pretraining import Plan as Training
from acclimate.pretraining import Vanilla, pretrain
from acclimate.result import AdaptationResult
from coloured import examples, net
from digit_runs import adapt
from fuzzing import cases, damaged_bytes, damaged_json, damaged_values
from stored import result

pytestmark = pytest.mark.filterwarnings("ignore")  # of labels for no image, and the like

PLAN = {
    "model": ["acclimate:digits"],
    "dataset": ["mnist"],
    "root": {"mnist": "."},
    "weights": {},
    "shift": {"mnist": ["cifar/fog:2", "clean"]},
    "recipe": ["none", "ent"],
    "set": {"optimizer.lr": [1e-3, 1e-4], "ent": {"epochs": 1}},
    "seed": [0, 1],
    "setting": ["stationary", "online"],
    "images": 100,
    "forgetting": False,
    "split": "test",
}
CHOICE = {
    "acclimate:*": {
        "ent": {
            "options": {"optimizer.lr": 0.1, "epochs": 2},
            "selection": "dev",
            "dev_error": 9.5,
            "searched": {"epochs": [1, 2]},
            "chosen_on": ["mnist cifar/fog:3"],
            "candidates": 4,
            "labelled": {"options": {"epochs": 1}, "error": 9.0},
            "regret": 0.5,
            "seeds": [0],
            "images_per_shift": 64,
            "by_shift": {"mnist cifar/fog:3": {"options": {"epochs": 1}, "error": 3.0}},
        }
    },
    "rpl": {"optimizer.lr": 1e-3},
}


@contextlib.contextmanager
def read_or_refused() -> Iterator[None]:
    """Any other error fails the test."""
    try:
        yield
        event("read")
    except AcclimateError:
        event("refused")


def holding(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@cases(150)
@given(
    st.one_of(
        damaged_values(PLAN).map(lambda value: yaml.safe_dump(value).encode("utf-8", "replace")),
        damaged_bytes(yaml.safe_dump(PLAN).encode()),
    )
)
def test_plans(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = holding(tmp_path_factory.getbasetemp() / "plan.yaml", content)
    with read_or_refused():
        plan = Plan.from_yaml(file)
        plan.check()
        assert all(job.key for job in plan.jobs())


@cases(200)
@given(damaged_json(CHOICE))
def test_choices(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = holding(tmp_path_factory.getbasetemp() / "choice.json", content)
    with read_or_refused():
        found = read_choices(file).find("acclimate:digits", "ent")
        assert found is None or found.options is None or dict(found.options) is not None


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and what it exports."""
    folder = tmp_path_factory.mktemp("stored")
    store = Store(folder / "results.db")
    store.add_all(
        [
            result(options={"optimizer.lr": 1e-3}, record={"recipe": {"name": "ent"}}),
            result(seed=1, record={"forgetting": {"before": 1.0, "after": 2.0, "images": 3}}),
            result(setting="continual", shift="cifar/test:5", record={"notes": ["a note"]}),
        ]
    )
    export(store.results(), folder / "results.json")
    return folder


@cases(200)
@given(st.data())
def test_exported_results(stored: Path, data: st.DataObject) -> None:
    whole = json.loads((stored / "results.json").read_text())
    file = holding(stored / "damaged.json", data.draw(damaged_json(whole)))
    with read_or_refused():
        use(read_json(file))


def use(results: list[Any]) -> None:
    """As tables do."""
    for each in results:
        assert each.key
        assert each.to_dict()["status"] in ("done", "failed")
        assert (each.error, each.unadapted_error, each.online_error, each.corruption) is not None


@cases(100)
@given(st.data())
def test_stores_with_other_bytes(stored: Path, data: st.DataObject) -> None:
    content = (stored / "results.db").read_bytes()
    copy = holding(stored / "damaged.db", data.draw(damaged_bytes(content)))
    for ending in ("-wal", "-shm", "-journal"):
        copy.with_name(f"damaged.db{ending}").unlink(missing_ok=True)
    with read_or_refused():
        use(Store(copy, create=False).results())
    with read_or_refused():
        Store(copy).add(result(seed=9))


@cases(150)
@given(st.data(), st.sampled_from(["job", "record", "options", "status", "created"]))
def test_lines_of_a_store(stored: Path, data: st.DataObject, column: str) -> None:
    copy = shutil.copy(stored / "results.db", stored / "line.db")
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
        (before,) = connection.execute(f"SELECT {column} FROM results LIMIT 1").fetchone()
        plain = json.loads(before) if before.startswith("{") else before
        after = data.draw(damaged_json(plain)).decode("utf-8", "replace")
        connection.execute(f"UPDATE results SET {column} = ? WHERE seed = 0", (after,))
    with read_or_refused():
        use(Store(copy, create=False).results())
    with read_or_refused():
        Store(copy).has(["0" * 16])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one that was interrupted, and one as 0.1 wrote it, without hashes."""
    folder = tmp_path_factory.mktemp("run")
    adapt(out=folder / "whole")
    shutil.copytree(folder / "whole", folder / "old")
    summary = json.loads((folder / "old/summary.json").read_text())
    del summary["sha256"]
    (folder / "old/summary.json").write_text(json.dumps(summary))

    class StopError(Exception):
        pass

    class Stops(Callback):
        def on_step_end(self, step: Any) -> None:
            if step.step == 7:
                raise StopError

    with pytest.raises(StopError):
        interrupted(folder / "interrupted", callbacks=[Stops()])
    return folder


def interrupted(out: Path, **more: Any) -> Any:
    return adapt(out=out, checkpoint_every=0, guard="observe", speed="exact", **more)


@pytest.mark.parametrize("which", ["whole", "old"])
@pytest.mark.parametrize("name", ["run.json", "history.json", "summary.json"])
def test_finished_runs(run: Path, which: str, name: str) -> None:
    plain = json.loads((run / which / name).read_text())
    copy = shutil.copytree(run / which, run / f"{which}-{name}", dirs_exist_ok=True)

    @cases(60)
    @given(damaged_json(plain))
    def check(content: bytes) -> None:
        holding(copy / name, content)
        with read_or_refused():
            read = AdaptationResult.load(copy, load_digits_model().model)
            assert read.summary()

    check()


@pytest.mark.parametrize("name", ["predictions.csv", "model.safetensors"])
def test_other_files_of_finished_runs(run: Path, name: str) -> None:
    content = (run / "old" / name).read_bytes()
    copy = shutil.copytree(run / "old", run / f"other-{name}", dirs_exist_ok=True)

    @cases(60)
    @given(damaged_bytes(content))
    def check(damaged: bytes) -> None:
        holding(copy / name, damaged)
        with read_or_refused():
            AdaptationResult.load(copy, load_digits_model().model)

    check()


def damaged_checkpoints(path: Path, draw: Callable[..., Any]) -> bytes:
    """Other bytes; or another record beside the tensors, or other tensors, under the old hash."""
    what = draw(st.sampled_from(["bytes", "record", "tensors"]))
    if what == "bytes":
        return bytes(draw(damaged_bytes(path.read_bytes())))
    tensors, record = read_tensors(path)
    with safe_open(path, framework="pt") as file:
        written = json.loads(file.metadata()["record"])
    seal = {key: value for key, value in written.items() if key not in record}
    if what == "record":
        damaged = draw(damaged_values(record))
        record = damaged if isinstance(damaged, dict) else {}
    for name in draw(st.lists(st.sampled_from(sorted(tensors)), min_size=1, max_size=3)):
        if what != "tensors" or name not in tensors:
            continue
        change = draw(st.sampled_from(["gone", "shape", "dtype", "renamed"]))
        tensor = tensors.pop(name)
        if change == "shape":
            tensors[name] = tensor.flatten()[: draw(st.integers(0, 2))].clone()
        elif change == "dtype":
            tensors[name] = tensor.double() if tensor.dtype.is_floating_point else tensor.bool()
        elif change == "renamed":
            tensors[f"{name}/x"] = tensor
    made = path.with_name("made.safetensors")
    save_file(tensors, made, metadata={"record": json.dumps({**record, **seal})})
    content = made.read_bytes()
    made.unlink()
    return content


@cases(60)
@given(st.data())
def test_checkpoints_of_a_run(run: Path, data: st.DataObject) -> None:
    copy = run / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run / "interrupted", copy)
    content = damaged_checkpoints(run / "interrupted" / CHECKPOINT, data.draw)
    holding(copy / CHECKPOINT, content)
    with read_or_refused():
        assert interrupted(copy).predictions.shape == (150,)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    train(folder, Training(epochs=1, batch_size=32, lr=0.05))
    return folder


def train(folder: Path, plan: Training) -> Any:
    return pretrain(net(), examples(), Vanilla(), plan, out=folder, progress=False)


@cases(60)
@given(st.data())
def test_checkpoints_of_a_training(training: Path, data: st.DataObject) -> None:
    (file,) = training.glob("*.safetensors")
    copy = training.with_name("training-copy")
    copy.mkdir(exist_ok=True)
    holding(copy / file.name, damaged_checkpoints(file, data.draw))
    with read_or_refused():
        train(copy, Training(epochs=1, batch_size=32, lr=0.05))


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corrupted") / "out"
    corrupt_into(folder)
    return folder


def corrupt_into(folder: Path) -> None:
    source = open_images(digits("held-out")[0][:4], preprocessing=PREPROCESSING)
    write_corrupted(source, folder, preset="cifar", shifts=["fog:1"], progress=False)


@cases(60)
@given(st.data())
def test_manifests(corrupted: Path, data: st.DataObject) -> None:
    whole = json.loads((corrupted / "manifest.json").read_text())
    copy = shutil.copytree(corrupted, corrupted.with_name("copy"), dirs_exist_ok=True)
    holding(copy / "manifest.json", data.draw(damaged_json(whole)))
    with read_or_refused():
        corrupt_into(copy)


@cases(60)
@given(st.data())
def test_arrays(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp()
    name = data.draw(st.sampled_from(["a.npz", "a.npy"]))
    images, labels = digits("held-out")
    if name == "a.npz":
        np.savez(folder / name, images=images[:4], labels=labels[:4])
    else:
        np.save(folder / name, images[:4])
    content = (folder / name).read_bytes()
    file = holding(folder / f"damaged-{name}", data.draw(damaged_bytes(content)))
    with read_or_refused():
        source = open_images(file, preprocessing=PREPROCESSING, progress=False)
        assert len(source) >= 1


@cases(100)
@given(st.one_of(damaged_bytes(b"file,class\na.png,one\nb.png,two\n"), st.binary(max_size=40)))
def test_tables_of_labels(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    images = folder / "labelled"
    images.mkdir(exist_ok=True)
    for name in ("a.png", "b.png"):
        if not (images / name).exists():
            Image.new("L", (8, 8)).save(images / name)
    table = holding(folder / "labels.csv", content)
    with read_or_refused():
        open_images(
            images,
            preprocessing=PREPROCESSING,
            labels=table,
            classes=ClassList(("one", "two")),
            progress=False,
        )
