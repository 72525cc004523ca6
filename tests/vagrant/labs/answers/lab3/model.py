from pillarbox.hosts.base.path import Step

FIRST, TURN = 2, -1


def port(network, level):
    return (FIRST + TURN * level) % network.ports


def path_set(network, source, destination):
    return (
        tunnels(network, source, destination)
        if hasattr(network, "half")
        else parallel(network, source, destination)
    )


# -- BCube: BuildPathSet (Guo 2009, Fig. 3) --


def parallel(bcube, source, destination):
    paths = []
    for first in range(bcube.k, -1, -1):
        order = [(first - i) % (bcube.k + 1) for i in range(bcube.k + 1)]
        here, there = digits(bcube, source), digits(bcube, destination)
        steps = []
        if here[first] == there[first]:
            here[first] = (here[first] + 1) % bcube.n
            steps.append(Step(port(bcube, first), number(bcube, here)))
            order = [*order[1:], first]
        for level in order:
            if here[level] != there[level]:
                here[level] = there[level]
                steps.append(Step(port(bcube, level), number(bcube, here)))
        paths.append(steps)
    return paths


def digits(network, server):
    return list(reversed(network.digits(server)))


def number(network, low_first):
    return network.server_at(list(reversed(low_first)))


# -- DPillar: DPillarMP, clockwise (Liao 2012, Algorithm 2) --


def hop(dpillar, server, symbol, onward):
    column, *label = dpillar.digits(server)
    place = dpillar.k - 1 - (column if onward else (column - 1) % dpillar.k)
    label[place] = symbol
    column = (column + (1 if onward else -1)) % dpillar.k
    return dpillar.server_at([column, *label])


def symbol_of(dpillar, server, symbol):
    return dpillar.digits(server)[dpillar.k - symbol]


def tunnels(dpillar, source, destination):
    first = dpillar.digits(source)[0]
    last = (dpillar.digits(destination)[0] - 1) % dpillar.k
    symbols = list(range(dpillar.half))
    if first == last:
        pairs = [(symbol, symbol) for symbol in symbols]
    else:
        special = symbol_of(dpillar, destination, first), symbol_of(dpillar, source, last)
        near = [symbol for symbol in symbols if symbol != special[0]]
        far = [symbol for symbol in symbols if symbol != special[1]]
        pairs = [special, *zip(near, far, strict=True)]
    paths = []
    for a, b in pairs:
        at, goal = hop(dpillar, source, a, True), hop(dpillar, destination, b, False)
        servers = [source, at]
        while at != goal:
            at = hop(dpillar, at, symbol_of(dpillar, goal, dpillar.digits(at)[0]), True)
            servers.append(at)
        servers.append(destination)
        servers = servers[: servers.index(destination) + 1]
        start = len(servers) - 1 - servers[::-1].index(source)
        paths.append([Step(port(dpillar, 0), server) for server in servers[start + 1 :]])
    return paths


def choose(source, paths, failed):
    for i, path in enumerate(paths):
        at, links = source, set()
        for port, peer in path:
            links.add((at, port, peer))
            at = peer
        if not links.intersection(failed):
            return i
    return None
