def sizes(n, k):
    found = [n]
    for _ in range(k):
        found.append(found[-1] * (found[-1] + 1))
    return found


def address(n, k, number):
    size = sizes(n, k)
    return (*(number % size[i] // size[i - 1] for i in range(k, 0, -1)), number % n)


def number(n, k, digits):
    return sum(d * w for d, w in zip(reversed(digits), [1, *sizes(n, k)], strict=False))


def peers(n, k, digits, port):
    if port == 0:
        return [(*digits[:-1], i) for i in range(n) if i != digits[-1]]
    size, uid = sizes(n, k), number(n, k, digits)
    base = uid // size[port] * size[port]
    cell, inner = divmod(uid - base, size[port - 1])
    if inner >= cell:
        far = base + (inner + 1) * size[port - 1] + cell
    else:
        far = base + inner * size[port - 1] + cell - 1
    return [address(n, k, far)]


def switch(n, k, digits, port):
    return number(n, k, digits) // n if port == 0 else None


def port_to(n, k, a, b):
    return next((port for port in range(k + 1) if b in peers(n, k, a, port)), None)
