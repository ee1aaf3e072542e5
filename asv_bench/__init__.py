"""The benchmark harness: every cost that the library promises, measured beside what it is compared with."""
