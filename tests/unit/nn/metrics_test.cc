#include "nn/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/core/random.h"
#include "nn/metrics/score_counts.h"

namespace cairn::nn {
namespace {

using kernels::LossKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

using Floats = std::vector<float>;

// Outputs and targets for one loss, over some examples.
struct Examples {
  LossKind loss;
  Shape output;  // of one example
  Floats outputs, targets;
  Floats weights{};

  int64_t count() const { return static_cast<int64_t>(outputs.size()) / output.num_elements(); }
};

void Update(MetricSet& set, const Examples& examples, int64_t first, int64_t count) {
  const auto slice = [&](const Floats& values) {
    const size_t each = values.size() / static_cast<size_t>(examples.count());
    return absl::MakeConstSpan(values).subspan(static_cast<size_t>(first) * each,
                                               static_cast<size_t>(count) * each);
  };
  set.Update({.examples = count, .targets = slice(examples.targets), .weights = slice(examples.weights)},
             {.sums = {.examples = count}, .outputs = slice(examples.outputs)});
}

MetricSet MakeSet(const std::vector<CompiledMetric>& compiled, const Examples& examples) {
  return MetricSet(ParseMetrics(compiled, {.kind = examples.loss}, examples.output).value());
}

// The value of one metric, weighted if the examples have weights.
double ValueOf(const KerasObject& metric, const Examples& examples) {
  MetricSet set = MakeSet({{metric, !examples.weights.empty()}}, examples);
  Update(set, examples, 0, examples.count());
  for (const auto& [name, value] : set.Values()) {
    if (name != "loss") return value;
  }
  return std::nan("");
}

std::string MetricFault(const KerasObject& metric, LossKind loss = LossKind::kBinaryCrossentropy) {
  return std::string(ParseMetrics({{{metric}}}, {.kind = loss}, {3}).status().message());
}

std::vector<std::string> NamesOf(const std::vector<CompiledMetric>& compiled, LossKind loss,
                                 const Shape& output) {
  std::vector<std::string> names;
  const auto specs = ParseMetrics(compiled, {.kind = loss}, output);
  for (const MetricSpec& spec : specs.value()) {
    names.push_back(spec.name);
  }
  return names;
}

constexpr double kMetricTolerance = 1e-6;

// keras/src/metrics/accuracy_metrics_test.py

TEST(Accuracy, BinaryAccuracyMatchesKeras) {
  Examples examples = {LossKind::kBinaryCrossentropy, {1}, {0.98f, 1, 0, 0.6f}, {1, 1, 0, 0}};
  EXPECT_EQ(ValueOf(MetricOfName("accuracy"), examples), 0.75);
  EXPECT_EQ(ValueOf({.class_name = "BinaryAccuracy"}, examples), 0.75);
  examples.weights = {1, 0, 0, 1};
  EXPECT_EQ(ValueOf(MetricOfName("binary_accuracy"), examples), 0.5);
  const Examples others = {LossKind::kBinaryCrossentropy, {1}, {0.98f, 0.5f, 0.1f, 0.2f}, {1, 1, 0, 0}};
  EXPECT_EQ(ValueOf({.class_name = "BinaryAccuracy", .config = {{"threshold", 0.3}}}, others), 1);
  EXPECT_EQ(ValueOf({.class_name = "BinaryAccuracy", .config = {{"threshold", 0.9}}}, others), 0.75);
  EXPECT_EQ(ValueOf({.class_name = "BinaryAccuracy", .config = {{"threshold", 0.5}}}, others), 0.75)
      << "a prediction at the threshold is negative";
}

TEST(Accuracy, CategoricalAccuracyMatchesKeras) {
  Examples examples = {
      LossKind::kCategoricalCrossentropy, {3}, {0.1f, 0.9f, 0.8f, 0.05f, 0.95f, 0}, {0, 0, 1, 0, 1, 0}};
  EXPECT_EQ(ValueOf(MetricOfName("accuracy"), examples), 0.5);
  EXPECT_EQ(ValueOf({.class_name = "TopKCategoricalAccuracy", .config = {{"k", 1}}}, examples), 0.5);
  EXPECT_EQ(ValueOf({.class_name = "TopKCategoricalAccuracy", .config = {{"k", 2}}}, examples), 1);
  examples.weights = {0.7f, 0.3f};
  EXPECT_NEAR(ValueOf(MetricOfName("categorical_accuracy"), examples), 0.3, kMetricTolerance);
  EXPECT_NEAR(ValueOf({.class_name = "TopKCategoricalAccuracy", .config = {{"k", 1}}}, examples), 0.3,
              kMetricTolerance);
}

TEST(Accuracy, SparseCategoricalAccuracyMatchesKeras) {
  Examples examples = {
      LossKind::kSparseCategoricalCrossentropy, {3}, {0.1f, 0.6f, 0.3f, 0.05f, 0.95f, 0}, {2, 1}};
  const KerasObject top = {.class_name = "SparseTopKCategoricalAccuracy", .config = {{"k", 1}}};
  EXPECT_EQ(ValueOf(MetricOfName("acc"), examples), 0.5);
  EXPECT_EQ(ValueOf(top, examples), 0.5);
  EXPECT_EQ(ValueOf({.class_name = "SparseTopKCategoricalAccuracy"}, examples), 1) << "k is 5";
  examples.weights = {0.7f, 0.3f};
  EXPECT_NEAR(ValueOf(MetricOfName("accuracy"), examples), 0.3, kMetricTolerance);
  EXPECT_NEAR(ValueOf(top, examples), 0.3, kMetricTolerance);
}

// The expected values are those of Keras 3.15: m.update_state(targets, outputs, weights); m.result()
TEST(IntersectionOverUnion, MatchesKeras) {
  Examples examples = {LossKind::kSparseCategoricalCrossentropy,
                       {2, 3},
                       {0.7f, 0.2f, 0.1f, 0.1f, 0.3f, 0.6f, 0.2f, 0.5f, 0.3f, 0.4f, 0.3f, 0.3f, 0.1f, 0.1f,
                        0.8f, 0.3f, 0.6f, 0.1f},
                       {0, 2, 2, 0, 1, 1}};
  const auto iou = [](const char* name, std::map<std::string, double> config,
                      std::vector<double> classes = {}) {
    KerasObject metric = {.class_name = name, .config = std::move(config), .texts = {{"dtype", "int32"}}};
    if (!classes.empty()) metric.lists["target_class_ids"] = std::move(classes);
    return metric;
  };
  const std::map<std::string, double> written = {
      {"num_classes", 3}, {"sparse_y_true", 1}, {"sparse_y_pred", 0}, {"axis", -1}};
  EXPECT_NEAR(ValueOf(iou("MeanIoU", written), examples), 0.55555558, kMetricTolerance);
  EXPECT_NEAR(ValueOf(MetricOfName("mean_io_u"), examples), 0.55555558, kMetricTolerance);
  EXPECT_NEAR(ValueOf(iou("IoU", written, {0, 2}), examples), 0.66666669, kMetricTolerance);
  EXPECT_NEAR(ValueOf(iou("MeanIoU", {{"ignore_class", 1}}), examples), 0.5, kMetricTolerance);
  Examples unlabelled = examples;
  for (float& label : unlabelled.targets) label = label == 1 ? -1 : label;
  EXPECT_NEAR(ValueOf(iou("MeanIoU", {{"ignore_class", -1}}), unlabelled), 0.5, kMetricTolerance);
  examples.weights = {1, 0.5f, 2};
  EXPECT_NEAR(ValueOf(iou("MeanIoU", written), examples), 0.57671958, kMetricTolerance);

  Examples shares = {LossKind::kCategoricalCrossentropy, {2, 3}, examples.outputs, {}};
  for (const float label : examples.targets) {
    for (int kind = 0; kind < 3; ++kind)
      shares.targets.push_back(label == static_cast<float>(kind) ? 1.0f : 0.0f);
  }
  EXPECT_NEAR(ValueOf(iou("OneHotMeanIoU", {}), shares), 0.55555558, kMetricTolerance);
  EXPECT_NEAR(ValueOf(iou("OneHotIoU", {{"num_classes", 3}}, {1}), shares), 0.33333331, kMetricTolerance);

  const Examples binary = {LossKind::kBinaryCrossentropy, {1}, {0.9f, 0.5f, 0.1f, 0.7f}, {1, 0, 0, 0}};
  EXPECT_NEAR(ValueOf(iou("BinaryIoU", {}, {0, 1}), binary), 0.33333334, kMetricTolerance);
  EXPECT_NEAR(ValueOf(iou("BinaryIoU", {{"threshold", 0.6}}, {1}), binary), 0.5, kMetricTolerance);
}

TEST(IntersectionOverUnion, FaultsNameTheOption) {
  const LossKind sparse = LossKind::kSparseCategoricalCrossentropy;
  EXPECT_THAT(MetricFault({.class_name = "MeanIoU", .config = {{"num_classes", 4}}}, sparse),
              HasSubstr("num_classes 4: the outputs have 3 classes"));
  EXPECT_THAT(MetricFault({.class_name = "MeanIoU", .config = {{"sparse_y_pred", 1}}}, sparse),
              HasSubstr("sparse_y_pred 1 is not supported"));
  EXPECT_THAT(MetricFault({.class_name = "IoU", .lists = {{"target_class_ids", {3}}}}, sparse),
              HasSubstr("target_class_ids [3] is not supported"));
  EXPECT_THAT(MetricFault({.class_name = "MeanIoU", .lists = {{"target_class_ids", {1}}}}, sparse),
              HasSubstr("target_class_ids [1] is not supported"));
  EXPECT_THAT(MetricFault({.class_name = "MeanIoU"}), HasSubstr("metric 'MeanIoU' needs class indices"));
}

// The expected values are those of keras_hub 0.32.
TEST(Perplexity, MatchesKerasHub) {
  Examples examples = {LossKind::kSparseCategoricalCrossentropy,
                       {2, 3},
                       {1, 2, 0.5f, 0, -1, 3, 2, 2, 2, 0.25f, 4, -2},
                       {1, 2, 0, 0}};
  const KerasObject of_logits = {.class_name = "Perplexity", .config = {{"from_logits", 1}}};
  EXPECT_NEAR(ValueOf(of_logits, examples), 3.86179614, kMetricTolerance);
  const KerasObject masked = {.class_name = "Perplexity",
                              .config = {{"from_logits", 1}, {"mask_token_id", 0}}};
  EXPECT_NEAR(ValueOf(masked, examples), 1.30359566, kMetricTolerance);
  examples.weights = {1, 3};
  EXPECT_NEAR(ValueOf(of_logits, examples), 6.64679813, kMetricTolerance);
  examples.weights = {};
  examples.outputs = {0.5f, 0.3f, 0.2f, 0, 0, 1, 0.2f, 0.2f, 0.4f, 1, 0, 0};
  EXPECT_NEAR(ValueOf(MetricOfName("perplexity"), examples), 1.91088569, kMetricTolerance);
}

TEST(Perplexity, TakesLogitsIfTheLossDoes) {
  const LossSpec loss = {.kind = LossKind::kSparseCategoricalCrossentropy, .from_logits = true};
  const std::vector<CompiledMetric> compiled = {
      {MetricOfName("perplexity")}, {{.class_name = "Perplexity", .config = {{"from_logits", 0}}}}};
  const auto specs = ParseMetrics(compiled, loss, {4, 3});
  ASSERT_TRUE(specs.ok()) << specs.status();
  EXPECT_TRUE((*specs)[0].params.from_logits);
  EXPECT_FALSE((*specs)[1].params.from_logits) << "the option is given";
  EXPECT_EQ((*specs)[0].better, Better::kLower);
  EXPECT_THAT(MetricFault(MetricOfName("perplexity")), HasSubstr("needs class indices"));
}

TEST(Accuracy, TheFirstOfEqualOutputsIsThePrediction) {
  const Shape three = {3};
  const Floats outputs = {1, 2, 2, 0, 0, 0};
  EXPECT_EQ(
      ValueOf(MetricOfName("accuracy"), {LossKind::kSparseCategoricalCrossentropy, three, outputs, {1, 0}}),
      1);
  EXPECT_EQ(
      ValueOf(MetricOfName("accuracy"), {LossKind::kSparseCategoricalCrossentropy, three, outputs, {2, 1}}),
      0);
}

TEST(Accuracy, EqualOutputsAllCountAmongTheTopK) {
  const KerasObject top = {.class_name = "SparseTopKCategoricalAccuracy", .config = {{"k", 2}}};
  const Floats outputs = {3, 1, 1, 1, 0};
  for (float label : {0.0f, 1.0f, 2.0f, 3.0f, 4.0f}) {
    EXPECT_EQ(ValueOf(top, {LossKind::kSparseCategoricalCrossentropy, {5}, outputs, {label}}), label < 4)
        << label;
  }
}

TEST(Accuracy, NaNOutputsAreNotAmongTheTopK) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const KerasObject top = {.class_name = "SparseTopKCategoricalAccuracy", .config = {{"k", 1}}};
  EXPECT_EQ(ValueOf(top, {LossKind::kSparseCategoricalCrossentropy, {3}, {nan, 1, 0}, {0}}), 0);
  EXPECT_EQ(ValueOf(top, {LossKind::kSparseCategoricalCrossentropy, {3}, {nan, 1, 0}, {1}}), 1);
}

TEST(Accuracy, NaNIsTheLargestOutputAsInNumPy) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Examples examples = {LossKind::kSparseCategoricalCrossentropy, {3}, {2, nan, 3, nan, 5, nan}, {1, 1}};
  EXPECT_EQ(ValueOf(MetricOfName("accuracy"), examples), 0.5);
}

