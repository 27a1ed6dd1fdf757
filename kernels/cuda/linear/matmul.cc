#include "kernels/cuda/linear/matmul.h"

#include <cublasLt.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/runtime/handles.h"
#include "kernels/cuda/runtime/libraries.h"
#include "kernels/cuda/runtime/library_status.h"

namespace cairn::kernels::cuda {
namespace {

// The size that cuBLAS recommends for Hopper; older cards need less.
constexpr int64_t kWorkspace = int64_t{32} << 20;
constexpr uint32_t kAligned = 16, kUnaligned = 4;

using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t DataType(ElementType type) {
  switch (type) {
    case ElementType::kBFloat16:
      return CUDA_R_16BF;
    case ElementType::kFloat16:
      return CUDA_R_16F;
    default:
      break;
  }
  return CUDA_R_32F;
}

// cuBLAS' matrices are column-major: our row-major [rows, columns] is [columns, rows] for cuBLAS.
absl::StatusOr<MatrixLayout> Layout(ElementType type, int64_t rows, int64_t columns) {
  MatrixLayout layout;
  CAIRN_CUBLAS(cublasLtMatrixLayoutCreate(layout.out(), DataType(type), static_cast<uint64_t>(columns),
                                          static_cast<uint64_t>(rows), columns));
  return layout;
}

// Computes c = a b as c' = b' a', where ' denotes the same memory in column-major order.
class LtMatmul final : public Matmul {
 public:
  static absl::StatusOr<std::unique_ptr<Matmul>> Create(Context& context, const MatmulParams& params) {
    std::unique_ptr<LtMatmul> matmul(new LtMatmul(context));
    CAIRN_RETURN_IF_ERROR(context.ReserveScratch(kWorkspace));
    CAIRN_RETURN_IF_ERROR(matmul->Describe(params));
    CAIRN_ASSIGN_OR_RETURN(matmul->aligned_, matmul->Choose(kAligned));
    CAIRN_ASSIGN_OR_RETURN(matmul->unaligned_, matmul->Choose(kUnaligned));
    return matmul;
  }

  absl::Status Run(const void* a, const void* b, const void* bias, void* c) override {
    const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
    const bool aligned = ((address(a) | address(b) | address(c)) % kAligned) == 0;
    if (bias != nullptr) {
      CAIRN_CUBLAS(cublasLtMatmulDescSetAttribute(operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                  sizeof(bias)));
    }
    const float one = 1, zero = 0;
    CAIRN_CUBLAS(cublasLtMatmul(blas_, operation_.get(), &one, b, b_.get(), a, a_.get(), &zero, c, c_.get(),
                                c, c_.get(), aligned ? &aligned_ : &unaligned_, context_.scratch(),
                                kWorkspace, context_.stream()));
    return absl::OkStatus();
  }

 private:
  explicit LtMatmul(Context& context) : context_(context), blas_(context.libraries().blas()) {}

  absl::Status Describe(const MatmulParams& params) {
    const bool tensor_float =
        params.operands == ElementType::kFloat32 && context_.precision() != Precision::kFloat32;
    CAIRN_CUBLAS(cublasLtMatmulDescCreate(
        operation_.out(), tensor_float ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      return ToStatus(cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value, sizeof(value)),
                      "cublasLtMatmulDescSetAttribute");
    };
    CAIRN_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, params.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
    CAIRN_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, params.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
    if (params.bias) {
      CAIRN_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
      // cuBLAS proposes no algorithm unless the bias has an address, which may be any. Each run passes its
      // own addresses.
      const void* const some = context_.scratch();
      CAIRN_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, some));
    }
    CAIRN_ASSIGN_OR_RETURN(a_, params.transpose_a ? Layout(params.operands, params.k, params.m)
                                                  : Layout(params.operands, params.m, params.k));
    CAIRN_ASSIGN_OR_RETURN(b_, params.transpose_b ? Layout(params.operands, params.n, params.k)
                                                  : Layout(params.operands, params.k, params.n));
    CAIRN_ASSIGN_OR_RETURN(c_, Layout(params.result, params.m, params.n));
    return absl::OkStatus();
  }

  absl::StatusOr<cublasLtMatmulAlgo_t> Choose(uint32_t alignment) const {
    Preference preference;
    CAIRN_CUBLAS(cublasLtMatmulPreferenceCreate(preference.out()));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return ToStatus(
          cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
    };
    CAIRN_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspace)));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      CAIRN_RETURN_IF_ERROR(set(attribute, alignment));
    }
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    CAIRN_CUBLAS(cublasLtMatmulAlgoGetHeuristic(blas_, operation_.get(), b_.get(), a_.get(), c_.get(),
                                                c_.get(), preference.get(), 1, &result, &count));
    if (count == 0) return absl::UnimplementedError("cuBLAS has no algorithm for this matrix product");
    return result.algo;
  }

  Context& context_;
  const cublasLtHandle_t blas_;
  Operation operation_;
  MatrixLayout a_, b_, c_;
  cublasLtMatmulAlgo_t aligned_{}, unaligned_{};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Matmul>> Matmul::Create(Context& context, const MatmulParams& params) {
  return LtMatmul::Create(context, params);
}

}  // namespace cairn::kernels::cuda
