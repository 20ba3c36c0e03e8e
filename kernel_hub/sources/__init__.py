"""Where kernels are read from and published to: the Hub, a registry folder, and wrappers around them."""
