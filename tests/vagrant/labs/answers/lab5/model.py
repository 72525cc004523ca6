from pillarbox.hosts.base.path import Step

FIRST, TURN = 2, 1


def port(network, level):
    return (FIRST + TURN * level) % network.ports


def path_set(bcube, source, destination):
    return [parallel(bcube, source, destination, first) for first in range(bcube.k, -1, -1)]


def parallel(bcube, source, destination, first):
    levels = bcube.k + 1
    here, there = digits(bcube, source), digits(bcube, destination)
    order = [(first - i) % levels for i in range(levels)]
    steps = []
    if here[first] == there[first]:
        here[first] = (here[first] + 1) % bcube.n
        steps.append(Step(port(bcube, first), number(bcube, here)))
        order = [*order[1:], first]
    for level in order:
        if here[level] != there[level]:
            here[level] = there[level]
            steps.append(Step(port(bcube, level), number(bcube, here)))
    return steps


def digits(bcube, server):
    return list(reversed(bcube.digits(server)))


def number(bcube, low_first):
    return bcube.server_at(list(reversed(low_first)))


def choose(paths, free_bps, using, own_bps):
    free = {i: bps for i, bps in enumerate(free_bps) if bps is not None}
    if using in free:
        free[using] += own_bps
    if not free:
        return None
    good = [i for i in free if free[i] >= 0.9 * max(free.values())]
    return min(good, key=lambda i: (len(paths[i]), i != using, i))
