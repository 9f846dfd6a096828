"""The program behind bazelw: which Bazel runs, and with which build of torch."""
