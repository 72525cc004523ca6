"""C code for the networks' headers, generated from their declarations for forward.bpf.c.

Each header has a struct. Each form of a header has functions that `from_header` calls: they check
the header, build its look-up key, and change its fields. Every function takes the form as a
constant, so that the compiler removes the code of all other forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from hosts.wire.header import WORD_BYTES, Form, Header
from hosts.wire.header_layout import CHECKSUM, Field, HeaderLayout

FIRST_KIND = 4  # first kind of a header's key; lower kinds are IP's (forward.h)
TYPES = {8: "__u8", 16: "__be16", 32: "__be32", 64: "__be64"}
NUMBERS = {8: "{}", 16: "bpf_ntohs({})", 32: "bpf_ntohl({})", 64: "bpf_be64_to_cpu({})"}


class FieldPlace(NamedTuple):
    """A field's position in a struct: the member, its size in bits, and the field's shift in it."""

    member: str
    bits: int
    shift: int


def forms_of(headers: Sequence[Header]) -> list[Form]:
    """Return the wire forms of all packet headers, in the order of their numbers in the C code."""
    return [form for header in headers for form in header.forms]


def kind_of(forms: Sequence[Form], form: Form) -> int:
    """Return the kind of a form's look-up keys; the kind of its next-hop keys is one more."""
    return FIRST_KIND + 2 * forms.index(form)


def most_bytes(headers: Sequence[Header]) -> int:
    """Return the size of the largest header, at least that of an IPv4 header."""
    return max(20, *(form.size for form in forms_of(headers)))


def counted(header: Header) -> dict[str, int]:
    """Return the header fields that relays increment or decrement, with their bit in an action."""
    return {name: 1 << number for number, name in enumerate(header.at_times)}


def source(headers: Sequence[Header]) -> str:
    """Return the generated C source of the eBPF programs: parsing and changing of headers."""
    forms = forms_of(headers)
    structs = [_struct(form) for form in forms]
    members = "".join(f"\tstruct {form.name} {form.name};\n" for form in forms)
    each = " ".join(f"FORM({form.name.upper()}_FORM)" for form in forms)
    numbers = ", ".join(f"{form.name.upper()}_FORM" for form in forms)
    parts = [
        "/* Written by hosts/live/generated.py from the headers that networks declare. */",
        f"#define HEADER_WORDS {most_bytes(headers) // WORD_BYTES} /* the largest header */",
        f"enum form {{ {numbers} }};",
        f"#define FORMS(FORM) {each}",
        *structs,
        f"union header {{\n\t__u32 words[HEADER_WORDS];\n{members}}};",
        _function("int form_size(", forms, lambda form: [f"return {form.size};"]),
        _function("int form_first(", forms, lambda form: [f"return {form.first:#x};"]),
        _function("int other_size(", forms, lambda form: [f"return {_other_size(form)};"]),
        _function("int has_route(", forms, lambda form: [f"return {int(_has_route(form))};"]),
        _function("int is_form(const union header *header, ", forms, _check),
        _function("__u32 key_of(const union header *header, __be32 *key, ", forms, _key(forms)),
        _function("int is_used_up(const union header *header, __u8 at_times, ", forms, _used_up),
        _function("int rewrite(union header *header, const __u32 *template, ", forms, _rewrite),
        _function("int count_hop(union header *header, __u8 at_times, ", forms, _count),
        _function("__u16 *checksum_of(union header *header, ", forms, _checksum, "0"),
        _function("int set_number(union header *header, __u32 number, ", forms, _number),
    ]
    return "\n\n".join(parts) + "\n"


