"""Native CPU code: C++ sources, how they are compiled, and how they are called."""