TEST(Accuracy, AnImagesAccuracyIsTheMeanOverItsPixels) {
  // Two images of two pixels; one pixel of the second is wrong.
  const Examples examples = {
      LossKind::kSparseCategoricalCrossentropy, {1, 2, 2}, {1, 0, 0, 1, 1, 0, 0, 1}, {0, 1, 0, 0}, {1, 3}};
  EXPECT_EQ(ValueOf(MetricOfName("accuracy"), examples), (1 * 1 + 3 * 0.5) / 4);
}

// keras/src/metrics/regression_metrics_test.py

TEST(Error, AgreesWithKeras) {
  Examples examples = {LossKind::kMeanSquaredError,
                       {5},
                       {0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1},
                       {0, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1}};
  for (const char* name : {"mse", "mae", "MeanSquaredError", "mean_absolute_error"}) {
    EXPECT_NEAR(ValueOf(MetricOfName(name), examples), 0.5, kMetricTolerance) << name;
  }
  examples.weights = {1, 1.5, 2, 2.5};
  for (const char* name : {"mse", "mae"}) {
    EXPECT_NEAR(ValueOf(MetricOfName(name), examples), 0.54285714, kMetricTolerance) << name;
  }
}

TEST(Error, TheRootIsTakenOfTheWholeMean) {
  Examples examples = {LossKind::kMeanSquaredError, {2}, {1, 1, 0, 0}, {0, 1, 0, 0}};
  EXPECT_EQ(ValueOf({.class_name = "RootMeanSquaredError"}, examples), 0.5);
  examples.weights = {1, 0};
  EXPECT_NEAR(ValueOf({.class_name = "RootMeanSquaredError"}, examples), 0.70710677, kMetricTolerance);
}

