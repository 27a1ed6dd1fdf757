// NCCL as a table of what is called of it, opened at run time: what adds up between GPUs is of use on
// machines with several of them alone, and a program whose libcairn_cuda.so were linked with libnccl.so.2
// would have no GPU at all where that is missing. (A weak link does not help: the loader wants the file all
// the same.) A test fills the table with its own.
#pragma once

#include <nccl.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::kernels::cuda {

struct NcclLibrary {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclRedOpCreatePreMulSum) red_op_create_pre_mul_sum = nullptr;
  decltype(&ncclRedOpDestroy) red_op_destroy = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
};

// `file`: with a path, or a name that the system looks for. It stays open for good. NOT_FOUND where there is
// none; FAILED_PRECONDITION where it cannot be used: it lacks something itself, or is no NCCL of 2.14 or
// later, the first whose calls need not block.
absl::StatusOr<NcclLibrary> OpenNccl(const std::string& file = "libnccl.so.2");

// "2.28.9" of 22809.
std::string NcclVersionText(int version);
// "NCCL 2.28.9"
std::string NameOf(const NcclLibrary& nccl);

// OK also for what is still in progress; INTERNAL with `call` and NCCL's own words. Null `comm`: the call was
// nobody's.
absl::Status CheckNccl(const NcclLibrary& nccl, ncclResult_t result, absl::string_view call, ncclComm_t comm);

}  // namespace cairn::kernels::cuda
