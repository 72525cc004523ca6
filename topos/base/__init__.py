"""What all networks share: the contract, spec texts, addresses, arrays, Mininet."""
