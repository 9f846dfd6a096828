"""Which classes and functions of known models a new modeling file could inherit or import."""
