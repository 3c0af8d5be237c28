"""The HTTP side, in a process of its own on loopback: what it takes, and what it refuses how."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save

from acclimate.cli import main
from acclimate.models.networks.digits import load_digits_model
from serving import FOGGY, INPUT, Process, call, form, png, running, settings, wait_for

schemathesis = pytest.importorskip("schemathesis")

BODY = 100_000


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    """A frozen server with small limits."""
    limits = ["--max-body", str(BODY), "--max-pixels", "10000", "--max-images", "4"]
    with running("--mode", "frozen", *limits) as process:
        yield process


def predict(
    served: Process, body: bytes, kind: str, *, query: str = ""
) -> tuple[int, dict[str, Any]]:
    return call(f"{served.url}/predict{query}", body, {"Content-Type": kind})


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def expected(count: int) -> list[int]:
    with torch.no_grad():
        return load_digits_model().model(INPUT[:count]).argmax(dim=1).tolist()


def encoded(*files: bytes) -> bytes:
    return json.dumps({"images": [base64.b64encode(file).decode() for file in files]}).encode()


BOUNDARY = "multipart/form-data; boundary=xyz"
ACCEPTED = {
    "a form": (form(*map(png, range(3)))[0], BOUNDARY),
    "base64 in JSON": (encoded(*map(png, range(3))), "application/json"),
    "uint8 in .npy": (npy(FOGGY[:3]), "application/x-npy"),
    "uint8 in .npy, in the order of Fortran": (
        npy(np.asfortranarray(FOGGY[:3])),
        "application/x-npy",
    ),
    "model input in .npy": (npy(INPUT[:3].numpy()), "application/octet-stream"),
    "doubles": (npy(INPUT[:3].double().numpy()), "application/x-npy"),
    "uint8 in safetensors": (
        save({"images": torch.from_numpy(FOGGY[:3])[:, None].clone(), "other": torch.zeros(1)}),
        "application/safetensors",
    ),
    "model input in safetensors": (save({"x": INPUT[:3].clone()}), "application/octet-stream"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_images_come_in_many_ways(served: Process, name: str) -> None:
    body, kind = ACCEPTED[name]
    status, answer = predict(served, body, kind)
    assert status == 200, answer
    assert [each["index"] for each in answer["predictions"]] == expected(3)
    assert answer["model"] == "acclimate:digits"
    assert (answer["version"], answer["adapted"], answer["mode"]) == (0, False, "frozen")


def test_one_image_needs_no_form(served: Process) -> None:
    status, answer = predict(served, png(0), "image/png")
    assert status == 200
    assert [each["index"] for each in answer["predictions"]] == expected(1)
    one = {"image": base64.b64encode(png(0)).decode()}
    assert predict(served, json.dumps(one).encode(), "application/json")[1] == answer
    one["image"] = f"data:image/png;base64,{one['image']}"
    assert predict(served, json.dumps(one).encode(), "application/json")[1] == answer
    assert predict(served, npy(INPUT[0].numpy()), "application/x-npy")[1]["predictions"]


def test_large_images_are_resized_and_the_most_probable_classes_are_named(served: Process) -> None:
    file = io.BytesIO()
    Image.fromarray(FOGGY[0]).resize((60, 80)).convert("RGB").save(file, "JPEG")
    status, answer = predict(served, file.getvalue(), "image/jpeg", query="?top=3")
    assert status == 200
    (prediction,) = answer["predictions"]
    shares = [each["probability"] for each in prediction["top"]]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    assert prediction["probability"] == shares[0]
    assert (
        len(predict(served, png(0), "image/png", query="?top=999")[1]["predictions"][0]["top"])
        == 10
    )


# Refusals: a table of what is sent, the status, and words of the reason.


def huge_png() -> bytes:
    file = io.BytesIO()
    Image.new("L", (200, 100)).save(file, "PNG")
    return file.getvalue()


def header(descr: str = "'|u1'", shape: str = "(3, 8, 8)", fortran: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


PIXELS = bytes(192)
NAN = INPUT[:1].clone()
NAN[0, 0, 0, 0] = float("nan")
NPY, JSON, TENSORS = "application/x-npy", "application/json", "application/safetensors"
REFUSED: dict[str, tuple[bytes, str, int, str]] = {
    "nothing": (b"", "image/png", 422, "empty file"),
    "no image": (b"hello", "image/png", 422, "not an image"),
    "half an image": (png(0)[:60], "image/png", 422, "expected an image file"),
    "too many pixels": (huge_png(), "image/png", 413, "200×100 pixels; expected at most 10,000"),
    "an SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml", 422, "not an image"),
    "no content type of ours": (png(0), "text/plain", 415, "expected one of the content types"),
    "an unknown type": (png(0), "application/x-www-form-urlencoded", 415, "content types"),
    "a form without a boundary": (b"x", "multipart/form-data", 422, "boundary"),
    "a form that is cut": (form(png(0))[0][:150], BOUNDARY, 422, ""),
    "a form of text": (
        b'--xyz\r\nContent-Disposition: form-data; name="image"\r\n\r\nhello\r\n--xyz--\r\n',
        BOUNDARY,
        422,
        "at least one image",
    ),
    "an empty form": (b"--xyz--\r\n", BOUNDARY, 422, "at least one image"),
    "too many files": (form(*[png(0)] * 5)[0], BOUNDARY, 413, "Too many files"),
    "one bad file of two": (form(png(0), b"x")[0], BOUNDARY, 422, "image 1: not an image"),
    "no JSON": (b"{", JSON, 422, "expected JSON"),
    "JSON in UTF-16": ('{"image": ""}'.encode("utf-16"), JSON, 422, "UTF-8"),
    "deep JSON": (b"[" * 20_000, JSON, 422, "deep"),
    "a list": (b"[]", JSON, 422, 'expected {"image": BASE64}'),
    "no image in JSON": (b"{}", JSON, 422, 'expected {"image": BASE64}'),
    "both": (b'{"image": "", "images": []}', JSON, 422, 'expected {"image": BASE64}'),
    "another key": (b'{"image": "", "url": "file:///etc/passwd"}', JSON, 422, "got also 'url'"),
    "a number": (b'{"image": 3}', JSON, 422, 'expected {"image": BASE64}'),
    "numbers": (b'{"images": [3]}', JSON, 422, 'expected {"image": BASE64}'),
    "no images": (b'{"images": []}', JSON, 422, "at least one image, got none"),
    "no base64": (b'{"image": "not base64!"}', JSON, 422, "base64"),
    "too many images": (encoded(*[png(0)] * 5), JSON, 413, "at most 4 images in a request, got 5"),
    "no .npy": (b"PK\x03\x04" * 20, NPY, 422, "does not begin as one"),
    "a .npy of objects": (npy(np.array([{}, None])), NPY, 422, "its type is '|O'"),
    "a .npy of complex numbers": (npy(np.zeros((1, 1, 8, 8), complex)), NPY, 422, "its type"),
    "a .npy that lies": (header(shape="(1000000, 8, 8)") + PIXELS, NPY, 422, "do not agree"),
    "a .npy with too little": (header() + PIXELS[:-1], NPY, 422, "do not agree"),
    "a negative shape": (header(shape="(-3, -8, 8)") + PIXELS, NPY, 422, "its shape"),
    "a shape of names": (header(shape="('a', 8, 8)") + PIXELS, NPY, 422, "its shape"),
    "code as header": (header(descr="__import__('os')") + PIXELS, NPY, 422, "expected a .npy"),
    "a header that is none": (b"\x93NUMPY\x01\x00\x05\x00[1,2]", NPY, 422, "expected a .npy"),
    "a header that is cut": (b"\x93NUMPY\x01\x00\xff\xff", NPY, 422, "expected a .npy"),
    "NaN": (npy(NAN.numpy()), NPY, 422, "NaN or infinity"),
    "values of no image": (npy(1e30 * INPUT[:1].numpy()), NPY, 422, "expected values from -0.811"),
    "unscaled floats": (npy(FOGGY[:1, None].astype(np.float32)), NPY, 422, "to 1.89 in channel 0"),
    "another shape": (npy(np.zeros((1, 3, 8, 8), np.float32)), NPY, 422, "N×1×8×8, got 1×3×8×8"),
    "no images in an array": (npy(np.zeros((0, 8, 8), np.uint8)), NPY, 422, "at least one image"),
    "a scalar": (npy(np.uint8(3)), NPY, 422, "expected uint8 images"),
    "too many in an array": (npy(FOGGY[:5]), NPY, 413, "at most 4 images"),
    "too large in an array": (npy(np.zeros((1, 200, 200), np.uint8)), NPY, 413, "pixels"),
    "no safetensors": (b"x" * 50, TENSORS, 422, "expected a safetensors file"),
    "safetensors that lie": ((2**40).to_bytes(8, "little") + b"{}", TENSORS, 422, "safetensors"),
    "two tensors": (save({"a": torch.zeros(1), "b": torch.zeros(1)}), TENSORS, 422, "got 2"),
    "no tensor": (save({}), TENSORS, 422, "got 0"),
    "integers": (save({"a": torch.zeros(1, 1, 8, 8).long()}), TENSORS, 422, "got int64"),
    "more than a body may have": (bytes(BODY + 1), "image/png", 413, "at most 100,000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_with_the_reason(served: Process, name: str) -> None:
    body, kind, status, words = REFUSED[name]
    got, problem = predict(served, body, kind)
    assert (got, type(problem)) == (status, dict), problem
    assert words in problem["detail"]
    assert problem["detail"].isprintable()
    assert predict(served, png(0), "image/png")[0] == 200


@pytest.mark.parametrize("query", ["?top=0", "?top=1001", "?top=x"])
def test_options_that_make_no_sense_are_refused(served: Process, query: str) -> None:
    status, problem = predict(served, png(0), "image/png", query=query)
    assert status == 422
    assert problem["detail"].startswith("query.top: ")


def connection(served: Process) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=30)


def test_a_body_without_length_is_cut_off_at_the_limit(served: Process) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield bytes(10_000)

    sending = connection(served)
    status = 413
    try:
        sending.request(
            "POST",
            "/predict",
            chunks(),
            {"Content-Type": "image/png"},
            encode_chunked=True,
        )
        status = sending.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        pass  # it does not listen to the end
    assert status == 413


@pytest.mark.parametrize("length", ["-1", "x", "9" * 30])
def test_lengths_that_are_none_are_refused(served: Process, length: str) -> None:
    sending = connection(served)
    sending.putrequest("POST", "/predict")
    sending.putheader("Content-Type", "image/png")
    sending.putheader("Content-Length", length)
    sending.endheaders()
    assert sending.getresponse().status in (400, 413)


def test_a_client_that_leaves_half_way_takes_nothing_with_it(served: Process) -> None:
    for _ in range(20):
        host = urlsplit(served.url)
        with socket.create_connection((host.hostname, host.port)) as leaving:
            leaving.sendall(
                b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
                b"Content-Length: 5000\r\n\r\n" + png(0)[:50]
            )
    assert predict(served, png(0), "image/png")[0] == 200
    assert "Traceback" not in served.complaints()


@contextmanager
def in_thread(**changes: Any) -> Iterator[str]:
    """A frozen server in this process, for limits that the command has no options for."""
    import uvicorn

    from acclimate.serve import Server, make_app
    from acclimate.serve.metrics import Metrics

    limits = settings(mode="frozen", **changes)
    metrics = Metrics(limits)
    app = make_app(Server(load_digits_model(), settings=limits, observer=metrics), metrics)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        runner = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            runner.should_exit = True
            thread.join()


def begin(url: str, length: int, sent: bytes) -> http.client.HTTPConnection:
    """A request that is not sent to its end."""
    sending = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    sending.putrequest("POST", "/predict")
    sending.putheader("Content-Type", "image/png")
    sending.putheader("Content-Length", str(length))
    sending.endheaders(sent)
    return sending


def test_a_client_that_is_too_slow_is_refused() -> None:
    with in_thread(body_seconds=0.2) as url:
        response = begin(url, 5000, png(0)[:50]).getresponse()
        assert response.status == 408
        assert json.load(response)["detail"] == "expected the whole request within 0.2 s"


def test_all_bodies_together_have_a_limit_and_their_room_comes_back() -> None:
    with in_thread(max_buffered=10_000) as url:
        held = begin(url, 20_000, bytes(9_990))
        headers = {"Content-Type": "image/png"}
        wait_for(lambda: call(f"{url}/predict", png(0), headers)[0] == 429)
        held.close()
        wait_for(lambda: call(f"{url}/predict", png(0), headers)[0] == 200)


def test_as_many_requests_as_may_wait_are_read_at_one_time() -> None:
    with in_thread(queue=2, max_images=2) as url:
        held = [begin(url, 5000, b"x") for _ in range(2)]
        headers = {"Content-Type": "image/png"}
        wait_for(lambda: call(f"{url}/predict", png(0), headers)[0] == 429)
        for each in held:
            each.close()
        wait_for(lambda: call(f"{url}/predict", png(0), headers)[0] == 200)


# The other routes.


def test_admin_routes_want_the_token(served: Process) -> None:
    for action in ("pause", "resume", "reset", "rollback"):
        url = f"{served.url}/{action}"
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}):
            status, problem = call(url, b"", headers, method="POST")
            assert (status, "Bearer TOKEN" in problem["detail"]) == (401, True)
        status, problem = served.operate(action)
        assert (status, problem["detail"]) == (409, "the server is frozen: it does not learn")
        assert call(url)[0] == 405


def test_without_a_token_admin_routes_are_off(tmp_path: Path) -> None:
    with running("--admin-token", "x", "--state", str(tmp_path)) as process:
        assert call(f"{process.url}/pause", b"", method="POST")[0] == 401
    environment = {k: v for k, v in os.environ.items() if k != "ACCLIMATE_ADMIN_TOKEN"}
    words = [sys.executable, "-m", "acclimate", "serve", "--model", "acclimate:digits"]
    with subprocess.Popen(
        [*words, "--port", "0"], stdout=subprocess.PIPE, text=True, env=environment
    ) as off:
        assert off.stdout is not None
        url = next(
            found[1] for line in off.stdout if (found := re.search(r"(http:\S+)/docs", line))
        )
        headers = {"Authorization": "Bearer "}
        status, problem = call(f"{url}/pause", b"", headers, method="POST")
        off.kill()
    assert status == 403
    assert "--admin-token TOKEN" in problem["detail"]


def test_metrics_count_what_happened(served: Process) -> None:
    predict(served, png(0), "image/png")
    predict(served, b"", "image/png")
    text = served.get("metrics")
    values = dict(re.findall(r"^(acclimate_\S+) (\S+)$", text, flags=re.MULTILINE))
    assert float(values['acclimate_responses_total{status="200"}']) >= 1
    assert float(values['acclimate_responses_total{status="422"}']) >= 1
    assert float(values["acclimate_answered_images_total"]) >= 1
    assert float(values["acclimate_queue_images"]) == 0
    for name in ("request_seconds", "batch_fill", "drift", "guard_events", "statistics_shift"):
        assert f"acclimate_{name}" in text


def test_health_readiness_and_versions(served: Process) -> None:
    health = served.get("health")
    assert (health["mode"], health["learning"], health["version"]) == ("frozen", "never", 0)
    assert served.get("ready") == {"ready": True}
    versions = served.get("versions")
    assert versions["serving"] == versions["versions"][0]["number"] == 0


# A server that learns, operated from outside.


@pytest.fixture(scope="module")
def learning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with running("--state", str(tmp_path_factory.mktemp("state"))) as process:
        yield process


def teach(process: Process, versions: int) -> None:
    wanted = process.get("versions")["candidate"] + versions
    until = time.monotonic() + 60
    while process.get("versions")["candidate"] < wanted:
        assert time.monotonic() < until, process.get("health")
        for start in range(0, 256, 32):
            assert process.predict(*range(start, start + 32))[0] == 200


def test_it_learns_pauses_rolls_back_and_resets(learning: Process) -> None:
    teach(learning, 3)
    assert learning.operate("pause")[1]["not_learning_because"] == "paused"
    before = learning.get("versions")["serving"]
    answer = learning.predict(0)[1]
    assert (answer["version"], answer["adapted"], answer["mode"]) == (before, True, "live")
    status, health = learning.operate("rollback?version=1")
    assert (status, health["version"]) == (200, before + 1)
    listed = learning.get("versions")["versions"][-1]
    assert (listed["cause"], listed["restored_from"]) == ("rollback", 1)
    assert learning.operate("rollback?version=999")[0] == 404
    assert learning.operate("rollback?version=-1")[0] == 422
    assert learning.operate("reset")[1]["version"] == before + 2
    assert learning.predict(0)[1]["adapted"] is False
    assert learning.operate("resume")[1]["learning"] == "yes"
    teach(learning, 1)
    assert 'acclimate_rollbacks_total{cause="rollback"} 1.0' in learning.get("metrics")


def test_two_hundred_clients_at_once_all_get_an_answer(learning: Process) -> None:
    def client(number: int) -> int:
        for _ in range(20):
            status, _ = learning.predict(number % 1000)
            if status != 429:
                return status
            time.sleep(0.1)
        return 429

    with ThreadPoolExecutor(200) as pool:
        assert set(pool.map(client, range(400))) == {200}


def test_what_is_too_much_is_refused_with_429() -> None:
    with running(
        "--mode", "frozen", "--queue", "4", "--max-images", "4", "--wait-ms", "300"
    ) as one:
        with ThreadPoolExecutor(40) as pool:
            found = list(pool.map(lambda n: one.predict(n)[0], range(40)))
        assert set(found) == {200, 429}
        assert one.predict(0)[0] == 200


def test_asked_to_end_it_answers_what_waits(tmp_path: Path) -> None:
    with running("--wait-ms", "1500", "--state", str(tmp_path)) as process:
        answers: list[int] = []
        clients = [
            threading.Thread(target=lambda n=n: answers.append(process.predict(n)[0]))
            for n in range(8)
        ]
        for client in clients:
            client.start()
        wait_for(lambda: process.get("health")["waiting"] == 8)
        assert process.end() == ""
        for client in clients:
            client.join()
        assert answers == [200] * 8
        assert process.process.returncode in (0, -signal.SIGTERM)


# The OpenAPI document.


def test_the_document_names_all_routes_and_kinds_of_bodies(served: Process) -> None:
    document = served.get("openapi.json")
    assert set(document["paths"]) == {
        *("/predict", "/versions", "/health", "/ready", "/metrics"),
        *("/pause", "/resume", "/reset", "/rollback"),
    }
    content = document["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert set(content) == {
        *("multipart/form-data", "application/json", "application/x-npy"),
        *("application/safetensors", "image/*"),
    }


def test_responses_are_those_the_document_describes(served: Process) -> None:
    """schemathesis makes requests from the document, right and wrong ones."""
    from hypothesis import HealthCheck, given
    from hypothesis import settings as trying

    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    wanted = [operation.ok() for operation in schema.get_all_operations()]
    assert len(wanted) == 9
    checks = [
        schemathesis.checks.not_a_server_error,
        schemathesis.specs.openapi.checks.status_code_conformance,
        schemathesis.specs.openapi.checks.content_type_conformance,
        schemathesis.specs.openapi.checks.response_schema_conformance,
    ]
    for operation in wanted:

        @given(case=operation.as_strategy())
        @trying(
            max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        def check(case: Any) -> None:
            case.call_and_validate(checks=checks)

        check()


# The command.


def test_mistakes_are_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def error(*words: str) -> str:
        assert main(["serve", *words]) == 2
        return capsys.readouterr().err

    digits = ("--model", "acclimate:digits", "--port", "0")
    assert "expected --model SPEC" in error()
    assert "unknown recipe 'entt'; did you mean 'ent'" in error(*digits, "--recipe", "entt")
    assert "expected queue >= 1, got 0" in error(*digits, "--queue", "0")
    assert "from 0 to 65535, got 70000" in error("--model", "acclimate:digits", "--port", "70000")
    assert "got an empty one" in error(*digits, "--admin-token", "")
    assert "no such folder or file" in error(*digits, "--reference", str(tmp_path / "none"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = error("--model", "acclimate:digits", "--port", port)
    assert "choose another --port" in message


def test_without_the_extra_the_error_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(["serve", "--model", "acclimate:digits", "--port", "0"]) == 2
    assert "pip install 'acclimate[serve]'" in capsys.readouterr().err


def test_the_weights_of_a_run_bring_its_temperature(tmp_path: Path) -> None:
    import acclimate

    model = acclimate.models.load("acclimate:digits")
    result = acclimate.adapt(model, FOGGY[:200], "ent", out=tmp_path / "run", progress=False)
    assert result.temperature is not None
    weights = str(tmp_path / "run" / "model.safetensors")
    with running("--mode", "frozen", "--weights", weights) as process:
        answer = process.predict(0)[1]
    assert answer["calibrated"]
    assert answer["predictions"][0]["probability"] == pytest.approx(
        float(result.probabilities[0]), abs=1e-3
    )