// keras/src/metrics/confusion_metrics_test.py

TEST(Precision, AgreesWithKeras) {
  const KerasObject precision = {.class_name = "Precision"};
  const LossKind binary = LossKind::kBinaryCrossentropy;
  EXPECT_EQ(ValueOf(precision, {binary, {1}, {1, 0, 1, 0}, {0, 1, 1, 0}}), 0.5);
  EXPECT_NEAR(ValueOf(precision, {binary, {1}, {1, 0, 1, 1}, {0, 1, 1, 1}}), 0.6666667, kMetricTolerance);
  EXPECT_EQ(ValueOf(precision, {binary, {1}, {1, 0, 1, 1}, {0, 1, 1, 1}, {0, 0, 1, 0}}), 1);
  EXPECT_EQ(
      ValueOf(precision,
              {binary, {1}, {1, 0, 1, 0, 1, 0, 1, 0}, {0, 1, 1, 0, 1, 0, 0, 1}, {1, 2, 3, 4, 4, 3, 2, 1}}),
      7.0 / 10);
  EXPECT_EQ(ValueOf(precision, {binary, {1}, {0, 0, 0, 0}, {0, 0, 0, 0}}), 0);
  const KerasObject strict = {.class_name = "Precision", .config = {{"thresholds", 0.7}}};
  EXPECT_EQ(ValueOf(strict, {binary, {1}, {1, 0, 0.6f, 0}, {0, 1, 1, 0}}), 0);
}

