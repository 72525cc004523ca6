"""The lab machine in all its forms: each tool can read its file, and all lead to one script."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from pillarbox.experiments.lab.doctor.computer import REPORT_PORT

CHECKOUT = Path(__file__).resolve().parents[2]
VAGRANT = CHECKOUT / "vagrant"
VAGRANTFILE = VAGRANT / "Vagrantfile"
SCRIPT = "vagrant/provision.sh"
PLACE = "/pillarbox"

# What each plugin's configuration calls the processors and the memory, and the default values.
SIZES: dict[str, dict[str, Any]] = {
    "virtualbox": {"cpus": 2, "memory": 4096},
    "parallels": {"cpus": 2, "memory": 4096},
    "libvirt": {"cpus": 2, "memory": 4096},
    "qemu": {"smp": "2", "memory": "4096M"},
}


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"there is no {program}")
    return found


def providers(vagrantfile: Path = VAGRANTFILE, **environment: str) -> dict[str, Any]:
    ruby = needs("ruby")
    ran = subprocess.run(
        [ruby, Path(__file__).with_name("vagrantfile.rb"), vagrantfile],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["version"] == "2"
    return told["providers"]


def test_vagrantfile_gives_every_provider_the_same_machine() -> None:
    found = providers()
    assert {name: machine["settings"] for name, machine in found.items()} == SIZES
    for machine in found.values():
        (port,) = machine["ports"]
        assert (port["guest"], port["host"]) == (REPORT_PORT, REPORT_PORT)
        assert port["host_ip"] == "127.0.0.1"
        assert machine["folders"][PLACE]["host"] == ".."
        assert machine["folders"]["/vagrant"]["disabled"]
        (step,) = machine["provisions"]
        assert step == {"kind": "shell", "inline": f"exec sh {PLACE}/{SCRIPT}"}


def test_vagrantfile_copies_without_deleting_where_it_cannot_share() -> None:
    found = providers()
    assert all(found[name]["folders"][PLACE].get("type") is None for name in list(SIZES)[:2])
    for name in ("libvirt", "qemu"):
        folder = found[name]["folders"][PLACE]
        assert folder["type"] == "rsync"
        assert ".venv/" in folder["rsync__exclude"]
        assert not any("delete" in word for word in folder["rsync__args"])


def test_vagrantfile_is_changed_by_the_environment() -> None:
    names = ("PILLARBOX_CPUS", "PILLARBOX_MEMORY_MIB", "PILLARBOX_REPORT_PORT", "PILLARBOX_BOX")
    values = ("4", "8192", "8123", "somebody/else")
    found = providers(**dict(zip(names, values, strict=True)))
    sizes = {name: set(machine["settings"].values()) for name, machine in found.items()}
    assert sizes.pop("qemu") == {"4", "8192M"}
    assert all(size == {4, 8192} for size in sizes.values())
    assert {machine["box"] for machine in found.values()} == {"somebody/else"}
    assert {machine["ports"][0]["guest"] for machine in found.values()} == {REPORT_PORT}
    assert {machine["ports"][0]["host"] for machine in found.values()} == {8123}


def test_vagrantfile_in_a_box_asks_for_no_checkout(tmp_path: Path) -> None:
    shutil.copy(VAGRANTFILE, tmp_path)
    found = providers(tmp_path / "Vagrantfile")
    assert {name: machine["settings"] for name, machine in found.items()} == SIZES
    for machine in found.values():
        assert machine["box"] is None
        assert list(machine["folders"]) == ["/vagrant"]
        assert machine["provisions"] == []
        assert machine["ports"] == providers()["libvirt"]["ports"]


def test_box_for_virtualbox_is_the_machine_of_the_vagrantfile() -> None:
    rasd = "{http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData}"
    machine = ElementTree.parse(VAGRANT / "box.ovf")
    sizes = {
        item.findtext(f"{rasd}Caption"): item.findtext(f"{rasd}VirtualQuantity")
        for item in machine.iter("{http://schemas.dmtf.org/ovf/envelope/1}Item")
    }
    assert sizes["Processors"] == str(SIZES["virtualbox"]["cpus"])
    assert sizes["Memory"] == str(SIZES["virtualbox"]["memory"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "'make-box virtualbox FILE' or 'make-box libvirt FILE' is what can be asked.\n"),
        (["hyperv", "new.box"], "make-box: there is no box for hyperv; "),
        (["libvirt", "old.box"], "old.box is there already; move it away."),
        (["libvirt", "nowhere/new.box"], "make-box: there is no folder "),
        (["libvirt", "new.box"], "make-box: there is no debootstrap extlinux "),
    ],
)
def test_make_box_says_what_it_cannot_do(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "old.box").touch()
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("dirname", "git", "id", "readlink", "sh"):
        (tools / tool).symlink_to(needs(tool))
    (tools / "uname").write_text("#!/bin/sh\necho x86_64\n")
    (tools / "uname").chmod(0o755)
    script = (VAGRANT / "make-box").read_text()
    alone = tmp_path / "make-box"
    alone.write_text(script.replace("PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n", ""))
    ran = subprocess.run(
        ["sh", alone, *arguments],
        cwd=tmp_path,
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert sentence in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "make-box", "old.box"}


@pytest.mark.parametrize("provider", SIZES)
def test_vagrant_accepts_the_file(provider: str, tmp_path: Path) -> None:
    vagrant = needs("vagrant")
    program = tmp_path / "bin" / "VBoxManage"  # so that Vagrant takes VirtualBox for installed
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 6.1.50r0\n")
    program.chmod(0o755)
    ran = subprocess.run(
        [vagrant, "validate"],
        cwd=VAGRANT,
        env={
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "VAGRANT_HOME": str(tmp_path / "home"),
            "VAGRANT_DOTFILE_PATH": str(tmp_path / "state"),
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "VAGRANT_DEFAULT_PROVIDER": provider,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    told = ran.stdout + ran.stderr
    if "could not be found, but was requested" in told:
        pytest.skip(f"Vagrant has no plugin for {provider} here")
    assert ran.returncode == 0, told


def test_lima_has_what_limactl_asks_for() -> None:
    machine = yaml.safe_load((VAGRANT / "lima.yaml").read_text())
    allowed = "minimumLimaVersion images cpus memory disk param mounts portForwards containerd"
    assert set(machine) == {*allowed.split(), "provision"}
    assert {image["arch"] for image in machine["images"]} == {"x86_64", "aarch64"}
    for image in machine["images"]:
        debian = {"x86_64": "amd64", "aarch64": "arm64"}[image["arch"]]
        assert re.fullmatch(rf"https://cloud\.debian\.org/.*-{debian}\.qcow2", image["location"])
    assert (machine["cpus"], machine["memory"]) == (2, "4GiB")
    (mount,) = machine["mounts"]
    assert mount == {"location": "{{.Param.checkout}}", "mountPoint": PLACE, "writable": True}
    assert list(machine["param"]) == ["checkout"]
    assert machine["portForwards"] == [{"guestPort": REPORT_PORT, "hostIP": "127.0.0.1"}]
    (step,) = machine["provision"]
    assert step["mode"] == "system"
    assert step["script"] == f"#!/bin/sh\nexec sh {PLACE}/{SCRIPT}\n"


def test_user_data_clones_and_provisions() -> None:
    text = (VAGRANT / "cloud-init" / "user-data").read_text()
    assert text.startswith("#cloud-config\n")
    steps = yaml.safe_load(text)["runcmd"]
    assert steps[0] == ["git", "clone", "@REPOSITORY@", PLACE]
    assert steps[-1] == ["sh", f"{PLACE}/{SCRIPT}"]
    assert text.count("@REPOSITORY@") == 2, "in its explanation, and in one command"


def test_cloud_init_accepts_the_user_data() -> None:
    cloud_init = needs("cloud-init")
    file = VAGRANT / "cloud-init" / "user-data"
    ran = subprocess.run(
        [cloud_init, "schema", "--config-file", file], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Valid" in ran.stdout


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Return a Dockerfile's instructions, each with its arguments on one line."""
    lines = re.sub(r"\\\n\s*", "", dockerfile.read_text()).splitlines()
    spoken = [line for line in lines if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in spoken)]


