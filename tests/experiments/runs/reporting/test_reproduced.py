import json
from dataclasses import replace

import pytest

from pillarbox.experiments.runs.reporting.reproduced import markdown
from pillarbox.experiments.runs.reporting.reproduced.drawing import (
    draw_reproduction,
    reproduction_figure,
    table_of,
)
from pillarbox.experiments.runs.reporting.reproduced.page import keep, write_page
from pillarbox.experiments.runs.reporting.reproduced.result import DIFFERS, Point, Reproduction

POINTS = (
    Point("SP", 1.0, ours=0.45, paper=0.44, low=0.40, high=0.50, ideal=0.3),
    Point("SP", 2.0, ours=0.66, paper=None),
    Point("<b>MP</b>", 1.0, ours=None, paper=0.1),
)


def made(kind="lines", points=POINTS, **more):
    return Reproduction(
        "some-fig1",
        "Failures",
        "servers",
        "ratio",
        points,
        DIFFERS,
        ("<i>why</i>",),
        kind=kind,
        **more,
    )


def lines(figure):
    return [
        (line.get_markerfacecolor(), list(line.get_xdata()), list(line.get_ydata()))
        for line in figure.axes[0].lines
        if len(line.get_xdata())
    ]


def test_papers_points_are_hollow_and_ours_filled():
    drawn = lines(reproduction_figure(made()))
    assert ("none", [1.0], [0.44]) in drawn
    assert ("none", [1.0], [0.1]) in drawn
    ours = [fill for fill, *xy in drawn if xy == [[1.0, 2.0], [0.45, 0.66]]]
    assert ours and ours[0] != "none"
    assert [[1.0, 1.0], [0.40, 0.50]] in [xy for _, *xy in drawn]


def test_bars_stand_in_groups_and_hold_ours():
    figure = reproduction_figure(made("bars"))
    assert [patch.get_height() for patch in figure.axes[0].patches] == [0.45, 0.66]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1", "2"]


def test_legend_says_what_there_is():
    figure = reproduction_figure(made())
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["SP", "<b>MP</b>", "the paper's", "ours", "ideal"]


def test_table_leaves_out_columns_without_values():
    columns, rows = table_of(made(points=POINTS[1:]))
    assert columns == ["", "servers", "paper", "ours"]
    assert rows == [["SP", "2", "", "0.660"], ["<b>MP</b>", "1", "0.100", ""]]


def test_table_tells_the_ends_of_an_interval_apart_as_near_as_the_papers_number_is():
    near = Point("DCell", "mean", ours=11.3024, paper=11.31, low=11.2861, high=11.3187, draws=8)
    alike = Point("DCell", "all", ours=11.289, paper=11.29, low=11.289, high=11.289 + 1e-14)
    _, rows = table_of(made(points=(near, alike)))
    assert [row[2:] for row in rows] == [
        ["11.31", "11.30", "11.29 to 11.32"],
        ["11.29", "11.29", ""],
    ]


@pytest.mark.parametrize("kind", ["lines", "bars", "table"])
@pytest.mark.parametrize("log", [False, True])
def test_every_kind_is_two_files(kind, log, tmp_path):
    files = draw_reproduction(made(kind, log_y=log, log_x=log), tmp_path)
    assert [file.name for file in files] == ["some-fig1.svg", "some-fig1.png"]
    if kind == "table":
        assert "0.450" in files[0].read_text()


def test_page_shows_all_that_a_folder_keeps_and_escapes_what_it_is_told(tmp_path):
    keep(made(), tmp_path)
    write_page(tmp_path)
    keep(replace(made("table"), name="some-table"), tmp_path)  # later, by another command
    page, missing = write_page(tmp_path)
    text = page.read_text()
    assert missing == []
    assert "&lt;i&gt;why&lt;/i&gt;" in text and "<i>why" not in text
    assert text.count("<svg") == 1 and text.count("<section") == 2
    assert "0.450" in text and "differs" in text


def test_page_names_what_it_cannot_read(tmp_path):
    keep(made(), tmp_path)
    broken = tmp_path / "broken-fig2"
    broken.mkdir()
    (broken / "broken-fig2.json").write_text('{"name": "broken-fig2"}')
    page, missing = write_page(tmp_path)
    assert len(missing) == 1 and "broken-fig2 is left out" in missing[0]
    assert "broken-fig2 is left out" in page.read_text() and page.read_text().count("<svg") == 1


@pytest.mark.parametrize("kind", ["lines", "bars", "table"])
def test_points_come_back_from_the_disk(kind):
    once = made(kind, rows=POINTS[:1], log_x=True, notes=("a", "b"))
    assert Reproduction.from_json(json.loads(json.dumps(once.as_json()))) == once


def test_markdown_links_the_errata_of_reasons():
    heading = "Wires of the fat-tree (Guo 2009, Table 1)"
    wrong = replace(made(), reasons=(f"ours is 384. Erratum: {heading}.",), errata=(heading,))
    link = f"[{heading}](errata.md#wires-of-the-fat-tree-guo-2009-table-1)"
    assert f"- ours is 384. Erratum: {link}." in markdown.page([wrong])


def test_results_without_errata_are_read():
    older = made().as_json()
    del older["errata"]
    assert Reproduction.from_json(older) == made()


def test_markdown_lists_long_notes_of_several_figures_once():
    long, short = "each run fails other servers" * 4, "seed 1"
    first = made(notes=("first only", long, short))
    second = replace(made(notes=(long, short)), name="some-fig2")
    text = markdown.page([first, second])
    assert text.count(f"1. {long}.") == text.count(long) == 1
    assert "first only. seed 1. See [notes](#notes-on-several-figures): 1." in text
    assert text.endswith("\n\nseed 1. See [notes](#notes-on-several-figures): 1.\n")