TEST(Recall, AgreesWithKeras) {
  const KerasObject recall = {.class_name = "Recall"};
  const LossKind binary = LossKind::kBinaryCrossentropy;
  EXPECT_NEAR(ValueOf(recall, {binary, {1}, {1, 0, 1, 1}, {0, 1, 1, 1}}), 0.6666667, kMetricTolerance);
  EXPECT_EQ(ValueOf(recall, {binary, {1}, {1, 0, 1, 1}, {0, 1, 1, 1}, {0, 0, 1, 0}}), 1);
  EXPECT_EQ(ValueOf(recall, {binary, {1}, {0, 0, 0, 0}, {0, 0, 0, 0}}), 0);
}

TEST(Counts, AgreeWithKeras) {
  Examples examples = {LossKind::kBinaryCrossentropy,
                       {5},
                       {0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1},
                       {0, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1}};
  EXPECT_EQ(ValueOf({.class_name = "FalsePositives"}, examples), 7);
  EXPECT_EQ(ValueOf({.class_name = "FalseNegatives"}, examples), 3);
  EXPECT_EQ(ValueOf({.class_name = "TrueNegatives"}, examples), 3);
  EXPECT_EQ(ValueOf({.class_name = "TruePositives"}, examples), 7);
  examples.weights = {1, 1.5f, 2, 2.5f};
  EXPECT_EQ(ValueOf({.class_name = "FalsePositives"}, examples), 14);
  EXPECT_EQ(ValueOf({.class_name = "FalseNegatives"}, examples), 5);
  EXPECT_EQ(ValueOf({.class_name = "TrueNegatives"}, examples), 4);
  EXPECT_EQ(ValueOf({.class_name = "TruePositives"}, examples), 12);
}

TEST(Counts, PredictionsAboveTheThresholdArePositive) {
  const Examples examples = {LossKind::kBinaryCrossentropy, {1}, {0.5f, 0.9f, 0.2f, 0.8f}, {1, 1, 0, 0}};
  EXPECT_EQ(ValueOf({.class_name = "TruePositives"}, examples), 1) << "at the threshold is negative";
  EXPECT_EQ(ValueOf({.class_name = "TruePositives", .config = {{"thresholds", 0.1}}}, examples), 2);
  EXPECT_EQ(ValueOf({.class_name = "FalsePositives", .config = {{"thresholds", 0.1}}}, examples), 2);
}

class AucTest : public testing::Test {
 protected:
  Examples examples_ = {LossKind::kBinaryCrossentropy, {1}, {0, 0.5f, 0.3f, 0.9f}, {0, 0, 1, 1}};
  const Floats weights_ = {1, 2, 3, 4};
  const KerasObject keras_default_ = {.class_name = "AUC", .config = {{"num_thresholds", 200}}};
};

TEST_F(AucTest, ThreeThresholdsMatchKeras) {
  const KerasObject auc = {.class_name = "AUC", .config = {{"num_thresholds", 3}}};
  EXPECT_EQ(ValueOf(auc, examples_), 0.75);
  examples_.weights = weights_;
  EXPECT_NEAR(ValueOf(auc, examples_), (1 + 4.0 / 7) / 2, kMetricTolerance);
}

TEST_F(AucTest, LogitsGiveTheAreaOfTheirProbabilities) {
  for (float& output : examples_.outputs) output = -std::log(1 / (output + 1e-12f) - 1);
  EXPECT_EQ(ValueOf({.class_name = "AUC", .config = {{"num_thresholds", 3}, {"from_logits", 1}}}, examples_),
            0.75);
}

TEST_F(AucTest, PrecisionRecallAreaMatchesKeras) {
  examples_.weights = weights_;
  const KerasObject auc = {
      .class_name = "AUC", .config = {{"num_thresholds", 3}}, .texts = {{"curve", "PR"}}};
  EXPECT_NEAR(ValueOf(auc, examples_), (0.5 * (3 + 2 * std::log(2.5)) + 4) / 7, kMetricTolerance);
}

TEST_F(AucTest, TwoHundredThresholdsAreNearlyExact) {
  EXPECT_NEAR(ValueOf(keras_default_, examples_), 0.75, kMetricTolerance)
      << "three of four pairs are in order";
  examples_.outputs = examples_.targets;
  EXPECT_EQ(ValueOf(keras_default_, examples_), 1);
}

TEST_F(AucTest, OutputsBeyondTheUnitIntervalAreClipped) {
  const float infinity = std::numeric_limits<float>::infinity();
  examples_.outputs = {-infinity, std::numeric_limits<float>::quiet_NaN(), infinity, 7};
  EXPECT_EQ(ValueOf(keras_default_, examples_), 1);
}

