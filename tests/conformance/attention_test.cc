// Attention: forward against the definition, backward against central differences of it.
#include "kernels/attention.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {
namespace {

using kernels::AttentionParams;
using reference::Tensor;

// The masks of a case; empty: none.
struct Masks {
  std::vector<double> queries, keys, pairs;
};

// Values of 0 and 1.
std::vector<double> Bits(int64_t count, uint64_t seed) {
  std::vector<double> bits = RandomTensor({count}, seed).values;
  for (double& bit : bits) bit = bit > -0.4 ? 1 : 0;
  return bits;
}

class AttentionConformance : public ConformanceTest {
 protected:
  struct Case {
    AttentionParams params;
    Masks masks;
    Tensor q, k, v;
    std::vector<double> kept;  // [batch, heads, queries, keys] the factors of dropout; empty: none
    int64_t first_query = 0;
  };

  Case MakeCase(AttentionParams params, Masks masks = {}) {
    params.type = type();
    const auto random = [this](const Shape& shape, uint64_t seed) {
      return Rounded(RandomTensor(shape, seed), type());
    };
    return {
        .params = params,
        .masks = std::move(masks),
        .q = random(
            {params.batch, params.queries, params.heads, params.width > 0 ? params.width : params.keys}, 1),
        .k = random({params.batch, params.keys, params.key_heads, params.width}, 2),
        .v = random({params.batch, params.keys, params.key_heads, params.value_width}, 3),
        .kept = {}};
  }

  static bool Sees(const Case& c, int64_t example, int64_t query, int64_t key) {
    const auto bit = [](const std::vector<double>& mask, int64_t at) {
      return mask.empty() || mask[static_cast<size_t>(at)] != 0;
    };
    const int64_t row = example * c.params.queries + query;
    return (!c.params.causal || key <= c.first_query + query) && bit(c.masks.queries, row) &&
           bit(c.masks.keys, example * c.params.keys + key) && bit(c.masks.pairs, row * c.params.keys + key);
  }

  static std::vector<double> Definition(const Case& c) {
    const AttentionParams& p = c.params;
    std::vector<double> y(static_cast<size_t>(p.batch * p.queries * p.heads * p.value_width));
    std::vector<double> weights(static_cast<size_t>(p.keys));
    for (int64_t row = 0; row < p.batch * p.queries * p.heads; ++row) {
      const int64_t head = row % p.heads, query = row / p.heads % p.queries,
                    example = row / p.heads / p.queries;
      const int64_t key_head = head * p.key_heads / p.heads;
      double largest = -INFINITY, sum = 0;
      for (int64_t key = 0; key < p.keys; ++key) {
        double score = kernels::kMaskedScore;
        if (Sees(c, example, query, key)) {
          score = p.width == 0 ? c.q.at(row * p.keys + key) : 0;
          for (int64_t i = 0; i < p.width; ++i) {
            score += c.q.at(row * p.width + i) *
                     c.k.at(((example * p.keys + key) * p.key_heads + key_head) * p.width + i);
          }
          score *= static_cast<double>(p.scale);
        }
        weights[static_cast<size_t>(key)] = score;
        largest = std::max(largest, score);
      }
      for (double& weight : weights) sum += weight = std::exp(weight - largest);
      for (int64_t key = 0; key < p.keys; ++key) {
        double weight = weights[static_cast<size_t>(key)] / sum;
        if (!c.kept.empty())
          weight *=
              c.kept[static_cast<size_t>(((example * p.heads + head) * p.queries + query) * p.keys + key)];
        for (int64_t i = 0; i < p.value_width; ++i) {
          y[static_cast<size_t>(row * p.value_width + i)] +=
              weight * c.v.at(((example * p.keys + key) * p.key_heads + key_head) * p.value_width + i);
        }
      }
    }
    return y;
  }

