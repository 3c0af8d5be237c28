"""What cannot be imported here is not collected: Triton comes with PyTorch for NVIDIA's GPUs."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["src/acclimate/acceleration/triton_*.py"]
