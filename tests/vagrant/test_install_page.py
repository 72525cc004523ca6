"""What docs/install.md says about the lab machine is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pillarbox.experiments.lab.doctor.computer import REPORT_PORT

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs" / "install.md").read_text()
SCRIPTS = ("provision.sh", "debian_packages.sh")
SPOKEN = "".join((CHECKOUT / "vagrant" / name).read_text() for name in SCRIPTS)


def column(heading: str) -> list[str]:
    """Return what is written as code in the first cells of the table below a heading."""
    table = PAGE.split(heading, 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)


@pytest.mark.parametrize("sentence", column("| it says |"))
def test_script_says_what_the_page_explains(sentence: str) -> None:
    spoken = re.sub(r' ?"\$\w+"? ?| ?\$\w+', "…", SPOKEN)
    assert sentence.replace(" …", "…").replace("… ", "…") in spoken.replace("… ", "…")


def test_page_names_the_settings_of_the_vagrantfile() -> None:
    vagrantfile = (CHECKOUT / "vagrant" / "Vagrantfile").read_text()
    used = re.findall(r'ENV\.fetch\("(\w+)", "([^"]*)"', vagrantfile)
    assert set(column("| variable |")) == {name for name, _ in used} | {"PILLARBOX_REPORT_PORT"}
    usual = dict(re.findall(r"^\| `(\w+)` \|.*\| (\w+) \|$", PAGE, re.MULTILINE))
    assert usual["PILLARBOX_REPORT_PORT"] == str(REPORT_PORT)
    for name in ("PILLARBOX_CPUS", "PILLARBOX_MEMORY_MIB"):
        assert usual[name] == dict(used)[name]


def test_page_leads_to_files_and_headings_that_are_there() -> None:
    headings = {
        re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^##+ (.*)$", PAGE, re.MULTILINE)
    }
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        if link.startswith("#"):
            assert link[1:] in headings
        elif "://" not in link:
            assert (CHECKOUT / "docs" / link).exists(), link
    for name in re.findall(r"(?<!/)\bvagrant/[\w./-]+", PAGE):
        assert (CHECKOUT / name).exists(), name


def test_commands_of_the_page_are_those_of_the_files() -> None:
    for file in ("lima.yaml", "container/Dockerfile"):
        comment = (CHECKOUT / "vagrant" / file).read_text().split("\n#\n")[1]
        for line in comment.splitlines():
            if line.startswith("#   "):
                first, _, last = line[4:].partition(" -p ")
                assert first in PAGE, first
                assert last in PAGE, last
