// Convolutions with groups and dilation, transposed convolutions, embeddings: forward against definitions,
// backward against central differences.
#include <gmock/gmock.h>

#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {
namespace {

using kernels::Layout;
using kernels::Padding;
using kernels::TensorDesc;
using reference::Convolution;
using reference::Tensor;
using testing::FloatNear;
using testing::Pointwise;

using Forward = std::function<Tensor(const Tensor& x, const Tensor& kernel, const std::vector<double>& bias)>;

class LinearConformance : public ConformanceTest {
 protected:
  void Check(absl::StatusOr<std::unique_ptr<kernels::LinearOp>> made, Tensor x, Layout layout, Tensor kernel,
             std::vector<double> bias, const Forward& forward) {
    ASSERT_TRUE(made.ok()) << made.status();
    kernels::LinearOp& op = **made;
    const TensorDesc x_desc = {x.shape, layout}, y_desc = op.output();
    const auto x_memory = Put(x, layout), kernel_memory = Put(kernel), bias_memory = Put(bias);
    const auto y_memory = Poisoned(y_desc.num_floats());
    const float* bias_data = bias.empty() ? nullptr : bias_memory->data();
    ASSERT_TRUE(op.Forward(x_memory->data(), kernel_memory->data(), bias_data, y_memory->data()).ok());
    const Tensor y = forward(x, kernel, bias);
    ASSERT_EQ(y_desc.shape, y.shape);
    ExpectNear(Get(*y_memory, y_desc), y.values, kernel.shape.num_elements());

    const Tensor dy = RandomTensor(y.shape, 4);
    const auto dy_memory = Put(dy, y_desc.layout), dx_memory = Poisoned(x_desc.num_floats());
    const auto dkernel_memory = Poisoned(kernel.shape.num_elements());
    const auto dbias_memory = Poisoned(static_cast<int64_t>(bias.size()));
    ASSERT_TRUE(op.Backward(x_memory->data(), kernel_memory->data(), y_memory->data(), dy_memory->data(),
                            dx_memory->data(), dkernel_memory->data(),
                            bias.empty() ? nullptr : dbias_memory->data())
                    .ok());
    if (op.splits_backward()) {
      const auto dy_again = Put(dy, y_desc.layout), dx_again = Poisoned(x_desc.num_floats());
      ASSERT_TRUE(op.Backward(x_memory->data(), kernel_memory->data(), y_memory->data(), dy_again->data(),
                              nullptr, dkernel_memory->data(), bias.empty() ? nullptr : dbias_memory->data())
                      .ok());
      ASSERT_TRUE(op.BackwardInput(kernel_memory->data(), dy_again->data(), dx_again->data()).ok());
      EXPECT_EQ(Get(*dx_again, x_desc), Get(*dx_memory, x_desc));
    }
    const auto loss = [&] { return Dot(forward(x, kernel, bias).values, dy.values); };
    {
      SCOPED_TRACE("dx");
      ExpectGradient(Get(*dx_memory, x_desc), x.values, loss);
    }
    {
      SCOPED_TRACE("dkernel");
      ExpectGradient(Get(*dkernel_memory, {kernel.shape}), kernel.values, loss);
    }
    if (bias.empty()) return;
    SCOPED_TRACE("dbias");
    ExpectGradient(Get(*dbias_memory, {{static_cast<int64_t>(bias.size())}}), bias, loss);
  }
};

TEST_P(LinearConformance, ConvolutionsWithGroupsAndDilation) {
  const Convolution cases[] = {
      {4, 4, 3, 1, 1, 4, false},    {4, 8, 3, 2, 1, 4, true},   {3, 3, 3, 1, 2, 3, true},
      {4, 6, 3, 1, 1, 2, true},     {3, 5, 3, 1, 2, 1, false},  {16, 16, 3, 1, 1, 16, true},
      {16, 32, 3, 2, 1, 16, false}, {32, 16, 3, 1, 2, 1, true}, {5, 10, 2, 1, 3, 5, true},
      {20, 20, 5, 1, 1, 20, true},  {9, 9, 5, 2, 1, 9, true},   {16, 16, 5, 1, 1, 16, false},
      {17, 17, 7, 1, 1, 17, true},  {8, 8, 7, 2, 1, 8, true},   {12, 12, 4, 1, 1, 12, true},
      {8, 8, 2, 2, 1, 8, false},
  };
  for (const Convolution& c : cases) {
    for (Layout layout : layouts()) {
      SCOPED_TRACE(testing::Message() << c.channels << " -> " << c.filters << ", kernel " << c.size
                                      << ", stride " << c.stride << ", dilation " << c.dilation << ", groups "
                                      << c.groups << ", layout " << static_cast<int>(layout));
      const bool large = c.channels > 8;
      const Tensor x = RandomTensor({large ? 1 : 2, large ? 5 : 7, 6, c.channels}, 1);
      Check(device().ops().MakeConv2D(ParamsOf(c, {x.shape, layout})), x, layout,
            RandomTensor({c.size, c.size, c.channels / c.groups, c.filters}, 2),
            RandomTensor({c.filters}, 3).values,
            [&](const Tensor& a, const Tensor& k, const std::vector<double>& b) {
              return reference::GroupedConv2D(a, c, k, b);
            });
      if (HasFatalFailure()) return;
    }
  }
}

// A depthwise convolution with a kernel of 1 x 5 is that with 5 x 5 whose other rows are 0, and the same in columns.
TEST_P(LinearConformance, DepthwiseKernelsMayBeLongerThanHigh) {
  constexpr int64_t kChannels = 19, kSize = 5, kBatch = 3;
  const Tensor x = RandomTensor({kBatch, 9, 11, kChannels}, 1), dy = RandomTensor(x.shape, 2);
  const auto run = [&](int64_t height, int64_t width, const Tensor& kernel) {
    auto op = device().ops().MakeConv2D({.input = {x.shape},
                                         .filters = kChannels,
                                         .kernel_height = height,
                                         .kernel_width = width,
                                         .groups = kChannels,
                                         .padding = Padding::kSame,
                                         .use_bias = false});
    EXPECT_TRUE(op.ok()) << op.status();
    const TensorDesc y_desc = (*op)->output();
    const auto y = Poisoned(y_desc.num_floats()), dx = Poisoned(x.shape.num_elements()),
               dkernel = Poisoned(kernel.shape.num_elements());
    const auto x_memory = Put(x, Layout::kRowMajor), kernel_memory = Put(kernel),
               dy_memory = Put(dy, y_desc.layout);
    EXPECT_TRUE((*op)->Forward(x_memory->data(), kernel_memory->data(), nullptr, y->data()).ok());
    EXPECT_TRUE((*op)
                    ->Backward(x_memory->data(), kernel_memory->data(), y->data(), dy_memory->data(),
                               dx->data(), dkernel->data(), nullptr)
                    .ok());
    return std::array{Get(*y, y_desc), Get(*dx, {x.shape}), Get(*dkernel, {kernel.shape})};
  };
  for (const bool row : {true, false}) {
    SCOPED_TRACE(row ? "1 x 5" : "5 x 1");
    const Tensor line = RandomTensor({row ? 1 : kSize, row ? kSize : 1, 1, kChannels}, 3);
    Tensor square({kSize, kSize, 1, kChannels});
    const auto place = [&](int64_t i) {
      return (row ? kSize / 2 * kSize + i : i * kSize + kSize / 2) * kChannels;
    };
    for (int64_t i = 0; i < kSize; ++i)
      for (int64_t c = 0; c < kChannels; ++c) square.at(place(i) + c) = line.at(i * kChannels + c);
    const auto thin = run(row ? 1 : kSize, row ? kSize : 1, line), whole = run(kSize, kSize, square);
    EXPECT_THAT(thin[0], Pointwise(FloatNear(1e-5f), whole[0]));
    EXPECT_THAT(thin[1], Pointwise(FloatNear(1e-5f), whole[1]));
    for (int64_t i = 0; i < kSize * kChannels; ++i) {
      EXPECT_NEAR(thin[2][static_cast<size_t>(i)],
                  whole[2][static_cast<size_t>(place(i / kChannels) + i % kChannels)], 1e-3)
          << i;
    }
  }
}

TEST_P(LinearConformance, GroupsThatDoNotDivideTheChannelsAreRefused) {
  const auto status =
      device().ops().MakeConv2D({.input = {{1, 4, 4, 6}}, .filters = 6, .groups = 4}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_P(LinearConformance, TransposedConvolutions) {
  for (bool same : {false, true}) {
    for (const auto& [size, stride] : {std::pair{3, 1}, {3, 2}, {2, 2}, {2, 3}, {4, 2}}) {
      for (const auto& [channels, filters] : {std::pair{3, 2}, {16, 16}, {1, 5}}) {
        for (Layout layout : layouts()) {
          SCOPED_TRACE(testing::Message()
                       << channels << " -> " << filters << ", kernel " << size << ", stride " << stride
                       << (same ? " same" : " valid") << ", layout " << static_cast<int>(layout));
          const Tensor x = RandomTensor({1, 3, 4, channels}, 1);
          auto op = device().ops().MakeConv2DTranspose({.input = {x.shape, layout},
                                                        .filters = filters,
                                                        .kernel_height = size,
                                                        .kernel_width = size,
                                                        .stride_height = stride,
                                                        .stride_width = stride,
                                                        .padding = same ? Padding::kSame : Padding::kValid});
          const int64_t more = same ? 0 : std::max(size - stride, 0);  // Keras' deconvolution length
          const Shape output = {1, 3 * stride + more, 4 * stride + more, filters};
          Check(std::move(op), x, layout, RandomTensor({size, size, filters, channels}, 2),
                RandomTensor({filters}, 3).values,
                [&, step = stride](const Tensor& a, const Tensor& k, const std::vector<double>& b) {
                  return reference::Conv2DTranspose(a, step, same, output, k, b);
                });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

struct Table {
  int64_t indices, rows, width;
};

// Every other index is 0, the rest are spread over the table: one long sum, many short ones, and none.
std::vector<double> IndicesOf(const Table& t) {
  std::vector<double> indices;
  for (int64_t i = 0; i < t.indices; ++i) {
    indices.push_back(static_cast<double>(i % 2 == 0 ? 0 : i * i % (t.rows - 1)));
  }
  return indices;
}

struct Looked {
  std::vector<double> y, dtable;
};
Looked LookUp(const Table& t, const std::vector<double>& indices, const Tensor& table, const Tensor& dy) {
  Looked looked;
  looked.dtable.resize(table.values.size());
  for (int64_t i = 0; i < t.indices; ++i) {
    for (int64_t j = 0; j < t.width; ++j) {
      const int64_t at = static_cast<int64_t>(indices[static_cast<size_t>(i)]) * t.width + j;
      looked.y.push_back(table.at(at));
      looked.dtable[static_cast<size_t>(at)] += dy.at(i * t.width + j);
    }
  }
  return looked;
}

TEST_P(LinearConformance, AnEmbeddingReadsRowsAndSumsTheirGradients) {
  for (const Table& t : {Table{5, 4, 3}, Table{1500, 40, 5}, Table{300, 7, 132}, Table{40, 700, 8}}) {
    SCOPED_TRACE(testing::Message() << t.indices << " rows of [" << t.rows << "," << t.width << "]");
    auto op = device().ops().MakeEmbedding({.indices = t.indices, .rows = t.rows, .width = t.width}).value();
    const std::vector<double> indices = IndicesOf(t);
    Tensor table = RandomTensor({t.rows * t.width + 1}, 1);
    const Tensor dy = RandomTensor({t.indices, t.width}, 2);
    const auto x_memory = Put(indices), table_memory = Put(table), dy_memory = Put(dy);
    for (int offset : {0, 1}) {  // variables and gradients lie anywhere
      const auto y_memory = Poisoned(t.indices * t.width), dtable_memory = Poisoned(t.rows * t.width + 1);
      ASSERT_TRUE(
          op->Forward(x_memory->data(), table_memory->data() + offset, nullptr, y_memory->data()).ok());
      ASSERT_TRUE(op->Backward(x_memory->data(), table_memory->data() + offset, y_memory->data(),
                               dy_memory->data(), nullptr, dtable_memory->data() + offset, nullptr)
                      .ok());
      Tensor used({t.rows, t.width});
      for (int64_t i = 0; i < used.shape.num_elements(); ++i) used.at(i) = table.at(i + offset);
      const Looked looked = LookUp(t, indices, used, dy);
      ExpectNear(Get(*y_memory, {{t.indices, t.width}}), looked.y, 1);
      auto dtable = Get(*dtable_memory, {{t.rows * t.width + 1}});
      dtable.erase(offset == 0 ? dtable.end() - 1 : dtable.begin());
      ExpectNear(dtable, looked.dtable, t.indices);
    }
  }
}

TEST_P(LinearConformance, AnIndexOutsideTheTableIsRefused) {
  auto op = device().ops().MakeEmbedding({.indices = 1, .rows = 4, .width = 1}).value();
  const auto table = Put(RandomTensor({4, 1}, 1)), y = Poisoned(1);
  for (double index : {-1.0, 4.0, 1e9}) {
    const auto x = Put(std::vector<double>{index});
    absl::Status status = op->Forward(x->data(), table->data(), nullptr, y->data());
    status.Update(device().Synchronize());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << index;
  }
}

TEST_P(LinearConformance, AnEmbeddingTakesIndicesOfEveryIntegerType) {
  const Table t = {300, 40, 5};
  const std::vector<double> indices = IndicesOf(t);
  const Tensor table = RandomTensor({t.rows, t.width}, 1), dy = RandomTensor({t.indices, t.width}, 2);
  const auto table_memory = Put(table), dy_memory = Put(dy);
  const Looked looked = LookUp(t, indices, table, dy);
  for (const DType type : {DType::kInt32, DType::kInt64, DType::kUint8}) {
    SCOPED_TRACE(NameOf(type));
    auto op = device()
                  .ops()
                  .MakeEmbedding({.indices = t.indices, .rows = t.rows, .width = t.width, .index_type = type})
                  .value();
    const auto x = PutIntegers({indices.begin(), indices.end()}, type);
    const auto y = Poisoned(t.indices * t.width), dtable = Poisoned(t.rows * t.width);
    ASSERT_TRUE(op->Forward(x->data(), table_memory->data(), nullptr, y->data()).ok());
    ASSERT_TRUE(op->Backward(x->data(), table_memory->data(), y->data(), dy_memory->data(), nullptr,
                             dtable->data(), nullptr)
                    .ok());
    ExpectNear(Get(*y, {{t.indices, t.width}}), looked.y, 1);
    ExpectNear(Get(*dtable, {{t.rows, t.width}}), looked.dtable, t.indices);
  }
}

TEST_P(LinearConformance, RowsThatFloatsCannotTellApartAreOtherRows) {
  constexpr int64_t kRows = (int64_t{1} << 24) + 2;
  auto op = device()
                .ops()
                .MakeEmbedding({.indices = 2, .rows = kRows, .width = 1, .index_type = DType::kInt64})
                .value();
  auto table = device().Allocate(kRows, "test").value();
  const float ends[] = {3, 5};  // of rows 2^24 and 2^24 + 1
  ASSERT_TRUE(device().CopyToDevice(ends, table->data() + kRows - 2, sizeof(ends)).ok());
  const auto x = PutIntegers({kRows - 1, kRows - 2}, DType::kInt64), y = Poisoned(2);
  ASSERT_TRUE(op->Forward(x->data(), table->data(), nullptr, y->data()).ok());
  ExpectNear(Get(*y, {{2, 1}}), {5, 3}, 0);
}

TEST_P(LinearConformance, AnIntegerOutsideTheTableIsNamedExactly) {
  auto op =
      device()
          .ops()
          .MakeEmbedding(
              {.indices = 2, .rows = 4, .width = 1, .index_type = DType::kInt64, .what = "layer 'words'"})
          .value();
  const auto table = Put(RandomTensor({4, 1}, 1)), y = Poisoned(2);
  for (const int64_t index : {(int64_t{1} << 24) + 1, (int64_t{1} << 53) + 1, int64_t{-1}, int64_t{4},
                              std::numeric_limits<int64_t>::min()}) {
    const auto x = PutIntegers({3, index}, DType::kInt64);
    absl::Status status = op->Forward(x->data(), table->data(), nullptr, y->data());
    status.Update(device().Synchronize());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr(absl::StrCat("index ", index, " in a table of 4 rows: expected 0 to 3")));
  }
}

// A ragged tensor of row numbers: the lengths of its rows, and row numbers of which every third is row 1, so that the
// gradient of that row has many terms.
struct RaggedIndices {
  std::vector<int64_t> lengths, indices;

  RaggedIndices(std::vector<int64_t> of_rows, int64_t table_rows) : lengths(std::move(of_rows)) {
    int64_t count = 0;
    for (const int64_t length : lengths) count += length;
    for (int64_t i = 0; i < count; ++i) indices.push_back(i % 3 == 0 ? 1 : i * 31 % table_rows);
  }
  int64_t rows() const { return static_cast<int64_t>(lengths.size()); }
  // As EmbeddingParams::ragged_mean describes.
  std::vector<int64_t> InMemory() const {
    std::vector<int64_t> memory = {0};
    for (const int64_t length : lengths) memory.push_back(memory.back() + length);
    memory.insert(memory.end(), indices.begin(), indices.end());
    memory.resize(memory.size() + indices.size(), -1);
    return memory;
  }
};

Looked MeansOf(const RaggedIndices& x, int64_t width, const Tensor& table, const Tensor& dy) {
  Looked looked;
  looked.y.resize(x.lengths.size() * static_cast<size_t>(width));
  looked.dtable.resize(table.values.size());
  size_t place = 0;
  for (size_t row = 0; row < x.lengths.size(); ++row) {
    const auto length = static_cast<double>(x.lengths[row]);
    for (int64_t i = 0; i < x.lengths[row]; ++i, ++place) {
      for (int64_t j = 0; j < width; ++j) {
        const int64_t at = x.indices[place] * width + j;
        const auto of_y = static_cast<int64_t>(row) * width + j;
        looked.y[static_cast<size_t>(of_y)] += table.at(at) / length;
        looked.dtable[static_cast<size_t>(at)] += dy.at(of_y) / length;
      }
    }
  }
  return looked;
}

std::vector<int64_t> ManyLengths() {
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < 300; ++row) lengths.push_back(1 + row * 7 % 13);
  return lengths;
}

TEST_P(LinearConformance, AnEmbeddingOfRaggedIndicesGivesMeansAndTheirGradients) {
  struct Case {
    std::vector<int64_t> lengths;
    int64_t table_rows, width;
  };
  for (const Case& c :
       {Case{{1}, 4, 3}, Case{{3, 1, 7}, 4, 1}, Case{{5000}, 40, 5}, Case{{1, 3000, 2}, 700, 132},
        Case{ManyLengths(), 90, 33}, Case{{0, 2, 0, 0, 3, 0}, 4, 5}, Case{{0, 0}, 4, 3}}) {
    const RaggedIndices ragged(c.lengths, c.table_rows);
    const int64_t rows = ragged.rows(), size = c.table_rows * c.width;
    SCOPED_TRACE(testing::Message() << rows << " rows, table [" << c.table_rows << "," << c.width << "]");
    auto op = device()
                  .ops()
                  .MakeEmbedding({.indices = rows,
                                  .rows = c.table_rows,
                                  .width = c.width,
                                  .index_type = DType::kInt64,
                                  .ragged_mean = true})
                  .value();
    Tensor table = RandomTensor({size + 1}, 1);
    const Tensor dy = RandomTensor({rows, c.width}, 2);
    const auto x = PutIntegers(ragged.InMemory(), DType::kInt64), table_memory = Put(table),
               dy_memory = Put(dy);
    for (int offset : {0, 1}) {  // variables and gradients lie anywhere
      const auto y = Poisoned(rows * c.width), dtable_memory = Poisoned(size + 1);
      ASSERT_TRUE(op->Forward(x->data(), table_memory->data() + offset, nullptr, y->data()).ok());
      ASSERT_TRUE(op->Backward(x->data(), table_memory->data() + offset, y->data(), dy_memory->data(),
                               nullptr, dtable_memory->data() + offset, nullptr)
                      .ok());
      Tensor used({c.table_rows, c.width});
      for (int64_t i = 0; i < size; ++i) used.at(i) = table.at(i + offset);
      const Looked looked = MeansOf(ragged, c.width, used, dy);
      const auto terms = static_cast<int64_t>(ragged.indices.size());
      ExpectNear(Get(*y, {{rows, c.width}}), looked.y, terms);
      auto dtable = Get(*dtable_memory, {{size + 1}});
      dtable.erase(offset == 0 ? dtable.end() - 1 : dtable.begin());
      ExpectNear(dtable, looked.dtable, terms);
    }
  }
}

TEST_P(LinearConformance, ABadRaggedIndexIsNamed) {
  auto op = device()
                .ops()
                .MakeEmbedding({.indices = 4,
                                .rows = 5,
                                .width = 1,
                                .index_type = DType::kInt64,
                                .ragged_mean = true,
                                .what = "layer 'words'"})
                .value();
  const auto table = Put(RandomTensor({5, 1}, 1)), y = Poisoned(4);
  const auto error = [&](RaggedIndices x) {
    const auto memory = PutIntegers(x.InMemory(), DType::kInt64);
    absl::Status status = op->Forward(memory->data(), table->data(), nullptr, y->data());
    status.Update(device().Synchronize());
    return std::string(status.message());
  };
  EXPECT_EQ(error(RaggedIndices({1, 2, 3, 1}, 5)), "");
  for (const int64_t index :
       {(int64_t{1} << 32) + 1, int64_t{-1}, int64_t{5}, std::numeric_limits<int64_t>::min()}) {
    RaggedIndices x({2, 90, 0, 1}, 5);
    x.indices[80] = index;
    x.indices[85] = 99;
    EXPECT_THAT(error(x),
                testing::HasSubstr(absl::StrCat("index ", index, " in a table of 5 rows: expected 0 to 4")));
  }
}

INSTANTIATE_CONFORMANCE(LinearConformance);

class EmbeddingIn16Bits : public ConformanceTest {};

TEST_P(EmbeddingIn16Bits, RowsAreRoundedAndTheirGradientsAreSummedInFloats) {
  const Table t = {400, 30, 12};
  auto op = device().ops().MakeEmbedding({.indices = t.indices, .rows = t.rows, .width = t.width}).value();
  EXPECT_EQ(op->output().type, type());
  const std::vector<double> indices = IndicesOf(t);
  const Tensor table = RandomTensor({t.rows, t.width}, 1);
  const Tensor dy = Rounded(RandomTensor({t.indices, t.width}, 2), type());
  const auto x = Put(indices), table_memory = Put(table), dy_memory = PutAs(dy, type());
  const auto y = Poisoned(op->output().num_floats()), dtable = Poisoned(t.rows * t.width);
  ASSERT_TRUE(op->Forward(x->data(), table_memory->data(), nullptr, y->data()).ok());
  ASSERT_TRUE(op->Backward(x->data(), table_memory->data(), y->data(), dy_memory->data(), nullptr,
                           dtable->data(), nullptr)
                  .ok());
  const Looked looked = LookUp(t, indices, Rounded(table, type()), dy);
  ExpectNear(GetAs(*y, {t.indices, t.width}, type()), looked.y, 0);
  ExpectNear(Get(*dtable, {table.shape}), looked.dtable, t.indices);
}

TEST_P(EmbeddingIn16Bits, MeansAreRoundedAndTheirGradientsAreSummedInFloats) {
  constexpr int64_t kRows = 30, kWidth = 12;
  const RaggedIndices ragged({3, 1, 200, 40}, kRows);
  auto op = device()
                .ops()
                .MakeEmbedding({.indices = ragged.rows(),
                                .rows = kRows,
                                .width = kWidth,
                                .index_type = DType::kInt64,
                                .ragged_mean = true})
                .value();
  EXPECT_EQ(op->output().type, type());
  const Tensor table = RandomTensor({kRows, kWidth}, 1);
  const Tensor dy = Rounded(RandomTensor({ragged.rows(), kWidth}, 2), type());
  const auto x = PutIntegers(ragged.InMemory(), DType::kInt64), table_memory = Put(table);
  const auto dy_memory = PutAs(dy, type());
  const auto y = Poisoned(op->output().num_floats()), dtable = Poisoned(kRows * kWidth);
  ASSERT_TRUE(op->Forward(x->data(), table_memory->data(), nullptr, y->data()).ok());
  ASSERT_TRUE(op->Backward(x->data(), table_memory->data(), y->data(), dy_memory->data(), nullptr,
                           dtable->data(), nullptr)
                  .ok());
  const Looked looked = MeansOf(ragged, kWidth, table, dy);
  ExpectClose(GetAs(*y, {ragged.rows(), kWidth}, type()), looked.y);
  ExpectNear(Get(*dtable, {table.shape}), looked.dtable, static_cast<int64_t>(ragged.indices.size()));
}

INSTANTIATE_16_BIT_CONFORMANCE(EmbeddingIn16Bits);

}  // namespace
}  // namespace cairn::conformance
