// The NCCL functions that are used, as a table, loaded at run time. Only machines with several GPUs need
// NCCL, and if libcairn_cuda.so were linked with libnccl.so.2, a program could use no GPU at all where that
// file is missing. (A weak link does not help: the loader still requires the file.) Tests fill the table with
// their own functions.
#pragma once

#include <nccl.h>

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::kernels::cuda {

// The pause between two looks at a call in progress.
inline constexpr auto kNcclPoll = std::chrono::microseconds(20);

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

// Opens `file`, a path or a name for which the system searches. The library is never closed. NOT_FOUND if the
// file does not exist; FAILED_PRECONDITION if it cannot be used: a dependency is missing, or the library is
// older than NCCL 2.14, the first version with non-blocking calls.
absl::StatusOr<NcclLibrary> OpenNccl(const std::string& file = "libnccl.so.2");

// "2.28.9" for 22809.
std::string NcclVersionText(int version);
// "NCCL 2.28.9"
std::string NameOf(const NcclLibrary& nccl);

// OK also for calls in progress; otherwise INTERNAL with `call` and NCCL's message. `comm` is null if the
// call has no communicator.
absl::Status CheckNccl(const NcclLibrary& nccl, ncclResult_t result, absl::string_view call, ncclComm_t comm);

}  // namespace cairn::kernels::cuda
