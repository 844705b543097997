// Stands in for a header of PyTorch's source that the wheel does not ship.
#pragma once

#ifdef USE_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

namespace envbuild {

// UCC works on the context that is current on the thread that calls it. c10 skips cudaSetDevice for the device that a
// new thread begins with, so that the progress thread of GPU 0 would have none; cudaSetDevice makes it current from
// CUDA 12 on, cudaFree(nullptr) before.
inline void make_context_current(c10::DeviceIndex device) {
  C10_CUDA_CHECK(cudaSetDevice(device));
  C10_CUDA_CHECK(cudaFree(nullptr));
}

} // namespace envbuild
#endif
