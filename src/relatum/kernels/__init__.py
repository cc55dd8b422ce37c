"""Everything that numba compiles. Nothing here is imported before it is used: numba takes a second to load."""
