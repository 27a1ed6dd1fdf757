// Losses of boxes for object detection, compiled by every backend: the intersection over union of a box and its target
// (Yu et al., "UnitBox", 2016), GIoU (Rezatofighi et al., "Generalized Intersection over Union", 2019) and CIoU (Zheng
// et al., "Enhancing Geometric Factors", 2020), as in keras_cv/src/losses and keras/src/.../bounding_boxes/iou.py.
//
// A loss is computed with its four derivatives at once (forward differentiation).
#pragma once

#include <cmath>
#include <cstdint>

#include "common/core/host_device.h"
#include "kernels/ops.h"

namespace cairn::kernels {

inline constexpr int kBoxNumbers = 4;
inline constexpr float kBoxEpsilon = 1e-7f;  // keras.config.epsilon()

// A number, and its derivatives with respect to the numbers of the box.
struct BoxNumber {
  float value = 0;
  float slope[kBoxNumbers] = {};

  CAIRN_HOST_DEVICE BoxNumber(float constant) : value(constant) {}  // NOLINT(google-explicit-constructor)
  // f(a, b), where f has this value, and the derivatives `by_a` and `by_b`.
  CAIRN_HOST_DEVICE BoxNumber(float f, const BoxNumber& a, float by_a, const BoxNumber& b, float by_b)
      : value(f) {
    for (int i = 0; i < kBoxNumbers; ++i) slope[i] = by_a * a.slope[i] + by_b * b.slope[i];
  }
};

CAIRN_HOST_DEVICE inline BoxNumber operator+(const BoxNumber& a, const BoxNumber& b) {
  return {a.value + b.value, a, 1, b, 1};
}
CAIRN_HOST_DEVICE inline BoxNumber operator-(const BoxNumber& a, const BoxNumber& b) {
  return {a.value - b.value, a, 1, b, -1};
}
CAIRN_HOST_DEVICE inline BoxNumber operator*(const BoxNumber& a, const BoxNumber& b) {
  return {a.value * b.value, a, b.value, b, a.value};
}
CAIRN_HOST_DEVICE inline BoxNumber operator/(const BoxNumber& a, const BoxNumber& b) {
  const float quotient = a.value / b.value;
  return {quotient, a, 1 / b.value, b, -quotient / b.value};
}
// Equal numbers have half of the gradient each, as in JAX and PyTorch. A maximum with a NaN is NaN.
CAIRN_HOST_DEVICE inline BoxNumber Max(const BoxNumber& a, const BoxNumber& b) {
  if (a.value > b.value) return a;
  if (a.value < b.value) return b;
  return {(a.value + b.value) / 2, a, 0.5f, b, 0.5f};
}
CAIRN_HOST_DEVICE inline BoxNumber Min(const BoxNumber& a, const BoxNumber& b) {
  if (a.value < b.value) return a;
  if (a.value > b.value) return b;
  return {(a.value + b.value) / 2, a, 0.5f, b, 0.5f};
}
CAIRN_HOST_DEVICE inline BoxNumber Atan(const BoxNumber& a) {
  return {std::atan(a.value), a, 1 / (1 + a.value * a.value), 0.0f, 0};
}
CAIRN_HOST_DEVICE inline BoxNumber Log(const BoxNumber& a) {
  return {std::log(a.value), a, 1 / a.value, 0.0f, 0};
}

struct Box {
  BoxNumber left, top, right, bottom;
  CAIRN_HOST_DEVICE BoxNumber width() const { return right - left; }
  CAIRN_HOST_DEVICE BoxNumber height() const { return bottom - top; }
};

CAIRN_HOST_DEVICE inline Box BoxOf(BoxFormat format, const BoxNumber (&n)[kBoxNumbers]) {
  switch (format) {
    case BoxFormat::kXyxy:
      break;
    case BoxFormat::kYxyx:
      return {n[1], n[0], n[3], n[2]};
    case BoxFormat::kXywh:
      return {n[0], n[1], n[0] + n[2], n[1] + n[3]};
    case BoxFormat::kCenterXywh:
      return {n[0] - n[2] * 0.5f, n[1] - n[3] * 0.5f, n[0] + n[2] * 0.5f, n[1] + n[3] * 0.5f};
    case BoxFormat::kCenterYxhw:
      return {n[1] - n[3] * 0.5f, n[0] - n[2] * 0.5f, n[1] + n[3] * 0.5f, n[0] + n[2] * 0.5f};
  }
  return {n[0], n[1], n[2], n[3]};
}

struct BoxLoss {
  LossKind kind = LossKind::kIou;
  BoxFormat format = BoxFormat::kXyxy;
  IouMode mode = IouMode::kLinear;

