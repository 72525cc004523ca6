"""How Pillarbox is packaged; docs/adr/0001-packaging.md says why."""

from setuptools import setup

DASK = ["dask[distributed]>=2024.1"]  # sweeps of the simulator over machines
DOCS = ["mkdocs-material>=9.6", "mkdocstrings-python>=2.0"]  # the guide as a site

setup(
    name="pillarbox",
    version="0.1.0",
    description="A testbed in a box for server-centric data center networks",
    python_requires=">=3.10",
    # Named one by one, with an explicit root: an editable install is then a plain path entry
    # that editors and type checkers can follow.
    packages=[
        "topos",
        "topos.base",
        "topos.structures",
        "hosts",
        "hosts.base",
        "hosts.bcube",
        "hosts.dcell",
        "hosts.dpillar",
        "hosts.ficonn",
        "hosts.live",
        "hosts.memory",
        "hosts.wire",
        "experiments",
        "experiments.benches",
        "experiments.capture",
        "experiments.catalogue",
        "experiments.commands",
        "experiments.comparison",
        "experiments.doctor",
        "experiments.drawing",
        "experiments.emulation",
        "experiments.fluid",
        "experiments.grading",
        "experiments.grading.labs",
        "experiments.plans",
        "experiments.reporting",
        "experiments.reproductions",
        "experiments.runs",
        "experiments.simulator",
        "experiments.simulator.adapting",
        "experiments.simulator.around",
        "experiments.simulator.paths",
        "experiments.traffic",
        "experiments.trust",
    ],
    package_dir={"": "."},
    package_data={
        "experiments.capture": ["*.lua"],
        "experiments.reporting": ["templates/*"],
        "hosts.live": ["*.c", "*.h"],  # compiled where they are to run
    },
    install_requires=[
        "click>=8.1",
        "highspy>=1.7",
        "jinja2>=3.1",
        "matplotlib>=3.7",
        "networkx>=3.0",
        "numba>=0.58",
        "numpy>=1.24",
        "pandas>=2.0",
        "pyarrow>=14",
        "rich>=13",
        "scipy>=1.10",
        "tomli>=2.0; python_version < '3.11'",
    ],
    extras_require={
        "test": [
            *DASK,
            *DOCS,
            "hypothesis>=6.100",
            "import-linter>=2.1",
            "mypy>=1.10",
            "pytest>=8.2",
            "pytest-xdist>=3.5",
            "pyyaml>=6.0",
            "ruff>=0.6",
        ],
        "bench": ["fnss>=0.9.1"],
        "dask": DASK,
        "docs": DOCS,
        "ovs": ["os-ken>=3.1"],  # the controller of switches on Open vSwitch
    },
    entry_points={"console_scripts": ["pillarbox = experiments.cli:main"]},
)
