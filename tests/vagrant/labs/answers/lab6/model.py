import random

BYZERO, BYONE = -1, -2


def next_hop(ficonn, server, destination):
    target = destination
    while (level := common_level(ficonn, server, target)) > 0:
        near, far = get_link(ficonn, server, target, level)
        if near == server:
            return far
        target = near
    return target


def common_level(ficonn, a, b):
    return next(level for level, size in enumerate(ficonn.sizes) if a // size == b // size)


def get_link(ficonn, a, b, level):
    size, whole = ficonn.sizes[level - 1], ficonn.sizes[level]
    base = a // whole * whole
    cell_a, cell_b = a % whole // size, b % whole // size
    step, start = 2**level, 2 ** (level - 1) - 1
    near = base + cell_a * size + (cell_b - (cell_b > cell_a)) * step + start
    far = base + cell_b * size + (cell_a - (cell_a > cell_b)) * step + start
    return near, far


def choose(ficonn, server, destination, came, progress, backup_bps, switch_bps):
    level = ficonn.level(server)
    progress = list(progress)
    if server in progress:
        progress = entered(progress, progress.index(server) + 1, BYONE)
    target = lowest(progress, destination)
    hop = next_hop(ficonn, server, target)
    if level == 0:
        return hop, progress
    backup = ficonn.server_plug(server, 1).node
    may = level <= len(progress) and progress[level - 1] == BYZERO
    if hop == backup:
        third = bypass(ficonn, server, target, level) if may and switch_bps > backup_bps else None
        if third is None:
            return crossed(progress, level, hop)
        progress = entered(progress, level, third)
        if came is not None:
            return came, progress
        return next_hop(ficonn, server, lowest(progress, destination)), progress
    leaves = came is None and backup_bps > switch_bps and may and target == destination
    if leaves and next_hop(ficonn, backup, destination) != server:
        return crossed(entered(progress, level, backup), level, backup)
    return hop, progress


def lowest(progress, destination):
    return next((entry for entry in progress if entry >= 0), destination)


def entered(progress, level, entry):
    return [BYZERO] * (level - 1) + [entry] + progress[level:]


def crossed(progress, level, hop):
    lower = min(level - 1, len(progress))
    return hop, [BYZERO] * lower + progress[lower:]


def bypass(ficonn, server, target, level):
    size, whole = ficonn.sizes[level - 1], ficonn.sizes[level]
    backup = ficonn.server_plug(server, 1).node
    thirds = [server // whole * whole + i * size for i in range(whole // size)]
    random.shuffle(thirds)
    for third in thirds:
        if third // size in (server // size, backup // size):
            continue
        proxy = get_link(ficonn, server, third, level)[1]
        if next_hop(ficonn, server, proxy) != backup:
            return proxy
    return None
