"""What tests and benches share: how tests are run, and a browser."""
