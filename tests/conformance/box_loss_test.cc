// Losses of boxes against their definitions in double, and the numbers of Keras.
#include <cmath>

#include "tests/conformance/loss_conformance.h"

namespace cairn::conformance {
namespace {

using kernels::BoxFormat;
using kernels::IouMode;

constexpr BoxFormat kFormats[] = {BoxFormat::kXyxy, BoxFormat::kYxyx, BoxFormat::kXywh,
                                  BoxFormat::kCenterXywh, BoxFormat::kCenterYxhw};

struct Corners {
  double left, top, right, bottom;
  double area() const { return (right - left) * (bottom - top); }
};

Corners CornersOf(BoxFormat format, const double* n) {
  switch (format) {
    case BoxFormat::kXyxy:
      return {n[0], n[1], n[2], n[3]};
    case BoxFormat::kYxyx:
      return {n[1], n[0], n[3], n[2]};
    case BoxFormat::kXywh:
      return {n[0], n[1], n[0] + n[2], n[1] + n[3]};
    case BoxFormat::kCenterXywh:
      return {n[0] - n[2] / 2, n[1] - n[3] / 2, n[0] + n[2] / 2, n[1] + n[3] / 2};
    case BoxFormat::kCenterYxhw:
      return {n[1] - n[3] / 2, n[0] - n[2] / 2, n[1] + n[3] / 2, n[0] + n[2] / 2};
  }
  return {};
}

// The papers' definitions, without the epsilons that avoid divisions by 0.
double BoxLossOf(const LossParams& params, const double* output, const double* target) {
  const Corners a = CornersOf(params.box_format, output), b = CornersOf(params.box_format, target);
  const double across = std::min(a.right, b.right) - std::max(a.left, b.left);
  const double down = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const double common = std::max(across, 0.0) * std::max(down, 0.0);
  const double both = a.area() + b.area() - common, iou = common / both;
  const Corners around = {std::min(a.left, b.left), std::min(a.top, b.top), std::max(a.right, b.right),
                          std::max(a.bottom, b.bottom)};
  if (params.kind == LossKind::kGiou) return 1 - iou + (around.area() - both) / around.area();
  if (params.kind == LossKind::kCiou) {
    const double diagonal = std::pow(around.right - around.left, 2) + std::pow(around.bottom - around.top, 2);
    const double distance = std::pow((a.left + a.right - b.left - b.right) / 2, 2) +
                            std::pow((a.top + a.bottom - b.top - b.bottom) / 2, 2);
    const double angle = std::atan((a.right - a.left) / (a.bottom - a.top)) -
                         std::atan((b.right - b.left) / (b.bottom - b.top));
    const double v = 4 / (M_PI * M_PI) * angle * angle;
    return 1 - iou + distance / diagonal + v * v / (1 - iou + v);
  }
  if (params.iou_mode == IouMode::kLog) return -std::log(iou);
  return params.iou_mode == IouMode::kQuadratic ? 1 - iou * iou : 1 - iou;
}

class BoxLossConformance : public LossConformance {
 protected:
  // Compares with the definition and its central differences. Both arguments are boxes in the format of `params`.
  void CheckBoxes(LossParams params, Values outputs, const Values& targets, const Values& weights = {}) {
    params.width = 4;
    const Result result = Run(params, outputs, targets, weights);
    ASSERT_TRUE(result.status.ok()) << result.status;
    const auto batch = static_cast<size_t>(result.sums.examples), boxes = outputs.size() / 4;
    double expected = 0;
    for (size_t box = 0; box < boxes; ++box) {
      const double rows = static_cast<double>(params.rows_per_example);
      const double weight = (weights.empty() ? 1 : weights[box / (boxes / batch)]) / rows;
      double* const output = &outputs[box * 4];
      expected += weight * BoxLossOf(params, output, &targets[box * 4]);
      for (size_t i = 0; i < 4; ++i) {
        constexpr double kStep = 1e-6;
        const double value = output[i];
        output[i] = value + kStep;
        const double high = BoxLossOf(params, output, &targets[box * 4]);
        output[i] = value - kStep;
        const double low = BoxLossOf(params, output, &targets[box * 4]);
        output[i] = value;
        const double slope = weight * (high - low) / (2 * kStep) / static_cast<double>(batch);
        EXPECT_NEAR(result.gradient[box * 4 + i], slope, 1e-6 + 1e-5 * std::fabs(slope)) << box << ", " << i;
      }
    }
    EXPECT_NEAR(result.sums.loss, expected, 2e-6 * static_cast<double>(boxes));
  }
};

// Overlapping boxes, one within the other, and, except for the logarithm, boxes that do not touch.
const Values kOutputs = {1, 2, 5.5, 6, 0.25, 0.5, 4, 2, 2, 1, 3, 2.5, 10, 10, 12, 11};
const Values kTargets = {2, 1, 6, 4, 1, 0.75, 5, 3, 1, 0.5, 6, 4, 1, 2, 3, 5};

TEST_P(BoxLossConformance, EveryLossInEveryFormat) {
  for (const BoxFormat format : kFormats) {
    for (const LossKind kind : {LossKind::kIou, LossKind::kGiou, LossKind::kCiou}) {
      for (const int64_t rows : {1, 2}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(format) << " kind " << static_cast<int>(kind));
        const LossParams params = {.kind = kind, .rows_per_example = rows, .box_format = format};
        CheckBoxes(params, kOutputs, kTargets);
        CheckBoxes(params, kOutputs, kTargets, rows == 1 ? Values{1, 2, 0.5, 3} : Values{2, 0.5});
      }
    }
  }
}

TEST_P(BoxLossConformance, IouHasModes) {
  const Values outputs(kOutputs.begin(), kOutputs.begin() + 12),
      targets(kTargets.begin(), kTargets.begin() + 12);
  for (const IouMode mode : {IouMode::kLinear, IouMode::kQuadratic, IouMode::kLog})
    CheckBoxes({.kind = LossKind::kIou, .iou_mode = mode}, outputs, targets);
}

TEST_P(BoxLossConformance, ManyBoxes) {
  Values outputs, targets;
  for (int box = 0; box < 1200; ++box) {
    const double x = box % 7, y = box % 5;
    for (const double n : {x, y, x + 2 + box % 3, y + 1.5 + box % 4}) outputs.push_back(n);
    for (const double n : {x + 0.25, y - 0.5, x + 3.125, y + 1.25}) targets.push_back(n);
  }
  CheckBoxes({.kind = LossKind::kCiou, .rows_per_example = 3}, outputs, targets);
}

// The mean of 1 - keras.utils.bounding_boxes.compute_ciou(targets, outputs, format), and of functions of the diagonal
// of compute_iou(), in Keras 3.15 on PyTorch, with the gradients of backward().
TEST_P(BoxLossConformance, NumbersAreThoseOfKeras) {
  struct Row {
    LossParams params;
    double mean;
    Values gradient;
  };
  const std::vector<Row> rows = {
      {{.kind = LossKind::kCiou},
       0.7525028586387634,
       {0.049099065, -0.033087272, 0.022245049, -0.077178903, 0.057961479, 0.10971668, 0.038763933,
        0.056430947}},
      {{.kind = LossKind::kCiou, .box_format = BoxFormat::kXywh},
       0.8018475770950317,
       {0.056576259, -0.076953486, 0.017465023, -0.052122027, 0.073113278, 0.11664186, 0.026872959,
        0.038375791}},
      {{.kind = LossKind::kCiou, .box_format = BoxFormat::kCenterYxhw},
       0.5610178112983704,
       {0.093658805, -0.058488488, -0.013799084, -0.030666325, 0.11085719, 0.090133637, -0.0061606746,
        0.027265199}},
      {{.kind = LossKind::kIou},
       0.6969696879386902,
       {0.0392562, -0.024793388, 0.018595042, -0.061983474, 0.043209877, 0.098765433, 0.030864198,
        0.049382716}},
      {{.kind = LossKind::kIou, .iou_mode = IouMode::kQuadratic},
       0.9072543382644653,
       {0.021412469, -0.013523667, 0.01014275, -0.033809163, 0.028806586, 0.065843627, 0.020576134,
        0.032921813}},
      {{.kind = LossKind::kIou, .iou_mode = IouMode::kLog},
       1.1989476680755615,
       {0.14393939, -0.090909086, 0.068181813, -0.22727272, 0.12962963, 0.2962963, 0.092592597, 0.14814815}},
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    LossParams params = rows[i].params;
    params.width = 4;
    const Result result = Run(params, {2, 1, 6, 4, 1, 0.5, 5, 3}, {1, 2, 5, 6, 0, 0, 4, 2});
    ASSERT_TRUE(result.status.ok()) << i << ": " << result.status;
    EXPECT_NEAR(result.sums.loss / 2, rows[i].mean, 1e-6) << i;
    for (size_t j = 0; j < 8; ++j)
      EXPECT_NEAR(result.gradient[j], rows[i].gradient[j], 1e-6) << i << ", " << j;
  }
}

// keras_cv/src/losses/giou_loss_test.py
TEST_P(BoxLossConformance, GiouIsThatOfKerasCv) {
  const LossParams params = {.kind = LossKind::kGiou, .width = 4, .box_format = BoxFormat::kXywh};
  const Result result = Run(params, {0, 0, 5, 6, 0, 0, 7, 3, 4, 5, 5, 6, 2, 1, 3, 3},
                            {0, 0, 1, 1, 0, 0, 2, 3, 4, 5, 3, 6, 2, 2, 3, 3});
  EXPECT_NEAR(result.sums.loss / 4, 0.6452381, 1e-6);
}

TEST_P(BoxLossConformance, EqualBoxesHaveNoLoss) {
  for (const LossKind kind : {LossKind::kIou, LossKind::kGiou, LossKind::kCiou}) {
    const Result result = Run({.kind = kind, .width = 4}, {1, 2, 5, 6}, {1, 2, 5, 6});
    EXPECT_NEAR(result.sums.loss, 0, 1e-6);
    for (const float slope : result.gradient) EXPECT_TRUE(std::isfinite(slope)) << slope;
  }
}

TEST_P(BoxLossConformance, BoxesThatAreLeftOutHaveNoLoss) {
  const LossParams params = {.kind = LossKind::kGiou,
                             .batch = 1,
                             .rows_per_example = 2,
                             .width = 4,
                             .output_stride = 10,
                             .masked = true};
  const auto op = device().ops().MakeLoss(params).value();
  // Two boxes, then their mask.
  const auto outputs = Put(Values{1, 2, 5, 6, 7, 8, 9, 10, 0, 1}), gradient = Poisoned(10);
  const auto targets = Put(Values{0, 0, 1, 1, 7, 8, 9, 11});
  LossSums sums;
  absl::Status status = op->Run(outputs->data(), targets->data(), nullptr, &sums, gradient->data());
  status.Update(device().Synchronize());
  ASSERT_TRUE(status.ok()) << status;
  const Result kept = Run({.kind = LossKind::kGiou, .width = 4}, {7, 8, 9, 10}, {7, 8, 9, 11});
  EXPECT_NEAR(sums.loss, kept.sums.loss, 1e-6);
  const std::vector<float> slopes = Get(*gradient, {Shape{10}});
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(slopes[i], 0);
    EXPECT_NEAR(slopes[4 + i], kept.gradient[i], 1e-6);
  }
}

INSTANTIATE_CONFORMANCE(BoxLossConformance);

}  // namespace
}  // namespace cairn::conformance
