"""Event-driven fluid simulation of arriving flows at max-min fair rates."""