def test_container_is_made_by_the_script() -> None:
    told = instructions(VAGRANT / "container" / "Dockerfile")
    assert told[0] == ("FROM", "debian:13")
    assert ("COPY", f". {PLACE}") in told
    assert ("WORKDIR", PLACE) in told
    assert ("EXPOSE", str(REPORT_PORT)) in told
    script = next(rest for word, rest in told if word == "RUN" and SCRIPT in rest)
    assert f"sh {SCRIPT} " in script


def test_development_container_mounts_the_checkout_where_the_image_has_it() -> None:
    folder = CHECKOUT / ".devcontainer"
    container = json.loads((folder / "devcontainer.json").read_text())
    dockerfile = (folder / container["build"]["dockerfile"]).resolve()
    assert dockerfile == VAGRANT / "container" / "Dockerfile"
    assert (folder / container["build"]["context"]).resolve() == CHECKOUT
    mount = dict(part.split("=") for part in container["workspaceMount"].split(","))
    assert mount == {"source": "${localWorkspaceFolder}", "target": PLACE, "type": "bind"}
    assert container["workspaceFolder"] == PLACE
    assert (container["privileged"], container["remoteUser"]) == (True, "root")
    assert container["forwardPorts"] == [REPORT_PORT]
    assert container["onCreateCommand"] == ["sh", f"{PLACE}/{SCRIPT}"]
    venv = re.search(r"PILLARBOX_VENV=(\S+)", dockerfile.read_text())
    assert venv
    interpreter = container["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert interpreter == f"{venv[1]}/bin/python"


@pytest.mark.parametrize(
    "name", ["pillarbox", SCRIPT, "vagrant/debian_packages.sh", "vagrant/make-box"]
)
def test_shellcheck_finds_nothing(name: str) -> None:
    ran = subprocess.run(
        [needs("shellcheck"), CHECKOUT / name], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
