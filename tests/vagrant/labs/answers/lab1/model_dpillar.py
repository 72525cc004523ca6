def address(n, k, number):
    half = n // 2
    column, label = divmod(number, half**k)
    return (column, *(label // half**i % half for i in range(k - 1, -1, -1)))


def number(n, k, digits):
    half = n // 2
    return digits[0] * half**k + sum(v * half**i for i, v in enumerate(reversed(digits[1:])))


def peers(n, k, digits, port):
    near = (digits[0] - port) % k  # the switch column, and the symbol that is free there
    found = []
    for column in {near, (near + 1) % k}:
        for symbol in range(n // 2):
            label = list(digits[1:])
            label[k - 1 - near] = symbol
            found.append((column, *label))
    return [peer for peer in found if peer != digits]


def switch(n, k, digits, port):
    half, near = n // 2, (digits[0] - port) % k
    rest = [v for i, v in enumerate(digits[1:]) if i != k - 1 - near]
    return near * half ** (k - 1) + sum(v * half**i for i, v in enumerate(reversed(rest)))


def port_to(n, k, a, b):
    return next((port for port in (0, 1) if b in peers(n, k, a, port)), None)
