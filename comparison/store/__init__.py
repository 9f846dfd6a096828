"""Readers and writers of tensor files, dump directories and their manifests."""
