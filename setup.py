"""How Pillarbox is packaged; docs/adr/0001-packaging.md and 0028-one-import-name.md say why."""

import gzip
import os
import shutil
import tarfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
# Time of all files in sdist and wheel, so that the same sources give the same bytes.
os.environ.setdefault("SOURCE_DATE_EPOCH", "1767225600")  # 2026-01-01
SHEETS = ROOT / "vagrant" / "labs"  # beside the packages, where students find them in a checkout

# The newest versions allowed are those that the tests ran with; vagrant/lock.py picks exact ones.
# What live labs, records and reports need; what the simulator and comparisons need; all of it.
TRACES = "protobuf>=4.25,<8"  # Chakra traces of training iterations
LAB = [
    "aiohttp>=3.9,<4",
    "highspy>=1.7,<2",
    "jinja2>=3.1,<4",
    "matplotlib>=3.7,<4",
    "networkx>=3.0,<4",
    "pandas>=2.0,<4",
    TRACES,
    "pyarrow>=14,<27",
    "rich>=13,<16",
    "scipy>=1.10,<2",
]
SIM = [
    "highspy>=1.7,<2",
    "matplotlib>=3.7,<4",
    "networkx>=3.0,<4",
    "numba>=0.58,<1",
    "pandas>=2.0,<4",
    TRACES,
    "pyarrow>=14,<27",
    "scipy>=1.10,<2",
]
LIVE = sorted({*LAB, *SIM})
# Sweeps of the simulator, and live networks, over machines; cryptography makes the keys of TLS.
DASK = ["dask[distributed]>=2024.1,<2027", "cryptography>=41,<51"]
# The guide as a site; Zensical 0.1 is untested, and 0.0 needs Python 3.11.
DOCS = ["zensical>=0.0.73,<0.1; python_version >= '3.11'", "mkdocstrings-python>=2.0,<3"]


# Packages below `pillarbox`, named one by one: what is not named is not installed.
PACKAGES = [
    "topos",
    "topos.base",
    "topos.structures",
    "hosts",
    "hosts.base",
    "hosts.bcube",
    "hosts.dcell",
    "hosts.dpillar",
    "hosts.ficonn",
    "hosts.linux",
    "hosts.live",
    "hosts.memory",
    "hosts.wire",
    "experiments",
    "experiments.apps",
    "experiments.apps.api",
    "experiments.apps.cluster",
    "experiments.apps.page",
    "experiments.apps.papers",
    "experiments.apps.papers.bcube",
    "experiments.apps.papers.bml",
    "experiments.apps.papers.dcell",
    "experiments.apps.papers.dpillar",
    "experiments.apps.papers.ficonn",
    "experiments.apps.papers.ours",
    "experiments.apps.papers.shared",
    "experiments.apps.papers.today",
    "experiments.apps.teaching",
    "experiments.apps.teaching.labs",
    "experiments.base",
    "experiments.cli",
    "experiments.cli.commands",
    "experiments.lab",
    "experiments.lab.controls",
    "experiments.lab.doctor",
    "experiments.lab.emulation",
    "experiments.lab.linux",
    "experiments.lab.observe",
    "experiments.lab.traffic",
    "experiments.models",
    "experiments.models.arrivals",
    "experiments.models.comparison",
    "experiments.models.fluid",
    "experiments.models.packets",
    "experiments.models.packets.controls",
    "experiments.models.simulator",
    "experiments.models.simulator.adapting",
    "experiments.models.simulator.around",
    "experiments.models.simulator.paths",
    "experiments.models.workloads",
    "experiments.models.workloads.collectives",
    "experiments.models.workloads.training",
    "experiments.runs",
    "experiments.runs.control",
    "experiments.runs.plans",
    "experiments.runs.reporting",
    "experiments.runs.reporting.drawing",
    "experiments.runs.reporting.reproduced",
    "experiments.runs.trials",
    "experiments.runs.trust",
]


class Build(build_py):
    """Add the lab sheets, for `pillarbox grade`, and the folder of the old import names."""

    def run(self):
        super().run()
        site, packages = self.build_lib, "pillarbox"
        if self.editable_mode:
            site, packages = self.get_finalized_command("install").install_lib, str(ROOT.resolve())
        else:
            sheets = Path(site, "pillarbox", "experiments", "apps", "teaching", "sheets")
            shutil.copytree(SHEETS, sheets, dirs_exist_ok=True)
        Path(site, "pillarbox-old-names.pth").write_text(f"{packages}\n", encoding="utf-8")


class Sdist(sdist):
    """Write the archive with sorted names, fixed times, numeric owners and equal modes."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, **_):  # noqa: A002
        name, epoch = f"{base_name}.tar.gz", int(os.environ["SOURCE_DATE_EPOCH"])

        def normalized(entry):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = epoch, 0, 0, "", ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        with (
            Path(name).open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            archive.add(base_dir, filter=normalized)  # folders are read in the order of names
        return name


class EditableWheel(editable_wheel):
    """Install src/ as a plain path entry, which editors and type checkers can follow."""

    def finalize_options(self):
        self.distribution.packages, self.distribution.package_dir = ["pillarbox"], {"": "src"}
        super().finalize_options()


setup(
    name="pillarbox",
    version="1.0.0",
    description="A testbed in a box for server-centric data center networks",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The Pillarbox developers",
    license="MIT",
    keywords="data center networks, DPillar, DCell, BCube, FiConn, emulation, simulation, Mininet",
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Environment :: Console",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering",
        "Topic :: System :: Networking",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=["pillarbox", *(f"pillarbox.{name}" for name in PACKAGES)],
    package_dir={
        "pillarbox": "src/pillarbox",
        **{f"pillarbox.{folder}": folder for folder in ("topos", "hosts", "experiments")},
    },
    cmdclass={"build_py": Build, "editable_wheel": EditableWheel, "sdist": Sdist},
    package_data={
        "pillarbox": ["py.typed"],
        "pillarbox.experiments.lab.observe": ["*.lua"],
        "pillarbox.experiments.apps.page": ["web/*"],
        "pillarbox.experiments.apps.papers": ["*/*.toml"],
        "pillarbox.experiments.lab.controls": ["*.c", "*.h"],
        "pillarbox.experiments.lab.linux": ["*.c"],
        "pillarbox.experiments.runs.reporting": ["templates/*"],
        "pillarbox.hosts.live": ["*.c", "*.h"],  # compiled where they are to run
    },
    # What questions about networks, paths and protocols need: `topo`, `path`, `check-router`.
    install_requires=[
        "click>=8.1,<9",
        "numpy>=1.24,<3",
        "tomli>=2.0,<3; python_version < '3.11'",
    ],
    extras_require={
        "sim": SIM,
        "lab": LAB,
        "live": LIVE,
        "test": [
            *LIVE,
            *DASK,
            *DOCS,
            "hypothesis>=6.100,<7",
            "import-linter>=2.1,<3",
            "mypy>=1.10,<3",
            "pytest>=8.2,<10",
            "pyyaml>=6.0,<7",
            "ruff>=0.6,<1",
        ],
        "bench": ["fnss>=0.9.1,<1"],
        "dask": [*SIM, *DASK],
        "docs": DOCS,
        "ovs": ["os-ken>=3.1,<5"],  # the controller of switches on Open vSwitch
    },
    entry_points={
        "console_scripts": ["pillarbox = pillarbox.experiments.cli.main:main"],
        "pytest11": ["pillarbox = pillarbox.experiments.apps.api.pytest_plugin"],
    },
)
