// Recurrent layers: forward against the definition in double precision, backward against central differences of it.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {
namespace {

using kernels::Activation;
using kernels::RecurrenceParams;
using kernels::RecurrentCell;
using reference::Tensor;

double Value(const kernels::ActivationParams& f, double x) {
  switch (f.kind) {
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kRelu:
      return x < 0 ? f.slope * x : std::min<double>(x, f.limit);
    case Activation::kElu:
      return x > 0 ? x : f.slope * std::expm1(x);
    case Activation::kSelu:
      return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x));
    case Activation::kSoftplus:
      return std::log1p(std::exp(x));
    case Activation::kHardSigmoid:
      return std::clamp(x / 6 + 0.5, 0.0, 1.0);
    default:
      return x;
  }
}

class RecurrenceConformance : public ConformanceTest {
 protected:
  // The operands of a recurrence. Without a mask, a scale or first states those are empty.
  struct Operands {
    Tensor z, kernel, bias, mask, scale, first_h, first_c;
  };
  // Which operands a test has, besides z and the kernel.
  struct Options {
    bool masked = false, scaled = false, states = false;
  };

  static RecurrenceParams Usual(RecurrentCell cell) {
    RecurrenceParams params;
    params.cell = cell;
    params.batch = 3;
    params.steps = 4;
    params.units = 5;
    params.activation.kind = Activation::kTanh;
    params.recurrent_activation.kind = Activation::kSigmoid;
    params.sequences = true;
    return params;
  }

  // y, NaN where it is not written. Appends the states of each example after its last step to `last_h` and `last_c`.
  static std::vector<double> Definition(const RecurrenceParams& p, const Operands& of,
                                        std::vector<double>* last_h = nullptr,
                                        std::vector<double>* last_c = nullptr) {
    const int64_t units = p.units, gates = p.gates(), width = p.y_width > 0 ? p.y_width : units;
    const int64_t rows = p.sequences ? p.steps : 1;
    std::vector<double> y(static_cast<size_t>(p.batch * rows * width), std::nan(""));
    const auto at = [](const Tensor& tensor, int64_t i) { return tensor.values[static_cast<size_t>(i)]; };
    for (int64_t n = 0; n < p.batch; ++n) {
      std::vector<double> h(static_cast<size_t>(units)), c(h), out(h);
      for (int64_t j = 0; j < units && !of.first_h.values.empty(); ++j) {
        h[static_cast<size_t>(j)] = at(of.first_h, n * units + j);
        c[static_cast<size_t>(j)] = at(of.first_c, n * units + j);
      }
      for (int64_t index = 0; index < p.steps; ++index) {
        const int64_t step = p.backwards ? p.steps - 1 - index : index;
        const bool is_masked = !of.mask.values.empty() && at(of.mask, n * p.steps + step) == 0;
        std::vector<double> operand = h;
        for (int64_t j = 0; j < units && !of.scale.values.empty(); ++j)
          operand[static_cast<size_t>(j)] *= at(of.scale, n * units + j);
        const auto product = [&](int64_t gate, int64_t j, const std::vector<double>& a) {
          double sum = 0;
          for (int64_t k = 0; k < units; ++k)
            sum += a[static_cast<size_t>(k)] * at(of.kernel, (k * gates + gate) * units + j);
          return sum;
        };
        const auto bias = [&](int64_t gate, int64_t j) {
          return p.use_bias ? at(of.bias, gate * units + j) : 0;
        };
        const auto z = [&](int64_t gate, int64_t j) {
          return at(of.z, ((n * p.steps + step) * gates + gate) * units + j);
        };
        const auto s = [&](int64_t gate, int64_t j) {
          return Value(p.recurrent_activation, z(gate, j) + product(gate, j, operand) + bias(gate, j));
        };
        std::vector<double> next_h = h, next_c = c, reset = operand;
        for (int64_t j = 0; j < units && p.cell == RecurrentCell::kGru; ++j)
          reset[static_cast<size_t>(j)] *= s(1, j);
        for (int64_t j = 0; j < units; ++j) {
          const auto i = static_cast<size_t>(j);
          if (p.cell == RecurrentCell::kLstm) {
            next_c[i] = s(1, j) * c[i] + s(0, j) * Value(p.activation, z(2, j) + product(2, j, operand));
            next_h[i] = s(3, j) * Value(p.activation, next_c[i]);
          } else if (p.cell == RecurrentCell::kGru) {
            const double inside =
                p.reset_after ? s(1, j) * (product(2, j, operand) + bias(2, j)) : product(2, j, reset);
            next_h[i] = s(0, j) * h[i] + (1 - s(0, j)) * Value(p.activation, z(2, j) + inside);
          } else {
            next_h[i] = Value(p.activation, z(0, j) + product(0, j, operand));
          }
        }
        if (!is_masked) {
          h = next_h;
          c = next_c;
        }
        out = h;
        if (is_masked && p.zeros_masked) out.assign(out.size(), 0);
        if (!p.sequences && index + 1 < p.steps) continue;
        const int64_t row = p.sequences ? n * p.steps + (p.in_order ? index : step) : n;
        for (int64_t j = 0; j < units; ++j)
          y[static_cast<size_t>(row * width + p.y_column + j)] = out[static_cast<size_t>(j)];
      }
      if (last_h != nullptr) last_h->insert(last_h->end(), h.begin(), h.end());
      if (last_c != nullptr) last_c->insert(last_c->end(), c.begin(), c.end());
    }
    return y;
  }

