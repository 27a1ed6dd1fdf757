#include "kernels/cuda/nccl/nccl_library.h"

#include <dlfcn.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::kernels::cuda {
namespace {

constexpr int kMinVersion = 21400;

template <typename Function>
absl::Status Load(void* library, const std::string& file, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  if (function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(file, " has no ", symbol));
}

}  // namespace

std::string NcclVersionText(int version) {
  // NCCL's version format since 2.9; older versions are refused.
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string NameOf(const NcclLibrary& nccl) {
  int version = 0;
  static_cast<void>(nccl.get_version(&version));
  return absl::StrCat("NCCL ", NcclVersionText(version));
}

absl::Status CheckNccl(const NcclLibrary& nccl, ncclResult_t result, absl::string_view call,
                       ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const char* const why = nccl.get_last_error(comm);
  return absl::InternalError(absl::StrCat(call, ": ", nccl.get_error_string(result),
                                          why == nullptr || *why == '\0' ? "" : ": ",
                                          why == nullptr ? "" : why));
}

absl::StatusOr<NcclLibrary> OpenNccl(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const text = dlerror();
    const std::string error = text == nullptr ? "unknown error" : text;
    // The loader's error begins with the missing file: this one, or a dependency.
    if (absl::StartsWith(error, absl::StrCat(file, ": cannot open"))) {
      return absl::NotFoundError(absl::StrCat(file, " was not found"));
    }
    return absl::FailedPreconditionError(absl::StrCat(file, " cannot be opened: ", error));
  }
  NcclLibrary nccl;
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclGetVersion", nccl.get_version));
  int version = 0;
  if (nccl.get_version(&version) != ncclSuccess || version < kMinVersion) {
    return absl::FailedPreconditionError(absl::StrCat(file, " is NCCL ", NcclVersionText(version),
                                                      ", older than ", NcclVersionText(kMinVersion)));
  }
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclGetUniqueId", nccl.get_unique_id));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclCommInitRankConfig", nccl.comm_init_rank_config));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclCommGetAsyncError", nccl.comm_get_async_error));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclCommAbort", nccl.comm_abort));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclGetErrorString", nccl.get_error_string));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclGetLastError", nccl.get_last_error));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclGroupStart", nccl.group_start));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclGroupEnd", nccl.group_end));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclRedOpCreatePreMulSum", nccl.red_op_create_pre_mul_sum));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclRedOpDestroy", nccl.red_op_destroy));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclReduce", nccl.reduce));
  CAIRN_RETURN_IF_ERROR(Load(library, file, "ncclAllReduce", nccl.all_reduce));
  return nccl;
}

}  // namespace cairn::kernels::cuda
