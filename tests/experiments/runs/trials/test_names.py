"""Names of servers in records: one form in Parquet, in CSV and in frames, and readers of both."""

from __future__ import annotations

import io
from pathlib import Path

import pandas
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.runs.trials import records, schema
from pillarbox.experiments.runs.trials.experiment_run import run
from pillarbox.experiments.runs.trials.records import load, load_with_full_names
from pillarbox.topos.base.spec import parse
from tests.experiments.runs.trials.test_experiment_run import EXPERIMENT, FakeTrials

EXAMPLES = [spec for kind in topos.kinds() for spec in topos.network(kind).examples]


def test_one_name_of_a_server_in_parquet_csv_and_frames(tmp_path: Path):
    folder = run(EXPERIMENT, tmp_path / "run", measure=FakeTrials()).folder
    in_csv, in_parquet = (
        read(folder / f"flows.{suffix}").set_index(["trial", "flow"]).sort_index()
        for suffix, read in (("csv", pandas.read_csv), ("parquet", pandas.read_parquet))
    )
    in_python = load_with_full_names(folder).flows.set_index(["trial", "flow"]).sort_index()
    for name in schema.ADDRESSES["flows"]:
        assert list(in_csv[name]) == list(in_parquet[name]) == list(in_python[name])
    joined = in_csv.merge(in_parquet, on=["system", "repeat", "source", "destination"])
    assert len(joined) == len(in_csv) == len(in_parquet)


def test_records_with_short_addresses_are_read(tmp_path: Path):
    """Up to version 3 the tables of a trial had short addresses."""
    folder = run(EXPERIMENT, tmp_path / "run", measure=FakeTrials()).folder
    before = load_with_full_names(folder).flows, load(folder).flows
    for file in folder.glob("trials/*/flows.parquet"):
        table = records.short_names(pandas.read_parquet(file), "flows")
        assert not table.source.str.contains("[a-z]").any()
        table.to_parquet(file, index=False)
    for wanted, found in zip(
        before, (load_with_full_names(folder).flows, load(folder).flows), strict=True
    ):
        pandas.testing.assert_frame_equal(wanted, found)


@given(st.data())
def test_full_names_survive_csv_that_is_read_without_options(data: st.DataObject):
    topology = parse(data.draw(st.sampled_from(EXAMPLES)))
    servers = st.integers(0, topology.servers - 1).map(topology.address)
    paths = st.none() | st.lists(servers, min_size=1, max_size=4).map(" ".join)
    columns = {"source": servers, "destination": servers, "path": paths}
    rows = data.draw(st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=6))
    short = pandas.DataFrame(rows, columns=[*columns], dtype="string")
    named = records.full_names(short, "flows", topology.kind)
    assert records.full_names(named, "flows", topology.kind).equals(named)
    again = pandas.read_csv(io.StringIO(named.to_csv(index=False))).astype("string")
    pandas.testing.assert_frame_equal(again, named)
    pandas.testing.assert_frame_equal(records.short_names(again, "flows"), short)
    assert [topology.node(name) for name in named["source"]] == [
        topology.node(name) for name in short["source"]
    ]
