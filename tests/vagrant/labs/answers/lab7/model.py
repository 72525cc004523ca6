# Student s0: bcube,3,1 against tree,3,3, cables of 15 Mbit/s, 2 MB a flow.
N, SERVERS, RATE, VOLUME = 3, 9, 15, 2e6
MEASURED = 10.5, 0.97, 31.5, 0.956  # at 10 Mbit/s
LIED = 2.06, 3.23  # at 1000 Mbit/s, 20 MB a flow, on two busy processors


def cost(header):
    return (1514 + header) / 1448


def seconds(flows, header, rate=RATE, volume=VOLUME):
    return flows * volume * 8 / (rate * 1e6) * cost(header)


# To the n - 1 servers on each of its two switches one hop, to all others two.
HOPS = 2 * (N - 1) + 2 * (SERVERS - 1 - 2 * (N - 1))
BUSIEST = SERVERS * HOPS / (SERVERS * 2)
UPLINK = N * (SERVERS - N)
INSIDE = RATE * (1 - (SERVERS - N) / UPLINK) / (N - 1)


def predicted():
    network = {
        "busiest_flows": BUSIEST,
        "slowest_mbit": RATE / BUSIEST,
        "fastest_mbit": RATE / BUSIEST,
        "total_mbit": RATE / BUSIEST * SERVERS * (SERVERS - 1),
        "completion_s": seconds(BUSIEST, 20),
    }
    tree = {
        "busiest_flows": UPLINK,
        "slowest_mbit": RATE / UPLINK,
        "fastest_mbit": INSIDE,
        "total_mbit": RATE / UPLINK * SERVERS * (SERVERS - N) + INSIDE * SERVERS * (N - 1),
        "completion_s": seconds(UPLINK, 0),
    }
    speed_up = tree["completion_s"] / network["completion_s"]
    return {"network": network, "tree": tree, "speed_up": speed_up}


def measured():
    return {
        "rate_mbit": 10,
        "network": {"valid": True, "completion_s": MEASURED[0], "of_ideal": MEASURED[1]},
        "tree": {"valid": True, "completion_s": MEASURED[2], "of_ideal": MEASURED[3]},
    }


def overloaded():
    ideals = [seconds(BUSIEST, 20, 1000, 2e7), seconds(UPLINK, 0, 1000, 2e7)]
    network, tree = [
        {"valid": False, "completion_s": took, "ideal_s": ideal, "as_if_mbit": 1000 * ideal / took}
        for took, ideal in zip(LIED, ideals, strict=True)
    ]
    return {
        "rate_mbit": 1000,
        "volume_bytes": 20_000_000,
        "network": network,
        "tree": tree,
        "speed_up": LIED[1] / LIED[0],
    }


def explained():
    return {letter: letter in "bdfh" for letter in "abcdefgh"}
