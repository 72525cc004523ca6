def address(n, k, number):
    return tuple(number // n**i % n for i in range(k, -1, -1))


def number(n, k, digits):
    total = 0
    for digit in digits:
        total = total * n + digit
    return total


def peers(n, k, digits, port):
    place = k - port
    others = (value for value in range(n) if value != digits[place])
    return [(*digits[:place], value, *digits[place + 1 :]) for value in others]


def switch(n, k, digits, port):
    place = k - port
    return port * n**k + number(n, k, digits[:place] + digits[place + 1 :])


def port_to(n, k, a, b):
    return next((port for port in range(k + 1) if b in peers(n, k, a, port)), None)
