import pytest

from experiments.reporting.figures import draw_reproduction
from experiments.reporting.page import write_reproductions
from experiments.reporting.reproduced import reproduction_figure, table_of
from experiments.reproductions.result import DIFFERS, Point, Reproduction

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


@pytest.mark.parametrize("kind", ["lines", "bars", "table"])
@pytest.mark.parametrize("log", [False, True])
def test_every_kind_is_two_files(kind, log, tmp_path):
    files = draw_reproduction(made(kind, log_y=log, log_x=log), tmp_path)
    assert [file.name for file in files] == ["some-fig1.svg", "some-fig1.png"]
    if kind == "table":
        assert "0.450" in files[0].read_text()


def test_page_of_several_escapes_what_it_is_told(tmp_path):
    page = write_reproductions([made(), made("table")], tmp_path).read_text()
    assert "&lt;i&gt;why&lt;/i&gt;" in page and "<i>why" not in page
    assert page.count("<svg") == 1
    assert "0.450" in page and "differs" in page
