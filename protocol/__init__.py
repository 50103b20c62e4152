"""What the two programs say to each other: messages, codec, sockets. Imports neither program and no torch."""