// Checks the definition, threshold by threshold, on random predictions with weights.
TEST_F(AucTest, AgreesWithTheCountsAtEveryThreshold) {
  Random random(1, "auc");
  Examples examples = {LossKind::kBinaryCrossentropy, {2}, {}, {}};
  for (int i = 0; i < 300; ++i) {
    for (int j = 0; j < 2; ++j) {
      const float prediction = random.NextUniform();
      examples.outputs.push_back(prediction);
      examples.targets.push_back(random.NextUniform() < prediction ? 1.0f : 0.0f);
    }
    examples.weights.push_back(random.NextUniform());
  }
  constexpr int kThresholds = 200;
  std::vector<double> recall, false_rate;
  for (int i = 0; i < kThresholds; ++i) {
    const double threshold = i == 0 ? -1e-7 : (i == kThresholds - 1 ? 1 + 1e-7 : i / (kThresholds - 1.0));
    double true_positives = 0, positives = 0, false_positives = 0, negatives = 0;
    for (size_t j = 0; j < examples.outputs.size(); ++j) {
      const double weight = examples.weights[j / 2];
      const bool predicted = examples.outputs[j] > threshold, positive = examples.targets[j] == 1;
      (positive ? positives : negatives) += weight;
      if (predicted) (positive ? true_positives : false_positives) += weight;
    }
    recall.push_back(true_positives / positives);
    false_rate.push_back(false_positives / negatives);
  }
  double area = 0;
  for (size_t i = 0; i + 1 < recall.size(); ++i) {
    area += (false_rate[i] - false_rate[i + 1]) * (recall[i] + recall[i + 1]) / 2;
  }
  EXPECT_GT(area, 0.7);
  EXPECT_NEAR(ValueOf(keras_default_, examples), area, 1e-12);
}

TEST_F(AucTest, WithoutThresholdsItIsExact) {
  // One bucket of 200 thresholds contains all scores. Eight of the nine pairs are in order, one is tied.
  const Examples close = {LossKind::kBinaryCrossentropy,
                          {1},
                          {0.5f, 0.5001f, 0.5002f, 0.5003f, 0.5004f, 0.5002f},
                          {0, 0, 1, 1, 1, 0}};
  EXPECT_EQ(ValueOf({.class_name = "AUC"}, close), (8 + 0.5) / 9);
  EXPECT_EQ(ValueOf(MetricOfName("auc"), close), (8 + 0.5) / 9);
  EXPECT_EQ(ValueOf(keras_default_, close), 0.5);
}

// The definition: the fraction of pairs of a positive and a negative in which the positive has the higher
// score, counting ties half, each pair with the product of its weights.
double PairsInOrder(const Examples& examples) {
  double right = 0, all = 0;
  for (size_t i = 0; i < examples.outputs.size(); ++i) {
    for (size_t j = 0; j < examples.outputs.size(); ++j) {
      if (examples.targets[i] != 1 || examples.targets[j] != 0) continue;
      const double pair =
          examples.weights.empty() ? 1 : double{examples.weights[i]} * double{examples.weights[j]};
      const float positive = examples.outputs[i], negative = examples.outputs[j];
      right += pair * (positive > negative ? 1 : positive == negative ? 0.5 : 0);
      all += pair;
    }
  }
  return right / all;
}

TEST_F(AucTest, ExactlyCountsPairsWithTiesAndWeights) {
  Random random(1, "pairs");
  Examples examples = {LossKind::kBinaryCrossentropy, {1}, {}, {}};
  for (int i = 0; i < 1000; ++i) {
    // Logits in steps of 1/8 around 0: many ties, and -0.
    const float logit = std::round(random.NextNormal() * 8) / 8;
    examples.outputs.push_back(logit);
    examples.targets.push_back(random.NextNormal() < logit ? 1.0f : 0.0f);
  }
  EXPECT_NEAR(ValueOf({.class_name = "AUC"}, examples), PairsInOrder(examples), 1e-14);
  for (int i = 0; i < 1000; ++i) examples.weights.push_back(random.NextUniform());
  EXPECT_NEAR(ValueOf({.class_name = "AUC"}, examples), PairsInOrder(examples), 1e-12);
}

TEST_F(AucTest, IsExactOverMoreScoresThanOneCompactionTakes) {
  // Scores i / 2^20, positive with the same probability: adjacent scores are not merged.
  constexpr int64_t kExamples = 300000;
  Random random(1, "many");
  Examples examples = {LossKind::kBinaryCrossentropy, {1}, {}, {}};
  for (uint32_t i : RandomPermutation(kExamples, random)) {
    examples.outputs.push_back(static_cast<float>(i) / (1 << 20));
    examples.targets.push_back(i % 3 == 0 ? 1.0f : 0.0f);
  }
  // The k-th positive, 3k, is above 2k negatives: 1, 2, 4, 5, and so on.
  const double positives = kExamples / 3, negatives = 2 * positives;
  const double right = positives * (positives - 1);
  MetricSet set = MakeSet({{MetricOfName("auc")}}, examples);
  Update(set, examples, 0, 100000);
  Update(set, examples, 100000, 200000);
  EXPECT_THAT(set.Values()[0], Pair("auc", right / (positives * negatives)));
}

TEST_F(AucTest, ScoresOfOneClassHaveNoArea) {
  examples_.targets = {1, 1, 1, 1};
  EXPECT_EQ(ValueOf({.class_name = "AUC"}, examples_), 0);
  examples_.targets = {0, 0, 0, 0};
  EXPECT_EQ(ValueOf({.class_name = "AUC"}, examples_), 0);
}

TEST_F(AucTest, ExactScoresMayBeAnyFloats) {
  const float infinity = std::numeric_limits<float>::infinity();
  examples_.outputs = {-infinity, std::numeric_limits<float>::quiet_NaN(), infinity, -7};
  EXPECT_EQ(ValueOf({.class_name = "AUC"}, examples_), 1);
  examples_.outputs = {-0.0f, 3, 0.0f, 4};
  EXPECT_EQ(ValueOf({.class_name = "AUC"}, examples_), 2.5 / 4) << "-0 and 0 are tied";
}

