"""C code for the networks' headers, generated from their declarations for forward.bpf.c.

Each header has a struct. Each form of a header has functions that `from_header` calls: they check
the header, build its lookup key, and change its fields. Every function takes the form as a
constant, so that the compiler removes the code of all other forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pillarbox.hosts.wire.header import WORD_BYTES, Form, Header
from pillarbox.hosts.wire.header_layout import CHECKSUM, Field, HeaderLayout

# First kind of lookup keys of the eBPF decision tables that is for a network's own packet header
# (`Header`); the lower kinds, in forward.h, are for IP.
FIRST_KIND = 4
TYPES = {8: "__u8", 16: "__be16", 32: "__be32", 64: "__be64"}
NUMBERS = {8: "{}", 16: "bpf_ntohs({})", 32: "bpf_ntohl({})", 64: "bpf_be64_to_cpu({})"}


class FieldPlace(NamedTuple):
    """A header field's position in its C struct: member, member's bits, and shift in the member."""

    member: str
    bits: int
    shift: int


def header_forms(headers: Sequence[Header]) -> list[Form]:
    """Return the forms of all packet headers, in the order of their numbers in the eBPF code."""
    return [form for header in headers for form in header.forms]


def key_kind_of(forms: Sequence[Form], form: Form) -> int:
    """Return the kind of a header form's lookup keys; its next-hop keys' kind is one more."""
    return FIRST_KIND + 2 * forms.index(form)


def largest_header_bytes(headers: Sequence[Header]) -> int:
    """Return the size in bytes of the largest packet header, at least that of an IPv4 header."""
    return max(20, *(form.size for form in header_forms(headers)))


def counter_bits(header: Header) -> dict[str, int]:
    """Return the header fields that some relays count up or down, with their bit in an action."""
    return {name: 1 << number for number, name in enumerate(header.at_times)}


def c_source(headers: Sequence[Header]) -> str:
    """Return the C source, generated for eBPF programs, that parses and changes packet headers."""
    forms = header_forms(headers)
    structs = [_c_struct(form) for form in forms]
    members = "".join(f"\tstruct {form.name} {form.name};\n" for form in forms)
    each = " ".join(f"FORM({form.name.upper()}_FORM)" for form in forms)
    numbers = ", ".join(f"{form.name.upper()}_FORM" for form in forms)
    parts = [
        "/* Written by hosts/live/generated.py from the headers that networks declare. */",
        f"#define HEADER_WORDS {largest_header_bytes(headers) // WORD_BYTES}"
        " /* the largest header */",
        f"enum form {{ {numbers} }};",
        f"#define FORMS(FORM) {each}",
        *structs,
        f"union header {{\n\t__u32 words[HEADER_WORDS];\n{members}}};",
        _c_function("int form_size(", forms, lambda form: [f"return {form.size};"]),
        _c_function("int form_first(", forms, lambda form: [f"return {form.first:#x};"]),
        _c_function("int other_size(", forms, lambda form: [f"return {_other_size(form)};"]),
        _c_function("int has_route(", forms, lambda form: [f"return {int(_has_route(form))};"]),
        _c_function("int is_form(const union header *header, ", forms, _validity_code),
        _c_function(
            "__u32 key_of(const union header *header, __be32 *key, ", forms, _key_code(forms)
        ),
        _c_function(
            "int is_used_up(const union header *header, __u8 at_times, ", forms, _exhausted_code
        ),
        _c_function(
            "int rewrite(union header *header, const __u32 *template, ", forms, _rewrite_code
        ),
        _c_function("int count_hop(union header *header, __u8 at_times, ", forms, _counter_code),
        _c_function("__u16 *checksum_of(union header *header, ", forms, _checksum_code, "0"),
        _c_function(
            "int set_number(union header *header, __u32 number, ", forms, _identification_code
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _c_function(
    begin: str,
    forms: Sequence[Form],
    body: Callable[[Form], Sequence[str]],
    otherwise: str = "0",
) -> str:
    lines = [f"static __always_inline {begin}const int form)", "{"]
    for form in forms:
        lines.append(f"\tif (form == {form.name.upper()}_FORM) {{")
        lines += [f"\t\t{line}" for line in body(form)]
        lines.append("\t}")
    return "\n".join([*lines, f"\treturn {otherwise};", "}"])


# -- structs ---------------------------------------------------------------------------------------


def _c_struct(form: Form) -> str:
    members = [f"\t{TYPES[bits]} {name};" for name, bits, _ in _struct_members(form.layout)]
    # packed: members keep their offsets; aligned: the compiler knows that headers start at a word.
    return "\n".join([f"struct {form.name} {{", *members, "} __attribute__((packed, aligned(4)));"])


def _struct_members(layout: HeaderLayout) -> Iterator[tuple[str, int, list[Field]]]:
    """Yield the C struct members of a header with their fields; repeated names get a suffix."""
    run: list[Field] = []
    seen: set[str] = set()
    for field in layout.fields:
        run.append(field)
        bits = sum(one.bits for one in run)
        if bits in TYPES:
            name = "_".join(one.name for one in run)
            while name in seen:
                name += "_too"
            seen.add(name)
            yield name, bits, run
            run = []


def _field_place(layout: HeaderLayout, wanted: Field) -> FieldPlace:
    for member, bits, run in _struct_members(layout):
        behind = bits
        for field in run:
            behind -= field.bits
            if field is wanted:
                return FieldPlace(member, bits, behind)
    raise ValueError(f"the {layout.title} has no field {wanted.name}")


def _field_named(form: Form, name: str) -> Field:
    return next(field for field in form.layout.fields if field.name == name)


def _header_access(form: Form) -> str:
    return f"header->{form.name}."


def _field_expression(form: Form, field: Field) -> str:
    """Return the C expression that reads a header field."""
    member, bits, shift = _field_place(form.layout, field)
    whole = NUMBERS[bits].format(_header_access(form) + member)
    if bits == field.bits:
        return whole
    return f"({whole} >> {shift} & {2**field.bits - 1:#x})"


# -- generated functions -------------------------------------------------------------------------


def _other_size(form: Form) -> int:
    """Return the size in bytes of the header's other form, or of its only form."""
    return next((one.size for one in form.header.forms if one is not form), form.size)


