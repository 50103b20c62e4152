"""Models: files, configs, weights and the decoders that run them."""
