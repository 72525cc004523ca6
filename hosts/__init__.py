"""Packet processing on a server: headers, routers, and the forwarder that runs them."""

if __name__ == "hosts":  # the import name of version 1.0
    from pillarbox import old_names

    old_names.import_for(__name__, __file__)
