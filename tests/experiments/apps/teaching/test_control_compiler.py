"""Hostile controls: what the compiler may read and write, and what the kernel gets to load."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pillarbox.experiments.apps.teaching import control_compiler
from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.control_compiler import (
    FILE,
    compiled_control,
    wrong_include,
)
from pillarbox.experiments.lab.linux.congestion import in_kernel
from pillarbox.hosts.linux.bpf import BpfError
from pillarbox.hosts.linux.struct_ops import CongestionControl
from pillarbox.topos.base.errors import PillarboxError

ANSWERS = Path(__file__).parents[3] / "vagrant" / "labs" / "answers"
MODEL = (ANSWERS / "lab11" / "model.bpf.c").read_text()
PREFIX = f"t{secrets.token_hex(2)}_"  # begin of the names of this test's controls in the kernel
WORD = "word_of_the_teacher"  # content of a file that every user can read
CUT = "return tcp_reno_ssthresh(sk);"  # line of the model that hostile code replaces
LINE = next(number for number, line in enumerate(MODEL.splitlines(), 1) if CUT in line)

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("clang") is None, reason="there is no clang"),
    pytest.mark.skipif(
        not Path("/sys/kernel/btf/vmlinux").exists(), reason="this kernel has no BTF"
    ),
]


@pytest.fixture(scope="module")
def secret() -> Iterator[Path]:
    """Yield a file outside the compiler's folders that every user can read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "secret"
        file.write_text(f"{WORD}\n")
        file.chmod(0o644)
        yield file


def with_cut(code: str, more: str = "") -> str:
    """Return the model with other code after a loss, and more declarations."""
    assert MODEL.count(CUT) == 1
    return MODEL.replace(CUT, code).replace("struct mine {", f"{more} struct mine {{", 1)


def complaint(source: str) -> str:
    """Return the sentence with which the compiler, the checks or the kernel refuse a file."""
    with pytest.raises((StudentError, BpfError)) as caught:
        registered(source).close()
    return str(caught.value)


def left() -> list[str]:
    """Return the names of this test's controls that are still registered."""
    return [name for name in in_kernel() if name.startswith(PREFIX)]


def registered(source: str) -> CongestionControl:
    name = f"{PREFIX}{secrets.token_hex(4)}"
    made = compiled_control(source, name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mine.bpf.o"
        file.write_bytes(made)
        control = CongestionControl(file, FILE, restricted=True)
    assert name in in_kernel()
    return control


def test_a_control_has_a_name_of_the_graders() -> None:
    for declared in ("mine", "reno", "cubic", "dctcp"):
        with closing(registered(MODEL.replace("CONTROL(mine,", f"CONTROL({declared},"))):
            pass
    assert not left()


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ('#include "control.h"', True),
        ('  #  include "control.h"', True),
        ('#include "/etc/shadow"', False),
        ("#include </etc/shadow>", False),
        ('#include "../control.h"', False),
        ("#include WORD", False),
        ('#import "x.h"', False),
        ('%:include "x.h"', False),
        ('// #include "x.h"', True),
    ],
)
def test_only_the_header_is_included(line: str, allowed: bool) -> None:
    said = wrong_include(f"int x;\n{line}\n")
    assert (said == "") == allowed
    assert allowed or said.startswith("line 2 includes ")


@pytest.mark.parametrize(
    "line",
    [
        '#include "{}"',
        '#/**/include "{}"',
        '#define WHERE "{}"\n#include WHERE',
        'asm(".incbin \\"{}\\"");',
        '__asm__(".include \\"{}\\"");',
        '#define CODE as##m\nCODE(".incbin \\"{}\\"");',
        '#line 1 "mine.bpf.c"\n#include "{}"',
    ],
)
def test_no_message_has_text_of_another_file(line: str, secret: Path) -> None:
    for place in (secret, Path("/etc/shadow"), Path("/dev/zero"), Path("/proc/self/environ")):
        said = complaint(line.format(place) + "\n" + MODEL)
        assert WORD not in said
        assert "root:" not in said


def test_the_seal_alone_keeps_the_assembler_from_other_files(secret: Path) -> None:
    source = f'asm(".incbin \\"{secret}\\"");\n'.encode()
    options = ("-x", "cpp-output", "-c")
    with control_compiler._headers() as folder:
        assert control_compiler._compiler_output(folder, options, b"int x = 1;\n", False)
        with pytest.raises(StudentError, match="does not compile"):
            control_compiler._compiler_output(folder, options, source, False)


