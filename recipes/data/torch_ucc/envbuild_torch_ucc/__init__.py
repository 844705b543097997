"""The ucc process group for the stock wheel of PyTorch: ``torch.distributed.init_process_group("ucc")``.

``import torch`` calls `register` (entry point of the group torch.backends). UCC itself is loaded when a program makes a
group of that name, so that processes which use none do not pay for it. Recommended is ``"cpu:gloo,cuda:ucc"``: UCC
cannot reduce float16 tensors in CPU memory, and bfloat16 sums are truncated there.
"""


def register():
    """Make the name ucc known to torch.distributed, unless this torch was built with it."""
    import torch.distributed as dist

    if dist.is_available() and not dist.is_ucc_available():
        dist.Backend.register_backend("ucc", create, devices=["cpu", "cuda"])


def create(store, rank, size, timeout):
    """The backend of one process group (c10d::ProcessGroupUCC). Raises ImportError when libucc cannot be loaded."""
    from envbuild_torch_ucc import _C

    return _C.create(store, rank, size, timeout)
