import pytest
from matplotlib.colors import to_hex

from pillarbox import topos
from pillarbox.experiments.runs.reporting import load_map, series, style
from pillarbox.experiments.runs.reporting.drawing.shapes import Shapes
from pillarbox.experiments.runs.reporting.figures import (
    completion_figure,
    faults_figure,
    goodput_figure,
    links_figure,
    throughput_figure,
)
from pillarbox.experiments.runs.reporting.run_reading import read


@pytest.fixture(scope="module")
def found(run_folder):
    return read(run_folder)


@pytest.fixture(scope="module")
def over_time(found):
    intervals = found.tables["intervals"]
    goodput = series.goodput_over_time(intervals, series.bin_width_s(intervals))
    means = series.mean_of_valid(goodput, "at_s", "goodput_bps")
    ideals = series.of_first_trials(series.ideal_over_time(found.records))
    return goodput, means, ideals, series.fault_marks(found.tables["events"]), found.systems


def entries(figure):
    """Return the legend's texts, of the figure or of its axes."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    return [text.get_text() for legend in legends if legend for text in legend.get_texts()]


def test_goodput_names_means_ideals_invalid_trials_and_faults(over_time):
    figure = goodput_figure(*over_time)
    assert entries(figure) == [
        "bcube,2,1 bsr, mean of 2",
        "bcube,2,1 bsr: ideal",
        "tree,2,2",
        "tree,2,2 (invalid)",
        "tree,2,2: ideal",
        "fault or repair",
    ]
    assert figure.axes[0].get_ylabel() == "goodput (Mbit/s)"


def test_invalid_trial_is_grey_and_valid_ones_are_not(over_time):
    goodput = over_time[0]
    lines = goodput_figure(*over_time).axes[0].lines
    invalid = goodput[~goodput["valid"].astype(bool)]["goodput_bps"].tolist()
    grey = [line for line in lines if to_hex(line.get_color()) == style.INVALID.lower()]
    assert [list(line.get_ydata()) for line in grey] == [invalid]


def test_faults_have_numbers_and_spans(over_time):
    goodput, _, ideals, marks, systems = over_time
    faulty = series.of_trials(goodput, marks["trial"])
    figure = faults_figure(faulty, ideals, marks, systems)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["bcube,2,1 bsr, trial 1"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "2"]
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in figure.axes[0].patches]
    assert spans == [pytest.approx(span) for span in ((0.5, 0.55), (0.55, 0.7), (0.7, 1.1))]
    looks, legend = (
        [(patch.get_hatch(), patch.get_facecolor(), patch.get_edgecolor()) for patch in patches]
        for patches in (figure.axes[0].patches, figure.legends[0].get_patches())
    )
    assert legend == looks and [hatch for hatch, *_ in looks] == [None, style.HATCH, None]
    (_, dark, _), (_, hatched, lines), (_, pale, _) = looks
    assert dark[3] > 4 * pale[3] and (hatched[3], lines[3]) == (0, 1)  # opacities


def test_no_faults_no_figure(over_time):
    goodput, _, ideals, marks, systems = over_time
    assert faults_figure(goodput, ideals, marks.iloc[:0], systems) is None


def test_throughput_names_failures(found):
    figure = throughput_figure(series.throughput_shares(found.tables["flows"]), found.systems)
    names = ["bcube,2,1 bsr, 1 failed", "tree,2,2", "tree,2,2 (invalid)"]
    assert entries(figure) == names


def test_completion_has_a_line_for_each_trial_and_ideal(found):
    flows, intervals = found.tables["flows"], found.tables["intervals"]
    done = series.flows_done(flows), series.bytes_done(intervals, flows)
    figure = completion_figure(*done, series.ideal_done(flows), found.systems)
    assert [len(axes.lines) for axes in figure.axes] == [4 + 2, 4]
    assert "tree,2,2 (invalid)" in entries(figure)


def test_links_of_invalid_systems_are_hatched(found):
    links = found.tables["links"]
    links = links.assign(valid=links["system"] != "tree,2,2")
    loads = series.link_loads(links, found.networks)
    figure = links_figure(loads, series.load_spread(loads), found.systems)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["bcube,2,1 bsr", "tree,2,2 (invalid)"]
    hatches = [{patch.get_hatch() for patch in axes.patches} for axes in figure.axes]
    assert hatches == [{None}, {style.HATCH}]
    assert "level 1: 4 links" in " ".join(entries(figure))


def test_cables_are_coloured_by_their_busier_direction(found):
    topology = topos.parse("bcube,2,1")
    loads = series.link_loads(found.tables["links"], found.networks)
    loads = loads[loads["system"] == "bcube,2,1 bsr"].assign(load=0.1)
    loads.loc[(loads["from"] == "s0") & (loads["to"] == "0.0"), "load"] = 0.95
    figure = load_map.network_figure(topology, loads)
    drawn = [artist for artist in figure.axes[0].artists if isinstance(artist, Shapes)]
    edges = {shape.name: shape.edge for artist in drawn for shape in artist.shapes}
    cables = {name: colour for name, colour in edges.items() if "cable" in name}
    assert cables.pop("cable-h0-eth0-s0-eth0") == style.RAMP[-1]
    assert set(cables.values()) == {style.RAMP[0]}
    assert "80 to 100 %" in [text.get_text() for text in figure.axes[0].texts]


def test_network_too_large_is_not_drawn(found):
    loads = series.link_loads(found.tables["links"], found.networks)
    assert load_map.network_figure(topos.parse("bcube,8,3"), loads) is None


@pytest.mark.parametrize("name", ["_hidden", "cost $x^2$", "line\nbreak", "x" * 200, "\\frac{"])
def test_any_name_can_be_drawn(found, name, tmp_path):
    flows = found.tables["flows"].assign(system=name)
    figure = throughput_figure(series.throughput_shares(flows), [name])
    assert len(entries(figure)) == 2
    assert max(map(len, entries(figure))) < 80
    svg, png = style.save(figure, tmp_path, "figure")
    assert svg.read_bytes()[:5] == b"<?xml" and png.read_bytes()[1:4] == b"PNG"


def test_faults_of_a_trial_without_traffic_are_drawn_all_the_same(over_time):
    goodput, _, ideals, marks, systems = over_time
    marks = marks.assign(system="tree,2,2", trial=99)
    figure = faults_figure(series.of_trials(goodput, marks["trial"]), ideals, marks, systems)
    assert figure is None  # there is nothing to draw them over
    figure = faults_figure(goodput[goodput["trial"] == 0], ideals, marks, systems)
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "2"]
