# Lines that envbuild puts above a setup.py: extension modules are compiled for TORCH_CUDA_ARCH_LIST alone. torch
# ignores that variable for a module whose options name an architecture.
import torch.utils.cpp_extension


def _without_architectures(make):
    def extension(*arguments, **options):
        flags = options.get("extra_compile_args")
        if isinstance(flags, dict) and "nvcc" in flags:
            words, kept = iter(flags["nvcc"]), []
            for word in words:
                if word == "-gencode":
                    next(words)  # arch=compute_80,code=sm_80
                elif not word.startswith("-gencode="):
                    kept.append(word)
            options["extra_compile_args"] = {**flags, "nvcc": kept}
        return make(*arguments, **options)

    return extension


torch.utils.cpp_extension.CUDAExtension = _without_architectures(torch.utils.cpp_extension.CUDAExtension)