def test_a_branch_that_the_kernel_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the text refuses assembler code; the object file is checked as well."""
    monkeypatch.setattr(control_compiler, "ASSEMBLER", re.compile(r"(?!)"))
    may_goto = 'asm volatile goto(".byte 0xe5, 0; .short 0; .long 0" :::: out); out:'
    said = complaint(with_cut(f"{may_goto} {CUT}"))
    if "verifier" in said or "loaded" in said:
        pytest.skip(f"this kernel has no may_goto: {said}")
    assert said == f"{FILE} has a loop without a bound (may_goto): write `for`"


def test_a_machine_without_a_seal_compiles_on_request_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(control_compiler.layers, "landlock", missing)
    with pytest.raises(
        PillarboxError, match=r"cannot seal the compiler \(Function not impl.*--uns"
    ):
        compiled_control(MODEL, "test")
    assert compiled_control(MODEL, "test", unsealed=True)


def test_a_compiler_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_compiler, "CPU_S", 1)
    twice = "\n".join(f"#define A{n} A{n - 1} A{n - 1}" for n in range(1, 40))
    for use in ("int A39\n", "#if A39 0\n#endif\n"):
        source = f'#include "control.h"\n#define A0 1 +\n{twice}\n{use}'
        assert "the compiler was stopped: the file needs too much" in complaint(source)


def test_a_large_object_is_not_written() -> None:
    said = complaint(MODEL + "\nchar large[1 << 26] = {1};\n")
    assert said.startswith(("the compiler was stopped", "the file does not compile"))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (MODEL + "x", rf"the file does not compile: {FILE}:\d+:\d+: error: "),
        (
            with_cut("return (int)TCP(sk)->snd_cwnd / 3;"),
            rf"{FILE}, line {LINE}: eBPF has no signed division",
        ),
        (
            with_cut("return t[TCP(sk)->snd_cwnd & 3];", "static const __u32 t[4] = {1, 2, 3, 4};"),
            "declare tables of constants `const volatile`",
        ),
        (with_cut('asm volatile("r0 = 0"); return 2;'), "has assembler code"),
        # A file that does not include the header has no place for the header's assembler code.
        (MODEL.replace('#include "control.h"', 'asm("");'), "has assembler code"),
        (with_cut("return counts;", 'int counts SEC(".maps");'), r'the section "\.maps"'),
        (with_cut(CUT, '__attribute__((section(".B" "TF"))) char x = 1;'), r'section "\.B" "TF"'),
        (with_cut(CUT, 'SEC("kprobe/tcp_sendmsg") int spy(void) { return 0; }'), r'"kprobe/tcp_se'),
        (with_cut(CUT, '#pragma clang section bss=".x"'), "has #pragma clang section"),
        (
            with_cut("bbr_main(sk); return 2;", "extern void bbr_main(struct sock *sk) __ksym;"),
            r'the section "\.ksyms"',
        ),
        (
            with_cut("for (;;) bpf_ktime_get_ns();"),
            rf"verifier refuses {FILE}, line {LINE}: .*loop",
        ),
        (with_cut("return TCP(sk)->srtt_us = 1;"), rf"{FILE}, line {LINE}: .*no write support"),
        (with_cut("return ++flows;", "int flows;"), r"has the map or variables '.*bss'"),
        (
            with_cut(
                "bpf_loop(1 << 23, again, 0, 0); return 2;",
                "static long again(__u32 n, void *x) { return 0; }",
            ),
            r"calls the kernel's function 181: permitted are bpf_ktime_get_ns",
        ),
        (
            with_cut("__u64 x = 0; bpf_probe_read_kernel(&x, 8, (void *)64); return x;"),
            r"calls the kernel's function 113: permitted are",
        ),
        (
            with_cut('bpf_setsockopt(sk, 6, 13, "bbr", 3); return 2;'),
            r"calls the kernel's function 49: permitted are",
        ),
        (
            with_cut(
                "return hidden();",
                "static __attribute__((noinline)) __u32 hidden(void)\n"
                "{ __u64 x = 0; bpf_probe_read_kernel(&x, 8, (void *)64); return x; }",
            ),
            r"calls the kernel's function 113: permitted are",
        ),
        (
            with_cut(
                "return again(TCP(sk)->snd_cwnd);",
                "__attribute__((noinline)) __u32 again(__u32 n) { return n / 2; }",
            ),
            "has the global function again: declare it static",
        ),
        (
            with_cut(CUT, 'struct tcp_ops2 { int x; }; SEC(".struct_ops") struct tcp_ops2 two;'),
            "declares 2 controls: write one CONTROL",
        ),
        (
            'struct sched_ext_ops { int (*ssthresh)(void *sk); };\n#include "control.h"\n'
            'SEC("struct_ops/ssthresh") int BPF_PROG(f, struct sock *sk) { return 2; }\n'
            'SEC(".struct_ops") struct sched_ext_ops mine = { .ssthresh = FN(f) };',
            "fills the structure 'sched_ext_ops', not tcp_congestion_ops",
        ),
        (
            "struct sched_ext_ops { int (*ssthresh)(void *sk); };\n"
            "typedef struct sched_ext_ops tcp_congestion_ops;\n"
            '#include "control.h"\n'
            'SEC("struct_ops/ssthresh") int BPF_PROG(f, struct sock *sk) { return 2; }\n'
            'SEC(".struct_ops") tcp_congestion_ops mine = { .ssthresh = FN(f) };',
            "fills the structure",
        ),
        (
            MODEL.replace("CONTROL(mine,", 'CONTROL(mine, .name = "reno",'),
            f"the kernel has a control of the name in {FILE}",
        ),
        ('#include "control.h"\nint x;\n', "declares 0 controls"),
    ],
)
def test_a_hostile_control_is_refused_in_a_sentence(source: str, said: str) -> None:
    assert re.search(said, found := complaint(source)), found
    assert not left()


def test_static_functions_and_constants_are_permitted() -> None:
    source = with_cut(
        "return half(sk) + steps[half(sk) & 3];",
        "static const volatile __u32 steps[4] = {1, 2, 3, 4};\n"
        "static __attribute__((noinline)) __u32 half(struct sock *sk)\n"
        "{ return TCP(sk)->snd_cwnd / 2 + (bpf_jiffies64() & 1); }",
    )
    registered(source).close()


def test_the_compiler_leaves_no_file() -> None:
    before = {*Path(tempfile.gettempdir()).glob("pillarbox-control*")}
    compiled_control(MODEL, "test")
    assert {*Path(tempfile.gettempdir()).glob("pillarbox-control*")} <= before