  void Check(Case c) {
    const AttentionParams& p = c.params;
    SCOPED_TRACE(testing::Message() << "q " << c.q.shape.ToString() << ", k " << c.k.shape.ToString()
                                    << ", v " << c.v.shape.ToString() << ", causal " << p.causal
                                    << ", dropout " << p.dropout);
    auto made = device().ops().MakeAttention(p);
    ASSERT_TRUE(made.ok()) << made.status();
    const Shape output = {p.batch, p.queries, p.heads, p.value_width};
    const bool has_keys = p.width > 0;  // otherwise the scores are given
    const auto q = PutActivation(c.q), k = has_keys ? PutActivation(c.k) : nullptr, v = PutActivation(c.v);
    const auto put_mask = [this](const std::vector<double>& mask) {
      return mask.empty() ? nullptr : Put(mask);
    };
    const auto query_mask = put_mask(c.masks.queries), key_mask = put_mask(c.masks.keys),
               mask = put_mask(c.masks.pairs);
    const auto data = [](const std::unique_ptr<kernels::DeviceMemory>& memory) {
      return memory == nullptr ? nullptr : memory->data();
    };
    const kernels::AttentionInputs inputs = {.q = q->data(),
                                             .k = data(k),
                                             .v = v->data(),
                                             .query_mask = data(query_mask),
                                             .key_mask = data(key_mask),
                                             .mask = data(mask),
                                             .first_query = c.first_query};
    const auto floats = [this](const Shape& shape) { return ActivationDesc(shape).num_floats(); };
    const auto y = Poisoned(floats(output));
    ASSERT_TRUE((*made)->Forward(inputs, p.dropout > 0, y->data()).ok());
    ExpectActivation(GetActivation(*y, ActivationDesc(output)), Definition(c), p.width + p.keys);
    if (c.first_query > 0) return;  // such queries have no gradients

    const Tensor dy = Rounded(RandomTensor(output, 4), type());
    const auto dy_memory = PutActivation(dy);
    const auto dq = Poisoned(floats(c.q.shape)), dk = has_keys ? Poisoned(floats(c.k.shape)) : nullptr,
               dv = Poisoned(floats(c.v.shape));
    ASSERT_TRUE(
        (*made)->Backward(inputs, y->data(), dy_memory->data(), dq->data(), data(dk), dv->data()).ok());
    const auto f = [&] { return Dot(Definition(c), dy.values); };
    ExpectActivationGradient(GetActivation(*dq, ActivationDesc(c.q.shape)), c.q.values, f);
    if (has_keys) ExpectActivationGradient(GetActivation(*dk, ActivationDesc(c.k.shape)), c.k.values, f);
    ExpectActivationGradient(GetActivation(*dv, ActivationDesc(c.v.shape)), c.v.values, f);
  }
};

AttentionParams SelfAttention(int64_t length, int64_t heads, int64_t width) {
  return {.batch = 2,
          .queries = length,
          .keys = length,
          .heads = heads,
          .key_heads = heads,
          .width = width,
          .value_width = width,
          .scale = 0.7f};
}

TEST_P(AttentionConformance, AgreesWithItsDefinition) {
  for (const bool causal : {false, true}) {
    for (const int64_t length : {1, 2, 7, 33}) {
      if (length == 1 && type() != kernels::ElementType::kFloat32)
        continue;  // gradients of 0, but for rounding
      for (const int64_t width : {1, 5, 16, 19}) {
        AttentionParams params = SelfAttention(length, 2, width);
        params.causal = causal;
        Check(MakeCase(params));
      }
    }
  }
}

TEST_P(AttentionConformance, ScoresMayBeGiven) {
  for (const bool causal : {false, true}) {
    const AttentionParams params = {.batch = 2,
                                    .queries = 5,
                                    .keys = 7,
                                    .heads = 2,
                                    .key_heads = 1,
                                    .value_width = 3,
                                    .scale = 0.5,
                                    .causal = causal};
    Check(MakeCase(params));
    Check(MakeCase(params, {.queries = {}, .keys = Bits(2 * 7, 5), .pairs = Bits(2 * 5 * 7, 6)}));
  }
  // Several blocks of queries and of keys; with `causal`, keys that no query sees.
  for (const bool causal : {false, true}) {
    Check(MakeCase({.batch = 1,
                    .queries = 66,
                    .keys = 100,
                    .heads = 1,
                    .key_heads = 1,
                    .value_width = 2,
                    .causal = causal}));
  }
}

TEST_P(AttentionConformance, LongSequencesHaveSeveralBlocks) {
  for (const bool causal : {false, true}) {
    AttentionParams params = SelfAttention(217, 1, 21);
    params.batch = 1;
    params.causal = causal;
    params.scale = 3;
    Check(MakeCase(params));
  }
}

TEST_P(AttentionConformance, QueriesAndKeysMayDifferInNumber) {
  for (const bool causal : {false, true}) {
    for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{3, 130}, {70, 5}, {1, 40}}) {
      AttentionParams params = SelfAttention(queries, 2, 6);
      params.keys = keys;
      params.value_width = 9;
      params.causal = causal;
      Check(MakeCase(params));
    }
  }
}

