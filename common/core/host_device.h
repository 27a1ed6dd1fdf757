// What stands before a function that kernels of a GPU call too; elsewhere it is nothing.
#pragma once

#if defined(__CUDACC__)
#define CAIRN_HOST_DEVICE __host__ __device__
#else
#define CAIRN_HOST_DEVICE
#endif
