"""Listens once at each switch: one server's port tells of all that the others send."""


def step(bcube, seen):
    answers = {tuple(question): answer for question, answer in seen}
    suspects = None
    for switch in range(bcube.switches):
        members = members_of(bcube, switch)
        (listener, port), *others = members
        heard = ears(answers, listener, port)
        if heard is None:
            return ["capture", listener, port]
        if heard == "dead":
            return ["name", "server", listener]
        missing = [one for one, _ in others if one not in heard]
        if missing:
            suspects = switch, listener, port, missing
            break
    if suspects is None:
        return deaf(bcube, answers)
    return told_apart(bcube, answers, *suspects)


def members_of(bcube, switch):
    return [(plug.node, plug.port) for _, plug in bcube.neighbours(bcube.servers + switch)]


def ears(answers, server, port):
    """Return whom a port hears: None if it was not asked yet."""
    question = ("capture", server, port)
    if question not in answers:
        return None
    found = answers[question]
    return "dead" if found is None else {int(peer) for peer in found["heard"]}


def deaf(bcube, answers):
    """All listeners hear everybody: a listener is mute, or another server is deaf."""
    for switch in range(bcube.switches):
        (listener, _), (other, _), *_ = members_of(bcube, switch)
        if ("why", other, listener) not in answers:
            return ["why", other, listener]
        found = answers["why", other, listener]
        if found["silent"]:
            at, several = found["path"][-1], len(found["silent"]) > 1
            port, peer = found["silent"][0]
            node = bcube.server_plug(at, port).node
            if at == listener:
                return ["name", "one way", at, node] if several else ["name", "one way", node, peer]
            return ["name", "one way", node, at] if several else ["name", "one way", peer, node]
    return ["name", "switch", bcube.servers]


def told_apart(bcube, answers, switch, listener, port, missing):
    node = bcube.servers + switch
    members = [server for server, _ in members_of(bcube, switch)]
    if len(missing) < len(members) - 1:
        (mute,) = missing
        heard = ears(answers, mute, port)
        if heard is None:
            return ["capture", mute, port]
        if heard == "dead":
            return ["name", "server", mute]
        if heard:
            return ["name", "one way", mute, node]
        return ["name", "cable", mute, node]
    other = missing[0]
    heard = ears(answers, other, port)
    if heard is None:
        return ["capture", other, port]
    if listener in heard:
        return ["name", "one way", node, listener]
    if heard:
        return ["name", "cable", listener, node]
    return ["name", "switch", node]
