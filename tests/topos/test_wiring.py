"""Wiring against the papers: each network built a second time, as its paper's text builds it.

The builders here are the papers' own procedures (loops over prefixes, lists of servers), kept
apart from the arithmetic that they check. A cable is a set of two ends; a switch is the set of
servers on it, which is all that the papers say of a plain switch.
"""

import itertools

import pytest

from pillarbox import topos

Address = tuple[int, ...]
Switches = set[frozenset[Address]]
Direct = set[frozenset[Address]]


def wired(spec: str) -> tuple[Switches, Direct]:
    """Return the switches and direct cables of a network, in addresses."""
    topology = topos.parse(spec)
    switches = {
        frozenset(
            topology.digits(plug.node)
            for _, plug in topology.neighbours(topology.servers + switch)
            if plug.node < topology.servers
        )
        for switch in range(topology.switches)
    }
    direct = {
        frozenset([topology.digits(cable.a), topology.digits(cable.b)])
        for cable in topology.links()
        if cable.b < topology.servers
    }
    return switches, direct


def build_dcells(prefix: Address, n: int, level: int) -> tuple[Switches, Direct]:
    """BuildDCells of Guo 2008, Fig. 2."""
    if level == 0:
        return {frozenset((*prefix, i) for i in range(n))}, set()
    sizes = [n]
    for _ in range(level):
        sizes.append(sizes[-1] * (sizes[-1] + 1))
    members = sizes[level - 1] + 1
    switches: Switches = set()
    direct: Direct = set()
    for i in range(members):
        below = build_dcells((*prefix, i), n, level - 1)
        switches |= below[0]
        direct |= below[1]

    def server(cell: int, uid: int) -> Address:
        digits = []
        for lower in range(level - 1, 0, -1):
            digits.append(uid // sizes[lower - 1])
            uid %= sizes[lower - 1]
        return (*prefix, cell, *digits, uid)

    for i in range(sizes[level - 1]):
        for j in range(i + 1, members):
            direct.add(frozenset([server(i, j - 1), server(j, i)]))
    return switches, direct


@pytest.mark.parametrize(("n", "k"), [(4, 1), (2, 2), (3, 2), (4, 2), (5, 0), (2, 3)])
def test_dcell_is_that_of_build_dcells(n: int, k: int) -> None:
    assert wired(f"dcell,{n},{k}") == build_dcells((), n, k)


def test_dcell_figure_1() -> None:
    _, direct = wired("dcell,4,1")
    assert direct == {frozenset([(i, j - 1), (j, i)]) for j in range(5) for i in range(j)}


@pytest.mark.parametrize(
    ("n", "k", "servers"),
    [(4, 1, 7), (3, 2, 41), (2, 3, 154), (2, 3, 20), (2, 3, 1000), (2, 3, 45)],
)
def test_partial_dcell_is_the_full_one_without_the_missing(n: int, k: int, servers: int) -> None:
    switches, direct = build_dcells((), n, k)
    partial = topos.parse(f"dcell,{n},{k},servers={servers}")
    there = {partial.digits(server) for server in range(servers)}
    expected = {switch & there for switch in switches if switch & there}
    assert wired(partial.spec) == (expected, {cable for cable in direct if cable <= there})
    assert partial.cables == servers + sum(cable <= there for cable in direct)


def add_dcell(taken: set[Address], prefix: Address, level: int, sizes: list[int]) -> Address:
    """AddDCell with GetIndex (Guo 2008, Fig. 6): return the prefix of the next DCell_1."""
    members = {cell[len(prefix)] for cell in taken if cell[: len(prefix)] == prefix}
    if level == 2:
        return (*prefix, len(members))
    if len(members) < sizes[1] + 1:
        return add_dcell(taken, (*prefix, len(members)), level - 1, sizes)
    capacity = sizes[level - 1] // sizes[1]
    for member in sorted(members):
        inside = (*prefix, member)
        if sum(cell[: len(inside)] == inside for cell in taken) < capacity:
            return add_dcell(taken, inside, level - 1, sizes)
    return add_dcell(taken, (*prefix, len(members)), level - 1, sizes)


def test_servers_of_a_partial_dcell_join_as_add_dcell_says() -> None:
    sizes, taken = [2, 6, 42, 1806], set[Address]()
    partial = topos.parse("dcell,2,3,servers=1800")
    for unit in range(300):
        cell = add_dcell(taken, (), 3, sizes)
        taken.add(cell)
        assert partial.digits(unit * 6)[:2] == cell


@pytest.mark.parametrize(
    "servers",
    [pytest.param(s, marks=[pytest.mark.long] if s % 54 else []) for s in range(6, 1806, 6)],
)
def test_theorem_7_interim_dcell_is_complete_but_for_its_last_member(servers: int) -> None:
    partial = topos.parse(f"dcell,2,3,servers={servers}")
    members = [partial.digits(server)[0] for server in range(servers)]
    last = max(members)
    joined = {
        frozenset([members[cable.a], members[cable.b]])
        for cable in partial.links()
        if cable.level == 3
    }
    complete = {frozenset(pair) for pair in itertools.combinations(range(last), 2)}
    assert complete <= joined


def build_bcube(n: int, k: int, blocks: int) -> Switches:
    """Guo 2009, sections 3.1 and 5.1: server i s of level l is on switch <l, s>."""
    servers = [a for a in itertools.product(range(n), repeat=k + 1) if a[0] < blocks]
    groups: dict[tuple[int, Address], set[Address]] = {}
    for server in servers:
        for level in range(k + 1):
            at = k - level  # addresses are written a_k first
            groups.setdefault((level, server[:at] + server[at + 1 :]), set()).add(server)
    return {frozenset(group) for group in groups.values()}


@pytest.mark.parametrize(("n", "k", "blocks"), [(4, 1, 4), (2, 3, 2), (3, 2, 3), (4, 2, 2)])
def test_bcube_is_that_of_section_3(n: int, k: int, blocks: int) -> None:
    option = "" if blocks == n else f",servers={blocks * n**k}"
    assert wired(f"bcube,{n},{k}{option}") == (build_bcube(n, k, blocks), set())


def test_bcube_figure_1() -> None:
    bcube = topos.parse("bcube,4,1")
    labels = {bcube.switch_label(s): bcube.servers + s for s in range(bcube.switches)}
    on_1_2 = [bcube.address(plug.node) for _, plug in bcube.neighbours(labels["<1,2>"])]
    on_0_3 = [bcube.address(plug.node) for _, plug in bcube.neighbours(labels["<0,3>"])]
    assert on_1_2 == ["0.2", "1.2", "2.2", "3.2"]
    assert on_0_3 == ["3.0", "3.1", "3.2", "3.3"]


def build_dpillar(n: int, k: int) -> Switches:
    """Liao 2012, section 2.3: H_i and H_{i+1} servers whose labels differ in symbol i alone."""
    groups: dict[tuple[int, Address], set[Address]] = {}
    for column in range(k):
        for label in itertools.product(range(n // 2), repeat=k):  # v^{k-1} first
            for switch_column in (column, (column - 1) % k):
                at = k - 1 - switch_column
                rest = label[:at] + label[at + 1 :]
                groups.setdefault((switch_column, rest), set()).add((column, *label))
    return {frozenset(group) for group in groups.values()}


@pytest.mark.parametrize(("n", "k"), [(8, 2), (4, 2), (6, 2), (4, 3), (6, 3), (4, 5)])
def test_dpillar_is_that_of_section_2(n: int, k: int) -> None:
    dpillar = topos.parse(f"dpillar,{n},{k}")
    switches, direct = wired(dpillar.spec)
    # For k = 2 the groups of two switch columns can hold the same servers only if n/2 = 1.
    assert (switches, direct) == (build_dpillar(n, k), set())
    assert all(len(switch) == n for switch in switches)


def test_dpillar_figure_2() -> None:
    dpillar = topos.parse("dpillar,8,2")
    first_of_s1 = dpillar.servers + dpillar.column_switches
    servers = {dpillar.address(plug.node) for _, plug in dpillar.neighbours(first_of_s1)}
    assert servers == {f"{column}.{v}.0" for column in (0, 1) for v in range(4)}
    first_of_s0 = dpillar.servers
    servers = {dpillar.address(plug.node) for _, plug in dpillar.neighbours(first_of_s0)}
    assert servers == {f"{column}.0.{v}" for column in (0, 1) for v in range(4)}


def test_dpillar_clockwise_port_leads_to_its_own_column() -> None:
    dpillar = topos.parse("dpillar,4,3")
    for server in range(dpillar.servers):
        column = dpillar.digits(server)[0]
        assert dpillar.server_plug(server, 0).level == column
        assert dpillar.server_plug(server, 1).level == (column - 1) % 3


def build_ficonn(n: int, k: int) -> tuple[Switches, Direct]:
    """FiConnConstruct of Li 2009, Algorithm 1, line by line."""
    servers: list[Address] = [(i,) for i in range(n)]  # of one FiConn_{level-1}, in order
    switches: Switches = {frozenset(servers)}
    direct: Direct = set()
    for level in range(1, k + 1):
        size, members = len(servers), len(servers) // 2**level + 1
        switches = {frozenset((i, *s) for s in sw) for i in range(members) for sw in switches}
        direct = {frozenset((i, *s) for s in pair) for i in range(members) for pair in direct}
        for i1 in range(members):
            for j1 in range(i1 * 2**level + 2 ** (level - 1) - 1, size, 2**level):
                i2 = (j1 - 2 ** (level - 1) + 1) // 2**level + 1
                j2 = i1 * 2**level + 2 ** (level - 1) - 1
                direct.add(frozenset([(i1, *servers[j1]), (i2, *servers[j2])]))
        servers = [(i, *s) for i in range(members) for s in servers]
    return switches, direct


@pytest.mark.parametrize(("n", "k"), [(4, 1), (4, 2), (6, 2), (8, 2), (10, 1), (4, 3), (2, 4)])
def test_ficonn_is_that_of_algorithm_1(n: int, k: int) -> None:
    assert wired(f"ficonn,{n},{k}") == build_ficonn(n, k)


def test_ficonn_figure_3() -> None:
    _, direct = wired("ficonn,4,2")
    level_1 = {frozenset([(0, *a), (0, *b)]) for a, b in FIGURE_3_LEVEL_1}
    level_2 = {frozenset(pair) for pair in FIGURE_3_LEVEL_2}
    assert level_1 <= direct
    assert {cable for cable in direct if len({end[0] for end in cable}) == 2} == level_2


FIGURE_3_LEVEL_1 = [((0, 0), (1, 0)), ((0, 2), (2, 0)), ((1, 2), (2, 2))]
FIGURE_3_LEVEL_2 = [
    ((0, 0, 1), (1, 0, 1)),
    ((0, 1, 1), (2, 0, 1)),
    ((0, 2, 1), (3, 0, 1)),
    ((1, 1, 1), (2, 1, 1)),
    ((1, 2, 1), (3, 1, 1)),
    ((2, 2, 1), (3, 2, 1)),
]


@pytest.mark.parametrize(("n", "k"), [(4, 1), (4, 2), (6, 2), (8, 2), (4, 3)])
def test_ficonn_theorems_2_and_3(n: int, k: int) -> None:
    ficonn = topos.parse(f"ficonn,{n},{k}")
    links = list(ficonn.links())
    of_level = [sum(cable.level == level for cable in links) for level in range(k + 1)]
    assert of_level[0] == 4 * of_level[1]
    assert all(of_level[i] == 2 * of_level[i + 1] for i in range(1, k))
    ends = of_level[0] + 2 * sum(of_level[1:])
    assert ends * 2**k == ficonn.servers * (2 * 2**k - 1)


@pytest.mark.parametrize(("n", "m", "servers"), [(4, 5, 20), (4, 4, 16), (3, 1, 3), (4, 3, 10)])
def test_tree(n: int, m: int, servers: int) -> None:
    option = "" if servers == n * m else f",servers={servers}"
    tree = topos.parse(f"tree,{n},{m}{option}")
    root = tree.node_name(tree.nodes - 1)
    cables = {frozenset([tree.node_name(c.a), tree.node_name(c.b)]) for c in tree.links()}
    expected = {frozenset([f"h{i}", f"s{i // n}"]) for i in range(servers)}
    assert cables == expected | {frozenset([f"s{leaf}", root]) for leaf in range(m)}


@pytest.mark.parametrize("n", [4, 6, 8])
def test_fattree_is_that_of_al_fares(n: int) -> None:
    fattree, half = topos.parse(f"fattree,{n}"), n // 2
    name = {fattree.switch_label(s): f"s{s}" for s in range(fattree.switches)}
    expected = set()
    for pod, i, j in itertools.product(range(n), range(half), range(half)):
        edge, aggregation = name[f"edge {pod}.{i}"], name[f"aggregation {pod}.{i}"]
        server = fattree.server(f"{pod}.{i}.{j}")
        expected.add(frozenset([f"h{server}", edge]))
        expected.add(frozenset([edge, name[f"aggregation {pod}.{j}"]]))
        expected.add(frozenset([aggregation, name[f"core {i * half + j}"]]))
    cables = {frozenset([fattree.node_name(c.a), fattree.node_name(c.b)]) for c in fattree.links()}
    assert cables == expected
    assert {fattree.switch_plug(fattree.switches - 1, port).level for port in range(n)} == {2}


@pytest.mark.parametrize(("n", "levels"), [(4, 2), (4, 4), (6, 4), (8, 5)])
def test_fattree_of_many_levels_has_full_ports_everywhere(n: int, levels: int) -> None:
    fattree = topos.parse(f"fattree,{n},levels={levels}")
    arrays = fattree.cable_arrays()
    degrees = [0] * fattree.nodes
    for a, b in zip(arrays.a.tolist(), arrays.b.tolist(), strict=True):
        degrees[a] += 1
        degrees[b] += 1
    assert set(degrees[: fattree.servers]) == {1}
    assert set(degrees[fattree.servers :]) == {n}
