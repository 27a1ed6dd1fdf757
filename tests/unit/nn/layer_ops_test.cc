// How layer ops call the kernels' ops, and in which order.
#include "nn/layers/layer_ops.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/device.h"

namespace cairn::nn {
namespace {

using testing::ElementsAre;

// All tensors have one element.
class RecordingOp final : public kernels::LinearOp {
 public:
  RecordingOp(bool splits, std::vector<std::string>& calls) : splits_(splits), calls_(calls) {}
  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const float*, const float*, const float*, float*) override { return absl::OkStatus(); }
  absl::Status Backward(const float*, const float*, const float*, float*, float* dx, float*,
                        float*) override {
    calls_.push_back(dx == nullptr ? "variables" : "variables and input");
    return absl::OkStatus();
  }
  bool splits_backward() const override { return splits_; }
  absl::Status BackwardInput(const float*, const float*, float*) override {
    calls_.push_back("input");
    return absl::OkStatus();
  }

 private:
  const bool splits_;
  std::vector<std::string>& calls_;
  const kernels::TensorDesc output_ = {.shape = {1, 1}};
};

class LinearLayerOpTest : public testing::Test {
 protected:
  std::unique_ptr<LayerOp> Op(bool splits) {
    return std::make_unique<LinearLayerOp>(std::make_unique<RecordingOp>(splits, calls_), /*use_bias=*/false);
  }
  std::vector<std::string> Calls(LayerOp& op, bool needs_input_gradient, bool tells) {
    calls_.clear();
    const float* const value = &one_;
    float* const gradient = &one_;
    float* const input_gradient = needs_input_gradient ? &one_ : nullptr;
    const auto tell = [this] {
      calls_.push_back("told");
      return absl::OkStatus();
    };
    EXPECT_EQ(op.Backward({.inputs = {&value, 1},
                           .variables = {&value, 1},
                           .output = &one_,
                           .output_gradient = &one_,
                           .input_gradients = {&input_gradient, 1},
                           .gradients = {&gradient, 1},
                           .on_gradients = tells ? std::optional<absl::FunctionRef<absl::Status()>>(tell)
                                                 : std::nullopt}),
              absl::OkStatus());
    return calls_;
  }

  float one_ = 1;
  std::vector<std::string> calls_;
};

TEST_F(LinearLayerOpTest, ReportsVariableGradientsBeforeComputingTheInputGradient) {
  const auto op = Op(/*splits=*/true);
  EXPECT_THAT(Calls(*op, true, true), ElementsAre("variables", "told", "input"));
}

TEST_F(LinearLayerOpTest, DoesNotSplitBackwardWhereThatGainsNothing) {
  const auto whole = Op(/*splits=*/false), splits = Op(/*splits=*/true);
  EXPECT_THAT(Calls(*whole, true, true), ElementsAre("variables and input"));
  EXPECT_THAT(Calls(*splits, true, false), ElementsAre("variables and input"));
  EXPECT_THAT(Calls(*splits, false, true), ElementsAre("variables"));
}

TEST(CpuDense, ComputesTheInputGradientSeparately) {
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  kernels::DenseParams params = {.input = {.shape = {2, 3}}, .units = 4, .relu = true};
  EXPECT_TRUE((*device->ops().MakeDense(params))->splits_backward());
  params.needs_input_gradient = false;
  EXPECT_FALSE((*device->ops().MakeDense(params))->splits_backward());
}

TEST_F(LinearLayerOpTest, AChainReportsAfterTheGradientsOfItsFirstLink) {
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  std::vector<ChainOp::Link> links;
  for (size_t variables : {0, 1}) links.push_back({.op = Op(/*splits=*/true), .variables = variables});
  const auto chain = ChainOp::Create(std::move(links), *device).value();
  const float* const values[] = {&one_, &one_};
  float* const gradients[] = {&one_, &one_};
  const auto tell = [this] {
    calls_.push_back("told");
    return absl::OkStatus();
  };
  ASSERT_EQ(chain->Backward({.inputs = {values, 1},
                             .variables = values,
                             .output = &one_,
                             .output_gradient = &one_,
                             .input_gradients = {gradients, 1},
                             .gradients = gradients,
                             .on_gradients = tell}),
            absl::OkStatus());
  EXPECT_THAT(calls_, ElementsAre("variables and input", "variables", "told", "input"));
}

}  // namespace
}  // namespace cairn::nn