TEST_F(AucTest, ThePrecisionRecallAreaOfAllScoresIsTheLimitOfManyThresholds) {
  Random random(1, "precision");
  Examples examples = {LossKind::kBinaryCrossentropy, {1}, {}, {}};
  for (int i = 0; i < 200; ++i) {
    examples.outputs.push_back(static_cast<float>(random.NextBelow(100)) / 100 + 0.005f);
    examples.targets.push_back(random.NextUniform() < examples.outputs.back() ? 1.0f : 0.0f);
  }
  const KerasObject exact = {.class_name = "AUC", .texts = {{"curve", "PR"}}};
  KerasObject hundred = exact;
  hundred.config["num_thresholds"] = 101;
  EXPECT_NEAR(ValueOf(exact, examples), ValueOf(hundred, examples), 1e-12);
}

TEST(ScoreCounts, BeyondItsLimitScoresAreRounded) {
  ScoreCounts counts(/*max_entries=*/1000), all;
  Random random(1, "limit");
  for (int i = 0; i < 1 << 17; ++i) {
    const float score = random.NextUniform();
    const bool positive = random.NextUniform() < score;
    counts.Add(score, positive, 1);
    all.Add(score, positive, 1);
  }
  int scores = 0, all_scores = 0;
  double positives = 0, negatives = 0;
  counts.ForEachScoreFromAbove([&](double more_positives, double more_negatives) {
    ++scores;
    positives += more_positives;
    negatives += more_negatives;
  });
  all.ForEachScoreFromAbove([&](double, double) { ++all_scores; });
  EXPECT_LE(scores, 1000);
  EXPECT_GT(scores, 100);
  EXPECT_GT(counts.dropped_bits(), 0);
  EXPECT_EQ(positives + negatives, 1 << 17);
  EXPECT_EQ(all.dropped_bits(), 0);
  EXPECT_GT(all_scores, 130000);
}

// keras/src/metrics/probabilistic_metrics_test.py

TEST(Crossentropy, AgreesWithKeras) {
  Examples examples = {LossKind::kBinaryCrossentropy, {2}, {0.6f, 0.4f, 0.4f, 0.6f}, {0, 1, 0, 0}};
  for (const char* name : {"BinaryCrossentropy", "binary_crossentropy", "bce"}) {
    EXPECT_NEAR(ValueOf(MetricOfName(name), examples), 0.8149245, kMetricTolerance) << name;
  }
  examples.weights = {1, 0};
  EXPECT_NEAR(ValueOf(MetricOfName("bce"), examples), 0.91629076, kMetricTolerance);
  examples.weights = {1, 3};
  examples.outputs = {-2, 3, 0.5f, 1};
  const KerasObject smoothed = {.class_name = "BinaryCrossentropy",
                                .config = {{"from_logits", 1}, {"label_smoothing", 0.1}}};
  EXPECT_NEAR(ValueOf(smoothed, examples), 0.8828164339, kMetricTolerance);
}

// Every metric that fits these targets; some weighted and some not.
std::vector<CompiledMetric> AllOf(LossKind loss) {
  if (loss == LossKind::kSparseCategoricalCrossentropy) {
    return {{MetricOfName("accuracy")}, {MetricOfName("sparse_top_k_categorical_accuracy"), true}};
  }
  std::vector<CompiledMetric> metrics;
  for (const char* name :
       {"accuracy", "binary_accuracy", "categorical_accuracy", "top_k_categorical_accuracy", "auc", "bce",
        "precision", "recall", "mse", "mae", "root_mean_squared_error"}) {
    for (bool weighted : {false, true}) metrics.push_back({MetricOfName(name), weighted});
  }
  return metrics;
}

TEST(MetricSet, BatchesOfUnevenSizesEqualOneBatch) {
  for (LossKind loss : {LossKind::kSparseCategoricalCrossentropy, LossKind::kBinaryCrossentropy}) {
    constexpr int64_t kExamples = 23, kWidth = 7;
    Random random(1, "metrics");
    Examples examples = {loss, {kWidth}, {}, {}};
    for (int64_t i = 0; i < kExamples * kWidth; ++i) examples.outputs.push_back(random.NextUniform());
    const bool sparse = loss == LossKind::kSparseCategoricalCrossentropy;
    for (int64_t i = 0; i < (sparse ? kExamples : kExamples * kWidth); ++i) {
      examples.targets.push_back(static_cast<float>(random.NextBelow(sparse ? kWidth : 2)));
    }
    for (int64_t i = 0; i < kExamples; ++i) examples.weights.push_back(random.NextUniform());

    MetricSet whole = MakeSet(AllOf(loss), examples), parts = MakeSet(AllOf(loss), examples);
    Update(whole, examples, 0, kExamples);
    Update(parts, examples, 0, 1);
    Update(parts, examples, 1, 0);
    Update(parts, examples, 1, 16);
    Update(parts, examples, 17, 6);
    EXPECT_EQ(parts.Values(), whole.Values());

    whole.Reset();
    Update(whole, examples, 3, 5);
    MetricSet fresh = MakeSet(AllOf(loss), examples);
    Update(fresh, examples, 3, 5);
    EXPECT_EQ(whole.Values(), fresh.Values()) << "after a Reset()";
  }
}

TEST(MetricSet, WeightsAffectOnlyWeightedMetrics) {
  const Examples examples = {LossKind::kMeanSquaredError, {1}, {1, 2}, {0, 0}, {3, 1}};
  MetricSet set = MakeSet({{MetricOfName("mse")}, {MetricOfName("mae"), true}}, examples);
  Update(set, examples, 0, 2);
  const MetricValues values = set.Values();
  EXPECT_EQ(values[1], std::make_pair(std::string("mae"), 1.25));
  EXPECT_EQ(values[2], std::make_pair(std::string("mse"), 2.5));
}

