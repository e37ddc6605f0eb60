"""Speed against the peers: `python -m benchmarks [NAME …] [--json]`, `make bench`, docs/speed.md."""