  // The elements that the op writes: of y, then of the last states.
  static std::vector<double> Written(const RecurrenceParams& p, const Operands& of) {
    std::vector<double> written, last_h, last_c;
    for (const double value : Definition(p, of, &last_h, &last_c)) {
      if (!std::isnan(value)) written.push_back(value);
    }
    if (of.first_h.values.empty()) return written;
    written.insert(written.end(), last_h.begin(), last_h.end());
    if (p.cell == RecurrentCell::kLstm) written.insert(written.end(), last_c.begin(), last_c.end());
    return written;
  }

  void Check(RecurrenceParams params, bool masked = false, bool scaled = false) {
    Check(params, Options{.masked = masked, .scaled = scaled});
  }

  // With `states`, the first states are given, and the last ones are outputs.
  void Check(RecurrenceParams params, const Options& options) {
    const auto [masked, scaled, states] = options;
    const bool carries = states && params.cell == RecurrentCell::kLstm;
    SCOPED_TRACE(testing::Message() << "cell " << static_cast<int>(params.cell) << ", units " << params.units
                                    << ", batch " << params.batch << ", reset after " << params.reset_after
                                    << ", sequences " << params.sequences << ", backwards "
                                    << params.backwards << ", masked " << masked << ", scaled " << scaled
                                    << ", states " << states);
    params.type = type();
    auto op = device().ops().MakeRecurrence(params);
    ASSERT_TRUE(op.ok()) << op.status();
    const int64_t columns = params.gates() * params.units;
    Operands of = {.z = Rounded(RandomTensor({params.batch, params.steps, columns}, 1), type()),
                   .kernel = Rounded(RandomTensor({params.units, columns}, 2), type()),
                   .bias = RandomTensor({columns}, 3),
                   .mask = Tensor(Shape{0}),
                   .scale = Tensor(Shape{0}),
                   .first_h = Tensor(Shape{0}),
                   .first_c = Tensor(Shape{0})};
    const Shape state_shape = {params.batch, params.units};
    if (states) {
      of.first_h = Rounded(RandomTensor(state_shape, 5), type());
      of.first_c = Rounded(RandomTensor(state_shape, 6), type());
    }
    // Halved, so that the steps do not amplify the rounding of 16 bits.
    for (double& value : of.kernel.values) value /= 2;
    if (masked) {
      of.mask = Tensor({params.batch, params.steps});
      for (size_t i = 0; i < of.mask.values.size(); ++i) of.mask.values[i] = i % 3 == 1 ? 0 : 1;
    }
    if (scaled) {
      of.scale = Tensor({params.batch, params.units});
      for (size_t i = 0; i < of.scale.values.size(); ++i) of.scale.values[i] = i % 4 == 1 ? 0 : 1.25;
    }
    const auto z = PutActivation(of.z), kernel = Put(of.kernel), bias = Put(of.bias);
    const auto mask = masked ? Put(of.mask) : nullptr, scale = scaled ? Put(of.scale) : nullptr;
    const auto first_h = states ? PutActivation(of.first_h) : nullptr,
               first_c = carries ? PutActivation(of.first_c) : nullptr;
    const kernels::Recurrence::Inputs inputs = {.kernel = kernel->data(),
                                                .bias = params.use_bias ? bias->data() : nullptr,
                                                .mask = masked ? mask->data() : nullptr,
                                                .state_scale = scaled ? scale->data() : nullptr,
                                                .first_h = states ? first_h->data() : nullptr,
                                                .first_c = carries ? first_c->data() : nullptr};
    const std::vector<double> expected = Definition(params, of);
    const kernels::TensorDesc y_desc = ActivationDesc({static_cast<int64_t>(expected.size())});
    const auto y = Poisoned(y_desc.num_floats());
    const kernels::TensorDesc state_desc = ActivationDesc(state_shape);
    const auto last_h = Poisoned(state_desc.num_floats()), last_c = Poisoned(state_desc.num_floats());
    ASSERT_TRUE((*op)
                    ->Forward(inputs, z->data(),
                              {.y = y->data(),
                               .last_h = states ? last_h->data() : nullptr,
                               .last_c = carries ? last_c->data() : nullptr})
                    .ok());
    std::vector<float> got = GetActivation(*y, y_desc), written;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!std::isnan(expected[i])) written.push_back(got[i]);
    }
    const auto append = [&](kernels::DeviceMemory& memory, std::vector<float>& to) {
      const std::vector<float> values = GetActivation(memory, state_desc);
      to.insert(to.end(), values.begin(), values.end());
    };
    if (states) append(*last_h, written);
    if (carries) append(*last_c, written);
    ExpectActivation(written, Written(params, of), params.units);

    Tensor dy = Rounded(RandomTensor(y_desc.shape, 4), type());
    std::vector<double> dy_written;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!std::isnan(expected[i])) dy_written.push_back(dy.values[i]);
    }
    const Tensor dlast_h = Rounded(RandomTensor(state_shape, 7), type()),
                 dlast_c = Rounded(RandomTensor(state_shape, 8), type());
    if (states) dy_written.insert(dy_written.end(), dlast_h.values.begin(), dlast_h.values.end());
    if (carries) dy_written.insert(dy_written.end(), dlast_c.values.begin(), dlast_c.values.end());
    const auto dy_memory = PutActivation(dy), dkernel = Poisoned(params.units * columns),
               dbias = Poisoned(columns);
    const auto dlast_h_memory = PutActivation(dlast_h), dlast_c_memory = PutActivation(dlast_c),
               dfirst_h = Poisoned(state_desc.num_floats()), dfirst_c = Poisoned(state_desc.num_floats());
    ASSERT_TRUE((*op)
                    ->Backward(inputs, z->data(),
                               {.y = dy_memory->data(),
                                .last_h = states ? dlast_h_memory->data() : nullptr,
                                .last_c = carries ? dlast_c_memory->data() : nullptr},
                               {.kernel = dkernel->data(),
                                .bias = params.use_bias ? dbias->data() : nullptr,
                                .first_h = states ? dfirst_h->data() : nullptr,
                                .first_c = carries ? dfirst_c->data() : nullptr})
                    .ok());
    const auto loss = [&] { return Dot(Written(params, of), dy_written); };
    ExpectActivationGradient(GetActivation(*z, ActivationDesc(of.z.shape)), of.z.values, loss);
    ExpectActivationGradient(Get(*dkernel, {.shape = of.kernel.shape}), of.kernel.values, loss);
    if (params.use_bias)
      ExpectActivationGradient(Get(*dbias, {.shape = of.bias.shape}), of.bias.values, loss);
    if (states) ExpectActivationGradient(GetActivation(*dfirst_h, state_desc), of.first_h.values, loss);
    if (carries) ExpectActivationGradient(GetActivation(*dfirst_c, state_desc), of.first_c.values, loss);
  }
};

