// CAIRN_HOST_DEVICE marks a function that GPU kernels call too; it is empty outside CUDA compilation.
#pragma once

#if defined(__CUDACC__)
#define CAIRN_HOST_DEVICE __host__ __device__
#else
#define CAIRN_HOST_DEVICE
#endif