def _has_route(form: Form) -> bool:
    return form.header.route is not None


def _validity_code(form: Form) -> list[str]:
    tests = []
    for field in form.layout.fields:
        if field.constant is not None:
            tests.append(f"{_field_expression(form, field)} == {field.constant:#x}")
        elif field.most < 2**field.bits - 1:
            tests.append(f"{_field_expression(form, field)} <= {field.most:#x}")
    if form.header.route is None:
        return [f"return {' && '.join(tests)};"]
    route = form.header.route
    taken, length = (
        _field_expression(form, _field_named(form, name)) for name in (route.taken, route.length)
    )
    return [
        "__u8 behind = 0;",
        "",
        *(
            f"behind |= {number} >= {length} ? {_field_expression(form, hop)} : 0;"
            for number, hop in enumerate(form.hops)
        ),
        f"return {' && '.join([*tests, f'{taken} <= {length}', '!behind'])};",
    ]


def _key_code(forms: Sequence[Form]) -> Callable[[Form], list[str]]:
    def body(form: Form) -> list[str]:
        kind = key_kind_of(forms, form)
        values = [
            f"key[{place}] = bpf_htonl({_field_expression(form, field)});"
            for place, field in enumerate(form.key)
        ]
        route = form.header.route
        if route is None:
            return [*values, f"return {kind};"]
        taken, length = (
            _field_expression(form, _field_named(form, name))
            for name in (route.taken, route.length)
        )
        hops = [
            f"hop = {number} == {taken} ? {_field_expression(form, hop)} : hop;"
            for number, hop in enumerate(form.hops)
        ]
        at_end = [f"if ({taken} == {length}) {{", *(f"\t{one}" for one in values)]
        at_end += [f"\treturn {kind};", "}"]
        by_hop = [*hops, "key[0] = bpf_htonl(hop);", f"return {kind + 1};"]
        return ["__u8 hop = 0;", "", *at_end, *by_hop]

    return body


def _exhausted_code(form: Form) -> list[str]:
    header = form.header
    tests = [
        f"{_field_expression(form, _field_named(form, name))} <= {-step}"
        for name, step in header.every_hop.items()
        if step < 0
    ]
    tests += [
        f"((at_times & {bit}) && {_field_expression(form, _field_named(form, name))}"
        f" <= {-header.at_times[name]})"
        for name, bit in counter_bits(header).items()
        if header.at_times[name] < 0
    ]
    return [f"return {' || '.join(tests) or '0'};"]


def _counter_code(form: Form) -> list[str]:
    header = form.header
    lines = [_addition_code(form, name, step) for name, step in header.every_hop.items()]
    for name, bit in counter_bits(header).items():
        lines += [
            f"if (at_times & {bit})",
            f"\t{_addition_code(form, name, header.at_times[name])}",
        ]
    return lines


def _addition_code(form: Form, name: str, step: int) -> str:
    member, bits, shift = _field_place(form.layout, _field_named(form, name))
    where = _header_access(form) + member
    by = f"{abs(step) << shift:#x}"
    swapped = {8: "", 16: "bpf_htons", 32: "bpf_htonl"}[bits]
    if not swapped:
        return f"{where} {'-' if step < 0 else '+'}= {by};"
    whole = NUMBERS[bits].format(where)
    return f"{where} = {swapped}({whole} {'-' if step < 0 else '+'} {by});"


def _rewrite_code(form: Form) -> list[str]:
    """Return the C code that sets the constants and key fields of a header from a template."""
    masks = [0] * (max(one.size for one in form.header.forms) // WORD_BYTES)
    for one in form.header.forms:
        for offset, field in one.layout.places():
            if field.constant is None and field not in one.key:
                continue
            shift = 8 * one.size - offset - field.bits
            mask = (2**field.bits - 1 << shift).to_bytes(one.size, "big")
            for word in range(one.size // WORD_BYTES):
                part = mask[WORD_BYTES * word : WORD_BYTES * (word + 1)]
                masks[word] |= int.from_bytes(part, "big")
    return [
        "__u32 *words = header->words;",
        "",
        *(
            f"words[{word}] = (words[{word}] & ~bpf_htonl({mask:#x})) | template[{word}];"
            for word, mask in enumerate(masks)
            if mask
        ),
    ]


def _checksum_code(form: Form) -> list[str]:
    return [f"return (__u16 *)header->words + {form.layout.byte(CHECKSUM) // 2};"]


def _identification_code(form: Form) -> list[str]:
    """Return the C code that sets the identification field of a header, if it has one."""
    for field in form.layout.fields:
        if field.name == "identification":
            swapped = {16: "bpf_htons", 32: "bpf_htonl"}[field.bits]
            member = _field_place(form.layout, field).member
            return [f"{_header_access(form)}{member} = {swapped}(number);"]
    return []
