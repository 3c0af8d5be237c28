"""``acclimate adapt``: what it prints, where, and its exit status."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from acclimate.models.networks.digits import load_digits_model
from acclimate.report import templates
from adapt_inputs import BLURRED, CLEAN, LABELS, WORDS, call, go_to, write_folder, write_npz


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    go_to(tmp_path, monkeypatch)


def call_json(capfd, *words: str) -> tuple[int, dict]:
    status = call(*words, "--json")
    out = capfd.readouterr().out
    assert out.endswith("}\n")
    assert out.count("\n") == 1
    return status, json.loads(out)


# The embedded default.


def test_the_embedded_default_prints_the_same_for_people_and_programs(capfd):
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "acclimate", "adapt", "--json"], capture_output=True, text=True
    )
    assert time.monotonic() - began < 60
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    error = json.loads(done.stdout)["error"]
    assert list(error) == ["none", "bn", "ent", "rpl"]
    assert error["bn"] < error["none"] - 20
    assert call("--quiet") == 0
    out, err = capfd.readouterr()
    rows = [line.split() for line in out.splitlines()[4:8]]
    assert [row[:2] for row in rows] == [[name, f"{value:.1f}"] for name, value in error.items()]
    assert "guard: " in out
    assert err == ""


@pytest.mark.parametrize(
    "option",
    ["--out=x", "--recipe=ent", "--batch-size=0", "--guard=off", "--keep=best", "--set=a=b"],
)
def test_the_embedded_default_takes_no_options_of_other_runs(option, capfd):
    assert call(option) == 2
    assert f"{option.partition('=')[0]} needs --model and --images" in capfd.readouterr().err


# Other runs.


@pytest.mark.parametrize(
    ("model", "folders", "labels"),
    [
        pytest.param("py:nets:named", WORDS, (), id="names"),
        pytest.param("py:nets:named", tuple("0123456789"), ("--labels", "index"), id="indices"),
        pytest.param(
            "py:nets:named",
            tuple(f"{i:03}" for i in range(10)),
            ("--labels", "index"),
            id="padded-indices",
        ),
        pytest.param(
            "py:nets:unnamed",
            tuple("0123456789"),
            ("--labels", "index"),
            id="indices-without-names",
        ),
        pytest.param("acclimate:digits", tuple("0123456789"), (), id="digits"),
    ],
)
def test_folders_that_name_classes_give_errors_before_and_after(
    model, folders, labels, tmp_path, capfd
):
    images = write_folder(tmp_path / "photos", folders=folders)
    words = ("--model", model, "--images", images, "--recipe", "bn", *labels)
    status, got = call_json(capfd, *words)
    assert status == 0
    assert got["guard"]["verdict"] == "helpful"
    assert set(got["error"]) == {"before", "after"}
    assert got["error"]["after"] < got["error"]["before"] - 20
    assert (got["model"], got["images"]) == (model, 120)


def test_a_subset_of_the_classes_is_matched_too(tmp_path, capfd):
    chosen = np.isin(LABELS, (1, 4, 7))
    images = write_folder(tmp_path / "photos", CLEAN[chosen], LABELS[chosen], count=60)
    _, got = call_json(capfd, "--model", "py:nets:named", "--images", images, "--recipe", "none")
    assert got["error"]["before"] == got["error"]["after"] < 10


def test_without_labels_there_is_a_verdict_and_no_error(tmp_path, capfd):
    images = write_folder(tmp_path / "photos", folders=None)
    _, got = call_json(capfd, "--model", "acclimate:digits", "--images", images, "--recipe", "bn")
    assert got["guard"]["verdict"] == "helpful"
    assert "error" not in got


def test_sub_folders_taken_for_classes_are_announced_and_can_be_left(tmp_path, capfd):
    images = write_folder(tmp_path / "photos", count=40)
    words = ("--model", "py:nets:named", "--images", images, "--recipe", "none")
    call(*words)
    out, err = capfd.readouterr()
    (line,) = [line for line in err.splitlines() if line.startswith("labels: ")]
    assert "sub-folders (eight, five, four, ...)" in line
    assert "--no-labels" in line
    assert "(40 labelled images)" in out
    call(*words, "--no-labels")
    out, err = capfd.readouterr()
    assert "labelled images" not in out
    assert "labels: " not in err


def test_numbered_sub_folders_are_classes_only_where_that_is_asked_for(tmp_path, capfd):
    images = write_folder(tmp_path / "photos", folders="0123456789", count=40)
    words = ("--model", "py:nets:named", "--images", images, "--recipe", "none")
    _, got = call_json(capfd, *words)
    assert "error" not in got
    assert any("--labels index" in note for note in got["notes"])
    _, got = call_json(capfd, *words, "--labels", "index")
    assert set(got["error"]) == {"before", "after"}


def test_labels_of_a_table_score_the_images_it_names(tmp_path, capfd):
    images = write_folder(tmp_path / "photos", folders=None, count=60)
    rows = [f"{index:04}.png,{WORDS[LABELS[index]]}" for index in range(20)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,class", *rows]))
    words = ("--model", "py:nets:named", "--images", images, "--recipe", "bn")
    call(*words, "--labels", tmp_path / "labels.csv")
    assert "(20 labelled images)" in capfd.readouterr().out


def test_a_summary_for_people_and_the_files(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz", labels=LABELS)
    out = tmp_path / "out"
    options = ["--recipe", "ent", "--epochs", "2", "--lr", "0.01"]
    assert call("--model", "acclimate:digits", "--images", images, "--out", out, *options) == 0
    printed = capfd.readouterr().out
    for said in (
        "acclimate:digits\n  architecture   Sequential",
        "preprocessing  8×8, mean (0.3,), std (0.37,)",
        "epoch  loss",
        "error before update %  error after epoch %",
        "recipe ent, 200 images",
        "(200 labelled images)",
        "guard: helpful",
        f"written to {out}",
    ):
        assert said in printed
    assert sorted(p.name for p in out.iterdir()) == [
        "history.json", "model.safetensors", "predictions.csv", "report.html", "run.json",
        "summary.json",
    ]  # fmt: skip
    rows = list(csv.DictReader((out / "predictions.csv").open()))
    assert len(rows) == 200
    recipe = json.loads((out / "summary.json").read_text())["recipe"]
    assert (recipe["epochs"], recipe["optimizer"]["lr"]) == (2, 0.01)


def test_the_state_that_was_kept_is_named(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz")
    words = ["--model", "acclimate:digits", "--images", images, "--recipe", "ent", "--keep", "best"]
    assert call(*words, "--set", "epochs=2") == 0
    out = capfd.readouterr().out
    said = re.search(r"^kept: the (state after epoch (\d)|unadapted state)$", out, re.MULTILINE)
    assert said is not None
    _, summary = call_json(capfd, *words, "--set", "epochs=2")
    assert summary["kept_epoch"] == int(said[2] or 0)


def test_running_it_again_prints_the_result_again(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz", labels=LABELS)
    words = ["--model", "acclimate:digits", "--images", images, "--out", tmp_path / "out"]
    words += ["--recipe", "bn", "--quiet"]
    assert call(*words) == 0
    first = capfd.readouterr().out
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()}
    assert call(*words) == 0
    assert capfd.readouterr().out == first
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()} == before
    assert call(*words, "--seed", "7") == 2
    assert "holds another run, which differs in seed" in capfd.readouterr().err


def test_weights_from_a_file(tmp_path, capfd):
    save_file(load_digits_model().model.state_dict(), tmp_path / "w.safetensors")
    images = write_npz(tmp_path / "clean.npz", CLEAN, LABELS)
    words = ["--model", "py:nets:blank", "--images", images, "--recipe", "none"]
    _, blank = call_json(capfd, *words)
    _, filled = call_json(capfd, *words, "--weights", tmp_path / "w.safetensors")
    assert filled["error"]["after"] < 5 < 50 < blank["error"]["after"]


def test_what_the_users_code_prints_stays_out_of_the_json(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz")
    assert call("--model", "py:nets:named", "--images", images, "--recipe", "bn", "--json") == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["images"] == 200
    assert "hello from the user's own code" in err


def test_refused_is_exit_status_3_with_the_source_model(tmp_path, capfd):
    two = np.isin(LABELS, (3, 5))
    images = write_npz(tmp_path / "two.npz", CLEAN[two], LABELS[two])
    status, got = call_json(
        capfd, "--model", "acclimate:digits", "--images", images, "--recipe", "rpl"
    )
    assert status == 3
    assert got["guard"]["verdict"] == "refused"
    assert got["error"]["after"] == got["error"]["before"]
    words = ["--recipe", "rpl", "--guard", "observe", "--set", "epochs=1"]
    status, got = call_json(capfd, "--model", "acclimate:digits", "--images", images, *words)
    assert (status, got["guard"]["verdict"]) == (0, "harmful")
    assert got["error"]["after"] > got["error"]["before"]


def test_progress_goes_to_stderr_unless_quiet(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz", count=60)
    words = ["--model", "py:nets:slow", "--images", images, "--recipe", "ent"]
    words += ["--batch-size", "2", "--set", "epochs=1", "--guard", "off", "--json"]
    assert call(*words) == 4  # nothing judged it
    out, err = capfd.readouterr()
    assert json.loads(out)["images"] == 60
    assert "epoch 1/1" in err
    assert call(*words, "--quiet") == 4
    assert capfd.readouterr().err == ""


def test_killed_and_run_again_it_ends_with_the_same_files(tmp_path):
    images = write_npz(tmp_path / "blurred.npz", count=100)

    def words(out: str) -> list[str]:
        start = [sys.executable, "-m", "acclimate", "adapt", "--model", "py:nets:slow"]
        options = ["--recipe", "ent", "--batch-size", "10", "--set", "epochs=3", "--quiet"]
        return [*start, "--images", images, "--out", out, *options]

    victim = subprocess.Popen(words("killed"), cwd=tmp_path, stdout=subprocess.DEVNULL)
    while not (tmp_path / "killed" / "run.json").exists():
        assert victim.poll() is None
        time.sleep(0.01)
    time.sleep(0.5)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "summary.json").exists()
    for out in ("killed", "whole"):
        done = subprocess.run(words(out), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "predictions.csv", "history.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


# Files of all sorts.


def test_odd_image_files_are_converted_and_broken_ones_counted(tmp_path, capfd):
    photos = write_folder(tmp_path / "photos", folders=None, count=30)
    image = Image.fromarray(BLURRED[0])
    Image.fromarray(BLURRED[1].astype(np.uint16) * 257).save(photos / "sixteen-bit.png")
    image.convert("CMYK").save(photos / "cmyk.jpg")
    image.convert("P").save(photos / "palette.png")
    image.convert("RGBA").save(photos / "alpha.png")
    image.convert("LA").save(photos / "grey-alpha.png")
    image.save(photos / "animated.gif", save_all=True, append_images=[image, image])
    (photos / "cut.png").write_bytes((photos / "0000.png").read_bytes()[:50])
    (photos / "empty.jpg").write_bytes(b"")
    (photos / "text.png").write_text("not an image")
    words = ["--model", "acclimate:digits", "--images", photos, "--recipe", "bn", "--json"]
    assert call(*words) in (0, 4)
    out, err = capfd.readouterr()
    got = json.loads(out)
    assert (got["images"], got["skipped"]) == (36, 3)
    assert "warning: 3 of 39 images cannot be read and are left out" in err
    assert "cut.png" in err
    assert "Traceback" not in err


def test_a_long_table_of_epochs_is_shortened(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz", count=40)
    words = ["--model", "acclimate:digits", "--images", images, "--recipe", "ent", "--epochs", "11"]
    assert call(*words) in (0, 4)
    lines = [line.split() for line in capfd.readouterr().out.splitlines() if line]
    start = next(index for index, line in enumerate(lines) if line[0] == "epoch")
    shown = [line[0] for line in lines[start + 1 :]]
    shown = shown[shown.index("1") :][:11]
    assert shown == ["1", "2", "3", "4", "5", "...", "7", "8", "9", "10", "11"]


def test_a_recipe_of_your_own(tmp_path, capfd):
    (tmp_path / "own_recipes.py").write_text(
        "from acclimate import get_recipe\n"
        "def gentle():\n"
        "    return get_recipe('ent').with_options({'optimizer.lr': 1e-4, 'epochs': 1})\n"
    )
    words = ["--model", "acclimate:digits", "--images", write_npz(tmp_path / "blurred.npz")]
    own = ["--recipe", "py:own_recipes:gentle", "--epochs", "2", "--out", tmp_path / "out"]
    assert call(*words, *own) == 0
    recipe = json.loads((tmp_path / "out/summary.json").read_text())["recipe"]
    assert (recipe["optimizer"]["lr"], recipe["epochs"]) == (1e-4, 2)
    assert call(*words, "--recipe", "py:own_recipes:gentl") == 2
    assert "did you mean 'gentle'?" in capfd.readouterr().err


def test_a_page_of_the_run(tmp_path, capfd):
    images = write_folder(tmp_path / "photos")
    words = ("--model", "py:nets:named", "--images", images, "--out", tmp_path / "run", "--quiet")
    call(*words)
    assert "report.html, model.safetensors" in capfd.readouterr().out
    page = (tmp_path / "run/report.html").read_text()
    assert "Images whose prediction changed" in page
    assert page.count("data:image/jpeg;base64,") == 24
    call(*words)  # the finished run is read, and its page is the same
    assert (tmp_path / "run/report.html").read_text() == page


def test_a_folder_that_is_taken_away_at_the_end_is_left_empty(tmp_path, monkeypatch, capfd):
    images, run = write_folder(tmp_path / "photos", count=40), tmp_path / "run"
    words = ("--model", "py:nets:named", "--images", images, "--out", run, "--recipe", "bn")

    def taken_away(*_):
        for file in run.iterdir():
            file.unlink()
        return "a page of nothing"

    with monkeypatch.context() as patched:
        patched.setattr("acclimate.report.run.run_page", taken_away)
        assert call(*words) == 2
    assert "taken away before its report.html was written" in capfd.readouterr().err
    assert list(run.iterdir()) == []
    assert call(*words) in (0, 3, 4)


def test_without_jinja_the_page_is_left_out(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(templates, "find_spec", lambda name: None)
    images = write_folder(tmp_path / "photos", count=40)
    run = tmp_path / "run"
    call("--model", "py:nets:named", "--images", images, "--out", run, "--recipe", "bn")
    out, err = capfd.readouterr()
    assert (
        "note: report.html is left out; pages need jinja2: pip install 'acclimate[report]'" in err
    )
    assert "report.html" not in out
    assert not (run / "report.html").exists()