TEST(MetricSet, TheLossIsTheMeanOverTheExamplesAndNamesAreSorted) {
  MetricSet set(ParseMetrics({{{MetricOfName("mse")}, {MetricOfName("auc")}}},
                             {.kind = LossKind::kBinaryCrossentropy}, {1})
                    .value());
  const Floats output = {1}, target = {1};
  set.Update({.examples = 1, .targets = target}, {.sums = {.loss = 3, .examples = 2}, .outputs = output});
  set.Update({.examples = 1, .targets = target}, {.sums = {.loss = 1, .examples = 2}, .outputs = output});
  EXPECT_THAT(set.Values(), ElementsAre(Pair("auc", 0), Pair("loss", 1), Pair("mse", 0)));
}

TEST(MetricSet, WithoutExamplesTheLossIsNaNAndMetricsAreZero) {
  const MetricSet set(
      ParseMetrics(AllOf(LossKind::kMeanSquaredError), {.kind = LossKind::kMeanSquaredError}, {3}).value());
  for (const auto& [name, value] : set.Values()) {
    if (name == "loss") {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, 0) << name;
    }
  }
}

TEST(ParseMetrics, ClassificationHasAccuracyByDefault) {
  EXPECT_THAT(NamesOf({}, LossKind::kSparseCategoricalCrossentropy, {10}), ElementsAre("accuracy"));
  EXPECT_THAT(NamesOf({}, LossKind::kCategoricalCrossentropy, {10}), ElementsAre("accuracy"));
  EXPECT_THAT(NamesOf({}, LossKind::kBinaryCrossentropy, {1}), ElementsAre("accuracy"));
  EXPECT_THAT(NamesOf({}, LossKind::kMeanSquaredError, {1}), IsEmpty());
}

TEST(ParseMetrics, NamesAreThoseGivenOrKerasDefaults) {
  EXPECT_THAT(NamesOf({{MetricOfName("acc")},
                       {MetricOfName("mse")},
                       {{.class_name = "MeanSquaredError"}},
                       {{.class_name = "AUC", .texts = {{"name", "auc_pr"}, {"curve", "PR"}}}}},
                      LossKind::kBinaryCrossentropy, {1}),
              ElementsAre("acc", "mse", "mean_squared_error", "auc_pr"));
}

TEST(ParseMetrics, DuplicateNamesAreChangedAsInKeras) {
  const KerasObject mae = MetricOfName("mae");
  EXPECT_THAT(NamesOf({{mae}, {mae}, {mae}, {mae, true}, {mae, true}, {MetricOfName("mse"), true}},
                      LossKind::kMeanSquaredError, {1}),
              ElementsAre("mae", "mae_1", "mae_2", "weighted_mae", "weighted_mae_1", "mse"));
}

TEST(ParseMetrics, AnUnknownMetricIsRefusedWithTheSupportedOnes) {
  EXPECT_EQ(
      MetricFault(MetricOfName("F1Score")),
      "metric 'F1Score' is not supported; supported: accuracy, BinaryAccuracy, CategoricalAccuracy, "
      "SparseCategoricalAccuracy, TopKCategoricalAccuracy, SparseTopKCategoricalAccuracy, AUC, "
      "BinaryCrossentropy, HitRate, NDCG, MeanIoU, IoU, OneHotMeanIoU, OneHotIoU, BinaryIoU, Perplexity, "
      "Precision, Recall, TruePositives, TrueNegatives, FalsePositives, FalseNegatives, "
      "MeanSquaredError, MeanAbsoluteError, RootMeanSquaredError");
}

TEST(ParseMetrics, UnsupportedOptionsAreRefusedByName) {
  EXPECT_EQ(MetricFault({.class_name = "Precision", .config = {{"top_k", 3}}}),
            "metric 'Precision': top_k 3 is not supported");
  EXPECT_EQ(MetricFault({.class_name = "Recall", .config = {{"thresholds", 1.5}}}),
            "metric 'Recall': thresholds 1.5 is not supported");
  EXPECT_EQ(MetricFault({.class_name = "TopKCategoricalAccuracy", .config = {{"k", 0}}}),
            "metric 'TopKCategoricalAccuracy': k 0 is not supported");
  EXPECT_EQ(MetricFault({.class_name = "TopKCategoricalAccuracy", .config = {{"k", 2.5}}}),
            "metric 'TopKCategoricalAccuracy': k 2.5 is not supported");
  EXPECT_EQ(MetricFault({.class_name = "AUC", .config = {{"num_thresholds", 1}}}),
            "metric 'AUC': num_thresholds 1 is not supported");
  EXPECT_EQ(MetricFault({.class_name = "AUC", .config = {{"multi_label", 1}}}),
            "metric 'AUC': multi_label 1 is not supported");
  EXPECT_EQ(MetricFault({.class_name = "AUC", .texts = {{"curve", "PRGAIN"}}}),
            "metric 'AUC': curve PRGAIN is not supported");
  EXPECT_EQ(MetricFault({.class_name = "MeanSquaredError", .texts = {{"dtype", "float16"}}}),
            "metric 'MeanSquaredError': dtype float16 is not supported");
}

TEST(ParseMetrics, AMetricThatDoesNotFitTheTargetsIsRefused) {
  EXPECT_EQ(MetricFault(MetricOfName("auc"), LossKind::kSparseCategoricalCrossentropy),
            "metric 'auc' needs a target for each output, the loss SparseCategoricalCrossentropy has class "
            "indices");
  EXPECT_EQ(
      MetricFault(MetricOfName("sparse_categorical_accuracy"), LossKind::kMeanSquaredError),
      "metric 'sparse_categorical_accuracy' needs class indices, the loss MeanSquaredError has a target for "
      "each output");
}

