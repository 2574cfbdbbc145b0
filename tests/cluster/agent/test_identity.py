import logging
import re
from pathlib import Path

import pytest

from fairlead.cluster.agent.agent import _identity
from fairlead.errors import ConfigError


def test_an_identity_stays(tmp_path: Path) -> None:
    first = _identity(tmp_path)
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert _identity(tmp_path) == first


@pytest.mark.parametrize(
    "damage", [b"", b"0123abcd", b"\0" * 16, b"\xff" * 16, b"no identity here"]
)
def test_a_damaged_identity_is_made_anew_with_a_warning(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "identity").write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        made = _identity(tmp_path)
    assert re.fullmatch("[0-9a-f]{16}", made)
    assert "identity: is damaged" in caplog.text
    assert _identity(tmp_path) == made


def test_an_identity_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "identity").mkdir()
    with pytest.raises(ConfigError, match="identity: is not a regular file"):
        _identity(tmp_path)
