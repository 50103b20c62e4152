"""A description of the HTTP interface, made from the structs that requests are parsed with."""
