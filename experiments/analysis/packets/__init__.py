"""TCP by packets: queues that drop, senders that learn of it, acknowledgements on their way."""
