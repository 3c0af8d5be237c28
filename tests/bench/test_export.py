"""Results as files, and back."""

from __future__ import annotations

import csv
import json
import sys

import pytest

from acclimate.bench import Result, Store
from acclimate.bench.store import export, export_all, read_json
from acclimate.errors import AcclimateError
from stored import job, result


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "results.db")
    store.add_all(result(seed=seed, options={"optimizer.lr": 0.1}) for seed in range(3))
    store.add(Result.failed(job(seed=9), 'a "message",\nin two lines'))
    return store


def test_json_is_lossless(store, tmp_path):
    export(store.results(), tmp_path / "all.json")
    other = Store(tmp_path / "other.db")
    assert other.merge(tmp_path / "all.json").new == 4
    assert other.results() == store.results()
    assert other.merge(tmp_path / "all.json").kept == 3


def test_csv_has_the_columns_that_can_be_queried(store, tmp_path):
    export(store.results(), tmp_path / "all.csv")
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    done = next(row for row in rows if row["seed"] == "1")
    assert (done["error"], done["corruption"], done["severity"]) == ("20.0", "fog", "3")
    assert json.loads(done["record"])["labelled"] == 100
    assert next(row for row in rows if row["seed"] == "9")["message"].endswith("two lines")


def test_parquet(store, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export(store.results(), tmp_path / "all.parquet")
    table = parquet.read_table(tmp_path / "all.parquet").to_pydict()
    assert sorted(table["seed"]) == [0, 1, 2, 9]
    assert table["error"].count(None) == 1


def test_parquet_without_pyarrow(store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(AcclimateError, match=r"pip install 'acclimate\[parquet\]'"):
        export(store.results(), tmp_path / "all.parquet")
    assert not (tmp_path / "all.parquet").exists()


def test_several_files_are_written_all_or_none(store, tmp_path):
    files = [tmp_path / "all.csv", tmp_path / "all.json"]
    for wrong in ("all.xlsx", "gone/all.csv"):
        with pytest.raises(AcclimateError):
            export_all(store.results(), [*files, tmp_path / wrong])
        assert not any(file.exists() for file in files)
    assert export_all(store.results(), files) == files
    assert len(read_json(files[1])) == 4


def test_older_exports_of_imagenet_d_are_of_the_curated_map(tmp_path):
    results = [result(dataset="imagenet-d", shift="clipart"), result(dataset="cifar10")]
    path = export(results, tmp_path / "all.json")
    assert read_json(path) == results
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1}))
    assert [each.job.dataset for each in read_json(path)] == ["imagenet-d-curated", "cifar10"]


def test_mistakes(store, tmp_path):
    with pytest.raises(AcclimateError, match=r"ending in .csv, .json, .parquet, got"):
        export(store.results(), tmp_path / "all.xlsx")
    with pytest.raises(AcclimateError, match="could not write"):
        export(store.results(), tmp_path / "gone" / "all.csv")
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(AcclimateError, match="expected results that were exported"):
        store.merge(tmp_path / "other.json")
    (tmp_path / "half.json").write_text('{"format": "acclimate-res')
    with pytest.raises(AcclimateError, match=r"expected JSON in .*half"):
        store.merge(tmp_path / "half.json")
    for damaged in ("", ', "version": "x", "results": []', ', "version": 1, "results": 3'):
        (tmp_path / "half.json").write_text(f'{{"format": "acclimate-results"{damaged}}}')
        with pytest.raises(AcclimateError, match="is damaged"):
            store.merge(tmp_path / "half.json")
