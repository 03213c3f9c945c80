from __future__ import annotations

import os

import numpy as np
import pytest

import sparsek


def _gpu_backends() -> set[str]:
    return {row.name for row in sparsek.backends() if row.available and row.name != "cpu"}


def pytest_collection_modifyitems(items) -> None:
    found = _gpu_backends()
    for item in items:
        if item.get_closest_marker("gpu") and not found:
            reasons = "; ".join(f"{row.name}: {row.reason}" for row in sparsek.backends() if row.name != "cpu")
            item.add_marker(pytest.mark.skip(reason=f"no GPU backend here ({reasons})"))


def pytest_report_header() -> str:
    rows = (f"{row.operation}/{row.name} {'yes' if row.available else 'no'}" for row in sparsek.backends())
    return f"sparsek {sparsek.__version__}: " + ", ".join(rows)


@pytest.fixture
def rng(request) -> np.random.Generator:
    """Fresh random inputs for every run; the seed is printed when a test fails."""
    seed = int(os.environ.get("SPARSEK_TEST_SEED", int.from_bytes(os.urandom(4), "little")))
    print(f"SPARSEK_TEST_SEED={seed}")
    return np.random.default_rng(seed)