TEST_P(RecurrenceConformance, EveryCellAgreesWithItsDefinition) {
  for (const RecurrentCell cell : {RecurrentCell::kSimple, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    for (const bool sequences : {false, true}) {
      for (const bool masked : {false, true}) {
        RecurrenceParams params = Usual(cell);
        params.sequences = sequences;
        Check(params, masked);
        params.backwards = params.in_order = true;
        params.zeros_masked = true;
        Check(params, masked);
      }
    }
  }
}

TEST_P(RecurrenceConformance, AGruMayResetAfterTheProduct) {
  for (const bool use_bias : {false, true}) {
    RecurrenceParams params = Usual(RecurrentCell::kGru);
    params.reset_after = true;
    params.use_bias = use_bias;
    Check(params);
    Check(params, /*masked=*/true, /*scaled=*/true);
  }
}

TEST_P(RecurrenceConformance, ScaledStatesReachTheProductsOnly) {
  for (const RecurrentCell cell : {RecurrentCell::kSimple, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    Check(Usual(cell), /*masked=*/false, /*scaled=*/true);
    Check(Usual(cell), /*masked=*/true, /*scaled=*/true);
  }
}

TEST_P(RecurrenceConformance, StatesAreGivenAndReturned) {
  for (const RecurrentCell cell : {RecurrentCell::kSimple, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    for (const bool reset_after : {false, true}) {
      for (const bool masked : {false, true}) {
        RecurrenceParams params = Usual(cell);
        params.reset_after = params.use_bias = reset_after && cell == RecurrentCell::kGru;
        params.backwards = params.sequences = params.zeros_masked = masked;
        Check(params, Options{.masked = masked, .states = true});
        Check(params, Options{.masked = masked, .scaled = true, .states = true});
        params.steps = 1;
        Check(params, Options{.states = true});
      }
    }
  }
}

TEST_P(RecurrenceConformance, ItWritesItsColumnsOfWiderRows) {
  for (const bool sequences : {false, true}) {
    RecurrenceParams params = Usual(RecurrentCell::kLstm);
    params.sequences = sequences;
    params.backwards = true;
    params.y_width = 12;
    params.y_column = 7;
    Check(params);
  }
}

// More examples than a tile has rows, and units that fill no panel, one, and several.
TEST_P(RecurrenceConformance, EverySizeAgreesWithItsDefinition) {
  for (const RecurrentCell cell : {RecurrentCell::kLstm, RecurrentCell::kGru}) {
    for (const int64_t batch : {1, 2, 7, 29}) {
      for (const int64_t units : {1, 16, 35}) {
        RecurrenceParams params = Usual(cell);
        params.batch = batch;
        params.units = units;
        params.steps = 2;
        Check(params);
      }
    }
  }
}

TEST_P(RecurrenceConformance, OtherActivationsAgreeWithTheirDefinition) {
  for (const kernels::ActivationParams& f : {kernels::ActivationParams{.kind = Activation::kLinear},
                                             {.kind = Activation::kRelu},
                                             {.kind = Activation::kRelu, .slope = 0.25f, .limit = 0.75f},
                                             {.kind = Activation::kElu, .slope = 1},
                                             {.kind = Activation::kSelu},
                                             {.kind = Activation::kSoftplus},
                                             {.kind = Activation::kHardSigmoid},
                                             {.kind = Activation::kSigmoid}}) {
    RecurrenceParams params = Usual(RecurrentCell::kLstm);
    params.units = 3;
    params.activation = f;
    params.recurrent_activation.kind = Activation::kTanh;
    Check(params);
  }
}

TEST_P(RecurrenceConformance, UnsupportedParametersAreRefused) {
  const auto refusal = [&](const RecurrenceParams& params) {
    return std::string(device().ops().MakeRecurrence(params).status().message());
  };
  RecurrenceParams params = Usual(RecurrentCell::kLstm);
  params.steps = 0;
  EXPECT_THAT(refusal(params), testing::HasSubstr("5 units over 0 steps of 3 examples"));
  params = Usual(RecurrentCell::kLstm);
  params.activation.kind = Activation::kGelu;
  EXPECT_THAT(refusal(params), testing::HasSubstr("activation"));
  params = Usual(RecurrentCell::kLstm);
  params.y_width = 8;
  params.y_column = 4;
  EXPECT_THAT(refusal(params), testing::HasSubstr("columns from 4 of 8"));
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(RecurrenceConformance);

}  // namespace
}  // namespace cairn::conformance
