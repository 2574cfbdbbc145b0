"""``fairlead compile``, for installations that others use."""

from fairlead.model import jit


def compile_kernels() -> None:
    """Compile what is compiled once per installation, ahead of its first use.

    The machine code is kept beside the package or, where that cannot be written, in the cache directory of
    the user; NUMBA_CACHE_DIR names another directory. Without this command each kernel is compiled when it is
    first used, and all of them before a server starts. Two processes compile.
    """
    from fairlead.cluster.server.kernel_compiler import compile_in_child

    n = compile_in_child(jit.modules_with_kernels())
    print(f"{n} kernels compiled" if n else "all kernels had been compiled before")
