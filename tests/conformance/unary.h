// A fixture for ops of one input without weights.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {

class UnaryOpTest : public ConformanceTest {
 protected:
  // Compares the op with `forward`, and its gradient with central differences of that.
  void Check(absl::StatusOr<std::unique_ptr<kernels::UnaryOp>> made, reference::Tensor x,
             kernels::Layout layout,
             const std::function<reference::Tensor(const reference::Tensor&)>& forward) {
    ASSERT_TRUE(made.ok()) << made.status();
    kernels::UnaryOp& op = **made;
    const kernels::TensorDesc x_desc = ActivationDesc(x.shape, layout), y_desc = op.output();
    x = Rounded(x, type());
    const auto x_memory = PutActivation(x, layout), y_memory = Poisoned(y_desc.num_floats());
    ASSERT_TRUE(op.Forward(x_memory->data(), y_memory->data()).ok());
    const reference::Tensor y = forward(x);
    ASSERT_EQ(y_desc.shape, y.shape);
    ExpectActivation(GetActivation(*y_memory, y_desc), y.values, 4);

    const reference::Tensor dy = Rounded(RandomTensor(y.shape, 4), type());
    const auto dy_memory = PutActivation(dy, y_desc.layout), dx_memory = Poisoned(x_desc.num_floats());
    ASSERT_TRUE(op.Backward(x_memory->data(), y_memory->data(), dy_memory->data(), dx_memory->data()).ok());
    ExpectActivationGradient(GetActivation(*dx_memory, x_desc), x.values,
                             [&] { return Dot(forward(x).values, dy.values); });
  }
};

}  // namespace cairn::conformance