// The definition of keras_rs/src/metrics/ndcg.py: gains 2^relevance - 1, discounts log2(1 + rank).
TEST(Ranking, NdcgIsTheDiscountedGainOfTheOrder) {
  // Scores rank relevances 1, 3, 0: (1 + 7 / log2(3)) / (7 + 1 / log2(3)).
  const Examples graded = {LossKind::kMeanSquaredError, {3}, {0.9f, 0.5f, 0.1f}, {1, 3, 0}};
  const double log3 = std::log2(3.0);
  EXPECT_NEAR(ValueOf({.class_name = "NDCG"}, graded), (1 + 7 / log3) / (7 + 1 / log3), 1e-12);
  EXPECT_NEAR(ValueOf({.class_name = "NDCG", .config = {{"k", 1}}}, graded), 1.0 / 7, 1e-12);
  EXPECT_NEAR(ValueOf(MetricOfName("NDCG@1"), graded), 1.0 / 7, 1e-12);
  const Examples none = {LossKind::kMeanSquaredError, {3}, {0.9f, 0.5f, 0.1f}, {0, 0, 0}};
  EXPECT_EQ(ValueOf({.class_name = "NDCG"}, none), 0);
}

TEST(Ranking, TheRankOfTheOnlyRelevantClassDecides) {
  // Ranks 1, 3 and 2.
  Examples examples = {LossKind::kSparseCategoricalCrossentropy, {3}, {3, 2, 1, 3, 2, 1, 3, 2, 1}, {0, 2, 1}};
  EXPECT_NEAR(ValueOf(MetricOfName("HitRate@2"), examples), 2.0 / 3, 1e-12);
  EXPECT_EQ(ValueOf(MetricOfName("hit_rate"), examples), 1) << "k is 10";
  EXPECT_NEAR(ValueOf(MetricOfName("NDCG@2"), examples), (1 + 1 / std::log2(3.0)) / 3, 1e-12);
  EXPECT_NEAR(ValueOf(MetricOfName("ndcg"), examples), (1 + 0.5 + 1 / std::log2(3.0)) / 3, 1e-12);
  examples.weights = {1, 3, 0};
  EXPECT_NEAR(ValueOf(MetricOfName("HitRate@2"), examples), 0.25, 1e-12);
}

TEST(Ranking, IrrelevantCandidatesRankFirstAmongEqualScores) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Floats& outputs : {Floats{1, 1}, Floats{nan, 0}, Floats{nan, nan}}) {
    const Examples examples = {LossKind::kSparseCategoricalCrossentropy, {2}, outputs, {0}};
    EXPECT_EQ(ValueOf(MetricOfName("HitRate@1"), examples), 0);
  }
}

TEST(Ranking, ACandidateForEachExampleFormsListsOfAdjacentExamples) {
  // Two lists of three examples, in which the positive has rank 1 and 2, and the beginning of a third.
  const Examples examples = {
      LossKind::kBinaryCrossentropy, {1}, {9, 1, 2, 0.3f, 0.4f, 0.5f, 7}, {1, 0, 0, 0, 1, 0, 1}};
  const KerasObject hits = {.class_name = "HitRate", .config = {{"k", 1}, {"list_size", 3}}};
  EXPECT_EQ(ValueOf(hits, examples), 0.5);
  MetricSet set = MakeSet({{hits}}, examples);
  for (int64_t i = 0; i < examples.count(); ++i) Update(set, examples, i, 1);
  EXPECT_THAT(set.Values(), ElementsAre(Pair("hit_rate", 0.5), Pair("loss", 0))) << "in batches of one";
}

TEST(Ranking, TheItemsOfABatchAreTheCandidatesOfATwoTowerModel) {
  // Queries (1,0), (0,1), (1,0); items 7 (2,0), 8 (3,0), 7 again. Query 0 and 2 rank item 8 first, query 1 ties.
  const Examples examples = {LossKind::kInBatchSoftmax, {4}, {1, 0, 2, 0, 0, 1, 3, 0, 1, 0, 2, 0}, {7, 8, 7}};
  EXPECT_EQ(ValueOf(MetricOfName("HitRate@1"), examples), 0);
  EXPECT_EQ(ValueOf(MetricOfName("HitRate@2"), examples), 1) << "there are two different items";
  EXPECT_NEAR(ValueOf(MetricOfName("NDCG"), examples), 1 / std::log2(3.0), 1e-12);
}

TEST(Ranking, MetricsThatDoNotFitAreRefused) {
  EXPECT_THAT(
      std::string(ParseMetrics({{{MetricOfName("NDCG@10")}}}, {.kind = LossKind::kBinaryCrossentropy}, {1})
                      .status()
                      .message()),
      HasSubstr("metric 'NDCG@10' needs list_size, the number of adjacent examples"));
  EXPECT_THAT(MetricFault({.class_name = "NDCG", .config = {{"list_size", 3}}}),
              HasSubstr("metric 'NDCG' has a list_size, which only a model with one output takes"));
  EXPECT_THAT(MetricFault(MetricOfName("NDCG@0")), HasSubstr("k 0 is not supported"));
  EXPECT_THAT(MetricFault(MetricOfName("AUC@3")), HasSubstr("k 3 is not supported"));
  EXPECT_THAT(std::string(ParseMetrics({{{MetricOfName("SparseCategoricalAccuracy")}}},
                                       {.kind = LossKind::kInBatchSoftmax}, {4})
                              .status()
                              .message()),
              HasSubstr("needs class indices, the loss InBatchSoftmax has items of the batch"));
  EXPECT_THAT(NamesOf({}, LossKind::kInBatchSoftmax, {4}), IsEmpty());
}

}  // namespace
}  // namespace cairn::nn
