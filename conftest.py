"""What cannot be imported here is not collected: Triton comes with PyTorch for NVIDIA's GPUs,
Lightning and what the server is made of with extras."""

from __future__ import annotations

from importlib.util import find_spec

NEEDS = {
    "triton": "src/acclimate/acceleration/triton_*.py",
    "lightning": "src/acclimate/lightning.py",
    "fastapi": "src/acclimate/serve/app.py",
    "prometheus_client": "src/acclimate/serve/metrics.py",
}

collect_ignore_glob = [files for package, files in NEEDS.items() if find_spec(package) is None]
