FIRST, TURN = 1, -1


def port(network, level):
    return (FIRST + TURN * level) % network.ports


def is_news(known, heard):
    return known is None or 0 < (heard - known) % 2**32 < 2**31


def next_steps(server, links):
    return [(to, *step) for to, step in routes(server, links).items()]


def routes(server, links):
    both = {(a, b) for a, _, b in links}
    ways = {}
    for a, port, b in links:
        if (b, a) in both:
            ways.setdefault(a, []).append((port, b))
    found, queue = {}, [server]
    for at in queue:
        for port, peer in ways.get(at, ()):
            if peer != server and peer not in found:
                found[peer] = found.get(at, (port, peer))
                queue.append(peer)
    return found


def get_link(dcell, a, b, level):
    size, whole = dcell.sizes[level - 1], dcell.sizes[level]
    base = a // whole * whole
    cell_a, cell_b = a % whole // size, b % whole // size
    near = base + cell_a * size + cell_b - (cell_b > cell_a)
    far = base + cell_b * size + cell_a - (cell_a > cell_b)
    return near, far


def common_level(dcell, a, b):
    return next((i for i in range(dcell.k + 1) if a // dcell.sizes[i] == b // dcell.sizes[i]), 0)


def choose(dcell, server, destination, proxy, came_by, links):
    found = routes(server, links)
    target = destination if proxy is None else proxy
    level, way_out = common_level(dcell, server, target), None
    while level > 1:
        near, far = get_link(dcell, server, target, level)
        way_out = near, port(dcell, level), far
        way_level = level
        target, level = near, common_level(dcell, server, near)
    if way_out is None:
        return (*found[target], proxy) if target in found else None
    usable = [link for link in links if link[:2] != (server, came_by)]
    if way_out in usable:
        near, by, far = way_out
        if near == server:
            return by, far, proxy
        if near in found:
            return (*found[near], proxy)
    for wanted in range(way_level, dcell.k + 1):
        for near in (server, *found):
            for at, by, far in usable:
                if (at, by) == (near, port(dcell, wanted)):
                    step = (by, far) if near == server else found[near]
                    return (*step, far)
    return None
