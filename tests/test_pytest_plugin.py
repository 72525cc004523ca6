"""The pytest plugin, as a project of somebody else's uses it."""

from __future__ import annotations

import pytest

from tests.test_pillarbox import own_run

pytest_plugins = "pytester"

THEIRS = """
import pytest

@pytest.mark.pillarbox("dcell,2,1", plane="python")
class TestOnDCell:
    def test_it_reaches(self, pillarbox_lab):
        assert pillarbox_lab.ping("0.0", "2.1").ms > 0

    @pytest.mark.pillarbox("bcube,2,1", plane="python")
    def test_the_nearest_mark_counts(self, pillarbox_lab):
        assert pillarbox_lab.network == "bcube,2,1"

def test_no_mark(pillarbox_lab):
    pass
"""


def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *words: str
) -> pytest.RunResult:
    """Run their tests with the plugin and no other."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(THEIRS)
    plugin = ("-p", "pillarbox.experiments.apps.api.pytest_plugin", "-p", "no:cacheprovider")
    return pytester.runpytest_subprocess("--strict-markers", *plugin, *words)


@pytest.mark.root
def test_each_test_has_the_lab_of_its_mark(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_run(monkeypatch)
    done = run(pytester, monkeypatch)
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["*name a network: @pytest.mark.pillarbox*"])


def test_without_root_it_says_what_it_needs(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest(
        "from pillarbox.experiments.apps.api import pytest_plugin\n"
        "pytest_plugin.refusal = lambda: 'no user namespaces'"
    )
    done = run(pytester, monkeypatch, "-rs", "-k", "reaches")
    done.assert_outcomes(skipped=1, deselected=2)
    done.stdout.fnmatch_lines(["*a lab needs root: run pytest with sudo (no user namespaces)*"])


def test_mark_is_explained(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(pytester, monkeypatch, "--markers")
    done.stdout.fnmatch_lines(["@pytest.mark.pillarbox(network, *"])
