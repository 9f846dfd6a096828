"""The rules of the Python rule set that this repository and its users take, by one name."""

load("//python:py_binary.bzl", _py_binary = "py_binary")
load("//python:py_library.bzl", _py_library = "py_library")
load("//python:py_test.bzl", _py_test = "py_test")

py_binary = _py_binary
py_library = _py_library
py_test = _py_test
