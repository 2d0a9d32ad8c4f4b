"""Texts: real ones where they are at hand, and generated ones of the kinds that real work consists of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

SHARED_DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real outputs with their expected labels; it is not part of the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip("Real outputs (../shared/data) are not here.")
    return SHARED_DATA