TEST_P(AttentionConformance, QueriesMayContinueASequence) {
  for (const auto& [queries, first] : {std::pair<int64_t, int64_t>{3, 0}, {1, 40}, {3, 98}, {70, 60}}) {
    AttentionParams params = SelfAttention(queries, 4, 6);
    params.keys = 130;
    params.key_heads = 2;
    params.causal = true;
    Case c = MakeCase(params);
    c.first_query = first;
    Check(c);
    c.masks.keys = Bits(params.batch * params.keys, 5);
    for (int64_t example = 0; example < params.batch; ++example)
      c.masks.keys[static_cast<size_t>(example * params.keys)] = 0;  // at first, nothing is seen
    Check(std::move(c));
  }
}

TEST_P(AttentionConformance, HeadsShareKeys) {
  for (const int64_t key_heads : {1, 2, 3}) {
    AttentionParams params = SelfAttention(11, 6, 4);
    params.key_heads = key_heads;
    Check(MakeCase(params));
  }
}

TEST_P(AttentionConformance, MasksSelectKeys) {
  for (const bool causal : {false, true}) {
    AttentionParams params = SelfAttention(70, 2, 4);
    params.causal = causal;
    const int64_t rows = params.batch * params.queries;
    Check(MakeCase(params, {.queries = {}, .keys = Bits(params.batch * params.keys, 5), .pairs = {}}));
    Check(MakeCase(params, {.queries = {}, .keys = {}, .pairs = Bits(rows * params.keys, 6)}));
    Check(MakeCase(params, {.queries = Bits(rows, 7),
                            .keys = Bits(params.batch * params.keys, 8),
                            .pairs = Bits(rows * params.keys, 9)}));
  }
}

TEST_P(AttentionConformance, AQueryThatSeesNoKeyTakesTheMean) {
  AttentionParams params = SelfAttention(5, 1, 3);
  params.causal = true;
  std::vector<double> keys(10, 1.0);
  for (size_t key = 0; key < 5; ++key) keys[key] = 0;
  Check(MakeCase(params, {.queries = {}, .keys = keys, .pairs = {}}));
}

TEST_P(AttentionConformance, DropsTheWeightsThatDropoutDrops) {
  constexpr uint64_t kStream = 12;
  ASSERT_TRUE(device().SeedRandom(77, 3).ok());
  for (const bool causal : {false, true}) {
    AttentionParams params = SelfAttention(37, 2, 5);
    params.causal = causal;
    params.dropout = 0.3f;
    params.stream = kStream;
    Case c = MakeCase(params);
    const Shape weights = {params.batch, params.heads, params.queries, params.keys};
    auto dropout =
        device().ops().MakeDropout({.input = {.shape = weights}, .rate = params.dropout, .stream = kStream});
    ASSERT_TRUE(dropout.ok()) << dropout.status();
    const auto ones = Put(std::vector<double>(static_cast<size_t>(weights.num_elements()), 1.0));
    const auto kept = Poisoned(weights.num_elements());
    ASSERT_TRUE((*dropout)->Forward(ones->data(), kept->data()).ok());
    for (const float factor : Get(*kept, {.shape = weights})) c.kept.push_back(static_cast<double>(factor));
    Check(std::move(c));
  }
}

TEST_P(AttentionConformance, RefusesShapes) {
  const auto refusal = [&](const AttentionParams& params) {
    return std::string(device().ops().MakeAttention(params).status().message());
  };
  AttentionParams params = SelfAttention(4, 3, 2);
  params.key_heads = 2;
  EXPECT_THAT(refusal(params), testing::EndsWith("heads in multiples of those of k"));
  params = SelfAttention(0, 3, 2);
  EXPECT_THAT(refusal(params), testing::HasSubstr("extents of at least 1"));
  params = SelfAttention(4, 3, 2);
  params.dropout = 1;
  EXPECT_EQ(refusal(params), "attention with dropout 1: expected [0, 1)");
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(AttentionConformance);

}  // namespace
}  // namespace cairn::conformance
