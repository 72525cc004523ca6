def sizes(n, k):
    found = [n]
    for level in range(1, k + 1):
        found.append(found[-1] * (found[-1] // 2**level + 1))
    return found


def address(n, k, number):
    size = sizes(n, k)
    return (*(number % size[i] // size[i - 1] for i in range(k, 0, -1)), number % n)


def number(n, k, digits):
    return sum(d * w for d, w in zip(reversed(digits), [1, *sizes(n, k)], strict=False))


def peers(n, k, digits, port):
    if port == 0:
        return [(*digits[:-1], i) for i in range(n) if i != digits[-1]]
    size, u = sizes(n, k), number(n, k, digits)
    for level in range(1, k + 1):
        start = 2 ** (level - 1) - 1
        base = u // size[level] * size[level]
        for i in range(size[level] // size[level - 1]):
            for j in range(i + 1, size[level] // size[level - 1]):
                a = base + i * size[level - 1] + (j - 1) * 2**level + start
                b = base + j * size[level - 1] + i * 2**level + start
                if u in (a, b):
                    return [address(n, k, b if u == a else a)]
    return []


def switch(n, k, digits, port):
    return number(n, k, digits) // n if port == 0 else None


def port_to(n, k, a, b):
    return next((port for port in (0, 1) if b in peers(n, k, a, port)), None)