  // The loss of a box `output` [4]; the gradient is with respect to it.
  CAIRN_HOST_DEVICE BoxNumber Run(const float* output, const float* target) const {
    BoxNumber numbers[kBoxNumbers] = {output[0], output[1], output[2], output[3]};
    const BoxNumber targets[kBoxNumbers] = {target[0], target[1], target[2], target[3]};
    for (int i = 0; i < kBoxNumbers; ++i) numbers[i].slope[i] = 1;
    const Box box = BoxOf(format, numbers), truth = BoxOf(format, targets);
    if (kind == LossKind::kCiou) return BoxNumber(1) - Ciou(truth, box);
    if (kind == LossKind::kGiou) return BoxNumber(1) - Giou(truth, box);
    const BoxNumber iou = Intersection(truth, box) / (Union(truth, box) + kBoxEpsilon);
    if (mode == IouMode::kLog) return BoxNumber(0) - Log(iou);
    return BoxNumber(1) - (mode == IouMode::kQuadratic ? iou * iou : iou);
  }

 private:
  CAIRN_HOST_DEVICE static BoxNumber Intersection(const Box& a, const Box& b) {
    return Max(Min(a.right, b.right) - Max(a.left, b.left), 0) *
           Max(Min(a.bottom, b.bottom) - Max(a.top, b.top), 0);
  }
  CAIRN_HOST_DEVICE static BoxNumber Union(const Box& a, const Box& b) {
    return a.width() * a.height() + b.width() * b.height() - Intersection(a, b);
  }
  // The smallest box that encloses both.
  CAIRN_HOST_DEVICE static Box Enclosure(const Box& a, const Box& b) {
    return {Min(a.left, b.left), Min(a.top, b.top), Max(a.right, b.right), Max(a.bottom, b.bottom)};
  }
  CAIRN_HOST_DEVICE static BoxNumber Giou(const Box& a, const Box& b) {
    const BoxNumber of_both = Union(a, b);
    const Box around = Enclosure(a, b);
    const BoxNumber enclosed = Max(around.width(), 0) * Max(around.height(), 0);
    return Intersection(a, b) / (of_both + kBoxEpsilon) - (enclosed - of_both) / (enclosed + kBoxEpsilon);
  }
  // Keras adds epsilon to heights, not to widths, and twice to the union.
  CAIRN_HOST_DEVICE static BoxNumber Ciou(const Box& a, const Box& b) {
    const BoxNumber a_height = a.height() + kBoxEpsilon, b_height = b.height() + kBoxEpsilon;
    const BoxNumber intersection = Intersection(a, b);
    const BoxNumber of_both =
        a.width() * a_height + b.width() * b_height - intersection + kBoxEpsilon + kBoxEpsilon;
    const BoxNumber iou = intersection / of_both;
    const Box around = Enclosure(a, b);
    const BoxNumber diagonal =
        around.width() * around.width() + around.height() * around.height() + kBoxEpsilon;
    const BoxNumber across = (a.left + a.right - b.left - b.right) * 0.5f;
    const BoxNumber down = (a.top + a.bottom - b.top - b.bottom) * 0.5f;
    constexpr float kFourOverPiSquared = 0.405284735f;
    const BoxNumber angle = Atan(b.width() / b_height) - Atan(a.width() / a_height);
    const BoxNumber shape = angle * angle * kFourOverPiSquared;
    const BoxNumber alpha = shape / (shape - iou + (1 + kBoxEpsilon));
    return iou - ((across * across + down * down) / diagonal + shape * alpha);
  }
};

inline BoxLoss MakeBoxLoss(const LossParams& params) {
  return {.kind = params.kind, .format = params.box_format, .mode = params.iou_mode};
}

}  // namespace cairn::kernels
