"""Digests of code change with code, not with what is written about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.experiments.base import source_code
from pillarbox.experiments.base.source_code import code_digest, python_code

SOURCE = '''"""A module."""

# a constant
ONE = 1


class Number:
    """A number."""

    text = """
# no comment
"""

    async def value(self) -> int:
        """Return the
        value."""
        return ONE
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    own = tmp_path / "code_to_hash"
    (own / "live").mkdir(parents=True)
    (own / "__init__.py").write_text(SOURCE)
    (own / "live" / "__init__.py").touch()
    (own / "live" / "forward.c").write_text("int one;")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield own
    for name in [name for name in sys.modules if name.startswith("code_to_hash")]:
        del sys.modules[name]


def digest(*without: str) -> str:
    code_digest.cache_clear()
    return code_digest("code_to_hash", without=without)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("# a constant\n", "", True),
        ("A module.", "Another text.\n\nOf two paragraphs.", True),
        ("Return the\n        value.", "Return it.", True),
        ("ONE = 1\n", "ONE = 1\n\n\n", True),
        ("ONE = 1", "ONE = 2", False),
        ("    async def", "    def", False),
        ("return ONE", "return -ONE", False),
    ],
)
def test_only_code_changes_the_digest(package: Path, old: str, new: str, same: bool) -> None:
    before = digest()
    assert old in SOURCE
    (package / "__init__.py").write_text(SOURCE.replace(old, new))
    assert (digest() == before) == same


def test_c_is_code_unless_its_package_is_left_out(package: Path) -> None:
    before, without = digest(), digest("code_to_hash.live")
    (package / "live" / "forward.c").write_text("int two;")
    assert digest() != before
    assert digest("code_to_hash.live") == without != before


@pytest.mark.parametrize(
    ("statement", "included"),
    [
        ("import code_to_hash.sub.deep as deep", True),
        ("from code_to_hash.sub import deep", True),
        ("def later():\n    if ONE:\n        from code_to_hash.sub.deep import THREE", True),
        ("from code_to_hash.sub.near import deep", True),  # which imports it itself
        ("from code_to_hash.sub import near", True),
        ("import code_to_hash.live", False),
        ("TYPE_CHECKING = ONE = 0\nif TYPE_CHECKING:\n    import code_to_hash.sub.deep", False),
        ("import code_to_hash.sub.other", False),
        ("import hashlib", False),
    ],
)
def test_imported_modules_belong_to_it(
    package: Path, monkeypatch: pytest.MonkeyPatch, statement: str, included: bool
) -> None:
    monkeypatch.setattr(source_code, "PRODUCT", "code_to_hash")
    (package / "sub").mkdir()
    for name in ("__init__", "other"):
        (package / "sub" / f"{name}.py").touch()
    (package / "sub" / "near.py").write_text("from code_to_hash.sub import deep")
    (package / "live" / "__init__.py").write_text("import code_to_hash.sub.deep")
    (package / "user.py").write_text(statement)
    (package / "sub" / "deep.py").write_text("THREE = 3")

    def now() -> str:
        code_digest.cache_clear()
        return code_digest("code_to_hash.user", without=("code_to_hash.live",), imports=True)

    before, alone = now(), code_digest("code_to_hash.user")
    (package / "sub" / "deep.py").write_text("THREE = 4")
    assert (now() != before) == included
    assert code_digest("code_to_hash.user") == alone


def test_new_and_renamed_files_change_the_digest(package: Path) -> None:
    before = digest()
    (package / "more.py").write_text("")
    more = digest()
    (package / "more.py").rename(package / "other.py")
    assert len({before, more, digest()}) == 3


def test_code_without_what_is_written_about_it_is_python() -> None:
    compile(python_code(SOURCE.replace("        return ONE\n", "        return ONE\n")), "", "exec")
    assert "constant" not in python_code(SOURCE) and "value." not in python_code(SOURCE)
