"""JAX gets two devices before anybody uses it, for the tests that spread work over several."""

import importlib.util

if importlib.util.find_spec("jax") is not None:
    import jax

    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_disable_most_optimizations", True)  # most of the time of these tests is the compiler's