def _function(
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


def _struct(form: Form) -> str:
    members = [f"\t{TYPES[bits]} {name};" for name, bits, _ in _members(form.layout)]
    # Members keep their offsets; the compiler knows that headers are aligned to 4 bytes.
    return "\n".join([f"struct {form.name} {{", *members, "} __attribute__((packed, aligned(4)));"])


def _members(layout: HeaderLayout) -> Iterator[tuple[str, int, list[Field]]]:
    """Yield the struct members with their fields; a repeated name gets a suffix."""
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


def _place(layout: HeaderLayout, wanted: Field) -> FieldPlace:
    for member, bits, run in _members(layout):
        behind = bits
        for field in run:
            behind -= field.bits
            if field is wanted:
                return FieldPlace(member, bits, behind)
    raise ValueError(f"the {layout.title} has no field {wanted.name}")


def _field(form: Form, name: str) -> Field:
    return next(field for field in form.layout.fields if field.name == name)


def _header(form: Form) -> str:
    return f"header->{form.name}."


def _value(form: Form, field: Field) -> str:
    """Return the C expression that reads a field."""
    member, bits, shift = _place(form.layout, field)
    whole = NUMBERS[bits].format(_header(form) + member)
    if bits == field.bits:
        return whole
    return f"({whole} >> {shift} & {2**field.bits - 1:#x})"


# -- generated functions -------------------------------------------------------------------------


def _other_size(form: Form) -> int:
    """Return the size in bytes of the header's other form, or of its only form."""
    return next((one.size for one in form.header.forms if one is not form), form.size)


def _has_route(form: Form) -> bool:
    return form.header.route is not None


def _check(form: Form) -> list[str]:
    tests = []
    for field in form.layout.fields:
        if field.constant is not None:
            tests.append(f"{_value(form, field)} == {field.constant:#x}")
        elif field.most < 2**field.bits - 1:
            tests.append(f"{_value(form, field)} <= {field.most:#x}")
    if form.header.route is None:
        return [f"return {' && '.join(tests)};"]
    route = form.header.route
    taken, length = (_value(form, _field(form, name)) for name in (route.taken, route.length))
    return [
        "__u8 behind = 0;",
        "",
        *(
            f"behind |= {number} >= {length} ? {_value(form, hop)} : 0;"
            for number, hop in enumerate(form.hops)
        ),
        f"return {' && '.join([*tests, f'{taken} <= {length}', '!behind'])};",
    ]


def _key(forms: Sequence[Form]) -> Callable[[Form], list[str]]:
    def body(form: Form) -> list[str]:
        kind = kind_of(forms, form)
        values = [
            f"key[{place}] = bpf_htonl({_value(form, field)});"
            for place, field in enumerate(form.key)
        ]
        route = form.header.route
        if route is None:
            return [*values, f"return {kind};"]
        taken, length = (_value(form, _field(form, name)) for name in (route.taken, route.length))
        hops = [
            f"hop = {number} == {taken} ? {_value(form, hop)} : hop;"
            for number, hop in enumerate(form.hops)
        ]
        at_end = [f"if ({taken} == {length}) {{", *(f"\t{one}" for one in values)]
        at_end += [f"\treturn {kind};", "}"]
        by_hop = [*hops, "key[0] = bpf_htonl(hop);", f"return {kind + 1};"]
        return ["__u8 hop = 0;", "", *at_end, *by_hop]

    return body


def _used_up(form: Form) -> list[str]:
    header = form.header
    tests = [
        f"{_value(form, _field(form, name))} <= {-step}"
        for name, step in header.every_hop.items()
        if step < 0
    ]
    tests += [
        f"((at_times & {bit}) && {_value(form, _field(form, name))} <= {-header.at_times[name]})"
        for name, bit in counted(header).items()
        if header.at_times[name] < 0
    ]
    return [f"return {' || '.join(tests) or '0'};"]


def _count(form: Form) -> list[str]:
    header = form.header
    lines = [_addition(form, name, step) for name, step in header.every_hop.items()]
    for name, bit in counted(header).items():
        lines += [f"if (at_times & {bit})", f"\t{_addition(form, name, header.at_times[name])}"]
    return lines


def _addition(form: Form, name: str, step: int) -> str:
    member, bits, shift = _place(form.layout, _field(form, name))
    where = _header(form) + member
    by = f"{abs(step) << shift:#x}"
    swapped = {8: "", 16: "bpf_htons", 32: "bpf_htonl"}[bits]
    if not swapped:
        return f"{where} {'-' if step < 0 else '+'}= {by};"
    whole = NUMBERS[bits].format(where)
    return f"{where} = {swapped}({whole} {'-' if step < 0 else '+'} {by});"


def _rewrite(form: Form) -> list[str]:
    """Return C code that sets constants and key fields of a header's forms from a template."""
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


def _checksum(form: Form) -> list[str]:
    return [f"return (__u16 *)header->words + {form.layout.byte(CHECKSUM) // 2};"]


def _number(form: Form) -> list[str]:
    """Return C code that sets the identification field, if the header has one."""
    for field in form.layout.fields:
        if field.name == "identification":
            swapped = {16: "bpf_htons", 32: "bpf_htonl"}[field.bits]
            member = _place(form.layout, field).member
            return [f"{_header(form)}{member} = {swapped}(number);"]
    return []
