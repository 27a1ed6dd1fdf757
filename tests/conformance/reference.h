// Reference implementations of all ops, written naively in double precision, row-major, straight from the
// definitions. It shares nothing with the backends but Keras' rule for windows, which it spells out again.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/core/shape.h"

namespace cairn::reference {

struct Tensor {
  Shape shape;
  std::vector<double> values;

  explicit Tensor(const Shape& s) : shape(s), values(static_cast<size_t>(s.num_elements())) {}
  double& at(int64_t i) { return values[static_cast<size_t>(i)]; }
  double at(int64_t i) const { return values[static_cast<size_t>(i)]; }
  // [n, h, w, c]
  int64_t index(int64_t n, int64_t h, int64_t w, int64_t c) const {
    return ((n * shape[1] + h) * shape[2] + w) * shape[3] + c;
  }
};

struct Windows {
  int64_t height, width, stride_height, stride_width;
  bool same;

  static int64_t Output(int64_t input, int64_t window, int64_t stride, bool same) {
    const double span = same ? static_cast<double>(input) : static_cast<double>(input - window + 1);
    return static_cast<int64_t>(std::ceil(span / static_cast<double>(stride)));
  }
  static int64_t PadBefore(int64_t input, int64_t window, int64_t stride, bool same) {
    if (!same) return 0;
    const int64_t output = Output(input, window, stride, same);
    return std::max<int64_t>((output - 1) * stride + window - input, 0) / 2;
  }
  Shape OutputShape(const Shape& x, int64_t channels) const {
    return {x[0], Output(x[1], height, stride_height, same), Output(x[2], width, stride_width, same),
            channels};
  }
  // Calls visit(n, oh, ow, h, w, i, j) for every output place and every input place of its window that is
  // inside.
  template <typename Visit>
  void ForEach(const Shape& x, const Visit& visit) const {
    const Shape y = OutputShape(x, 1);
    const int64_t top = PadBefore(x[1], height, stride_height, same);
    const int64_t left = PadBefore(x[2], width, stride_width, same);
    for (int64_t n = 0; n < y[0]; ++n)
      for (int64_t oh = 0; oh < y[1]; ++oh)
        for (int64_t ow = 0; ow < y[2]; ++ow)
          for (int64_t i = 0; i < height; ++i)
            for (int64_t j = 0; j < width; ++j) {
              const int64_t h = oh * stride_height - top + i, w = ow * stride_width - left + j;
              if (h >= 0 && h < x[1] && w >= 0 && w < x[2]) visit(n, oh, ow, h, w, i, j);
            }
  }
};

inline void Relu(Tensor& y) {
  for (double& value : y.values) value = std::max(value, 0.0);
}
// dy in place, from the activated output.
inline void ReluBackward(const Tensor& y, Tensor& dy) {
  for (size_t i = 0; i < y.values.size(); ++i) {
    if (!(y.values[i] > 0)) dy.values[i] = 0;
  }
}

// kernel [kh, kw, c, filters], bias [filters] or empty.
inline Tensor Conv2D(const Tensor& x, const Windows& windows, const Tensor& kernel,
                     const std::vector<double>& bias) {
  const int64_t channels = x.shape[3], filters = kernel.shape[3];
  Tensor y(windows.OutputShape(x.shape, filters));
  for (int64_t i = 0; i < y.shape.num_elements() && !bias.empty(); ++i) {
    y.at(i) = bias[static_cast<size_t>(i % filters)];
  }
  windows.ForEach(x.shape, [&](auto n, auto oh, auto ow, auto h, auto w, auto i, auto j) {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t f = 0; f < filters; ++f)
        y.at(y.index(n, oh, ow, f)) += x.at(x.index(n, h, w, c)) * kernel.at(kernel.index(i, j, c, f));
  });
  return y;
}

// A square kernel [size, size, channels / groups, filters], whose elements are `dilation` apart.
struct Convolution {
  int64_t channels, filters, size, stride, dilation, groups;
  bool same;
};

// From the definition: the sum over the channels of a filter's group and over the elements of the kernel.
inline Tensor GroupedConv2D(const Tensor& x, const Convolution& c, const Tensor& kernel,
                            const std::vector<double>& bias) {
  const int64_t span = (c.size - 1) * c.dilation + 1;
  const Windows windows = {span, span, c.stride, c.stride, c.same};
  Tensor y(windows.OutputShape(x.shape, c.filters));
  const int64_t group_channels = c.channels / c.groups, group_filters = c.filters / c.groups;
  for (int64_t i = 0; i < y.shape.num_elements() && !bias.empty(); ++i) {
    y.at(i) = bias[static_cast<size_t>(i % c.filters)];
  }
  windows.ForEach(x.shape, [&](auto n, auto oh, auto ow, auto h, auto w, auto i, auto j) {
    if (i % c.dilation != 0 || j % c.dilation != 0) return;
    for (int64_t f = 0; f < c.filters; ++f) {
      for (int64_t k = 0; k < group_channels; ++k) {
        y.at(y.index(n, oh, ow, f)) += x.at(x.index(n, h, w, f / group_filters * group_channels + k)) *
                                       kernel.at(kernel.index(i / c.dilation, j / c.dilation, k, f));
      }
    }
  });
  return y;
}

// kernel [size, size, filters, channels]. The definition as a scatter: each pixel adds the kernel, scaled by
// its value, to the output around its place.
inline Tensor Conv2DTranspose(const Tensor& x, int64_t stride, bool same, const Shape& output,
                              const Tensor& kernel, const std::vector<double>& bias) {
  Tensor y(output);
  const int64_t filters = kernel.shape[2], size = kernel.shape[0];
  const int64_t top = Windows::PadBefore(output[1], size, stride, same);
  const int64_t left = Windows::PadBefore(output[2], size, stride, same);
  for (int64_t i = 0; i < y.shape.num_elements() && !bias.empty(); ++i) {
    y.at(i) = bias[static_cast<size_t>(i % filters)];
  }
  for (int64_t n = 0; n < x.shape[0]; ++n)
    for (int64_t h = 0; h < x.shape[1]; ++h)
      for (int64_t w = 0; w < x.shape[2]; ++w)
        for (int64_t i = 0; i < size; ++i)
          for (int64_t j = 0; j < size; ++j) {
            const int64_t oh = h * stride - top + i, ow = w * stride - left + j;
            if (oh < 0 || ow < 0 || oh >= output[1] || ow >= output[2]) continue;
            for (int64_t f = 0; f < filters; ++f)
              for (int64_t c = 0; c < x.shape[3]; ++c)
                y.at(y.index(n, oh, ow, f)) +=
                    x.at(x.index(n, h, w, c)) * kernel.at(kernel.index(i, j, f, c));
          }
  return y;
}

struct Gradients {
  Tensor dx, dkernel;
  std::vector<double> dbias;
};

inline Gradients Conv2DBackward(const Tensor& x, const Windows& windows, const Tensor& kernel,
                                const Tensor& dy) {
  const int64_t channels = x.shape[3], filters = kernel.shape[3];
  Gradients gradients{Tensor(x.shape), Tensor(kernel.shape),
                      std::vector<double>(static_cast<size_t>(filters))};
  for (int64_t i = 0; i < dy.shape.num_elements(); ++i) {
    gradients.dbias[static_cast<size_t>(i % filters)] += dy.at(i);
  }
  windows.ForEach(x.shape, [&](auto n, auto oh, auto ow, auto h, auto w, auto i, auto j) {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t f = 0; f < filters; ++f) {
        const double d = dy.at(dy.index(n, oh, ow, f));
        gradients.dx.at(x.index(n, h, w, c)) += d * kernel.at(kernel.index(i, j, c, f));
        gradients.dkernel.at(kernel.index(i, j, c, f)) += d * x.at(x.index(n, h, w, c));
      }
  });
  return gradients;
}

struct Pooled {
  Tensor y;
  std::vector<int64_t> maxima;  // [y], index into x; the first of equals
};

inline Pooled MaxPool2D(const Tensor& x, const Windows& windows) {
  Pooled pooled{Tensor(windows.OutputShape(x.shape, x.shape[3])), {}};
  std::fill(pooled.y.values.begin(), pooled.y.values.end(), -std::numeric_limits<double>::infinity());
  pooled.maxima.resize(pooled.y.values.size());
  windows.ForEach(x.shape, [&](auto n, auto oh, auto ow, auto h, auto w, auto, auto) {
    for (int64_t c = 0; c < x.shape[3]; ++c) {
      const int64_t to = pooled.y.index(n, oh, ow, c), from = x.index(n, h, w, c);
      if (x.at(from) > pooled.y.at(to)) {
        pooled.y.at(to) = x.at(from);
        pooled.maxima[static_cast<size_t>(to)] = from;
      }
    }
  });
  return pooled;
}

inline Tensor MaxPool2DBackward(const Tensor& x, const Pooled& pooled, const Tensor& dy) {
  Tensor dx(x.shape);
  for (size_t i = 0; i < pooled.maxima.size(); ++i) dx.at(pooled.maxima[i]) += dy.values[i];
  return dx;
}

// x [n, inputs], kernel [inputs, units].
inline Tensor Dense(const Tensor& x, const Tensor& kernel, const std::vector<double>& bias) {
  const int64_t inputs = kernel.shape[0], units = kernel.shape[1];
  Tensor y({x.shape[0], units});
  for (int64_t n = 0; n < x.shape[0]; ++n)
    for (int64_t u = 0; u < units; ++u) {
      double sum = bias.empty() ? 0 : bias[static_cast<size_t>(u)];
      for (int64_t i = 0; i < inputs; ++i) sum += x.at(n * inputs + i) * kernel.at(i * units + u);
      y.at(n * units + u) = sum;
    }
  return y;
}

inline Gradients DenseBackward(const Tensor& x, const Tensor& kernel, const Tensor& dy) {
  const int64_t inputs = kernel.shape[0], units = kernel.shape[1];
  Gradients gradients{Tensor(x.shape), Tensor(kernel.shape), std::vector<double>(static_cast<size_t>(units))};
  for (int64_t n = 0; n < x.shape[0]; ++n)
    for (int64_t u = 0; u < units; ++u) {
      const double d = dy.at(n * units + u);
      gradients.dbias[static_cast<size_t>(u)] += d;
      for (int64_t i = 0; i < inputs; ++i) {
        gradients.dx.at(n * inputs + i) += d * kernel.at(i * units + u);
        gradients.dkernel.at(i * units + u) += d * x.at(n * inputs + i);
      }
    }
  return gradients;
}

// Over the last axis of [n, classes].
inline Tensor Softmax(const Tensor& x) {
  const int64_t classes = x.shape[1];
  Tensor y(x.shape);
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    double largest = x.at(n * classes), sum = 0;
    for (int64_t j = 0; j < classes; ++j) largest = std::max(largest, x.at(n * classes + j));
    for (int64_t j = 0; j < classes; ++j)
      sum += y.at(n * classes + j) = std::exp(x.at(n * classes + j) - largest);
    for (int64_t j = 0; j < classes; ++j) y.at(n * classes + j) /= sum;
  }
  return y;
}

// The Jacobian, entry by entry: dx_j = sum_k dy_k y_k ([j = k] - y_j).
inline Tensor SoftmaxBackward(const Tensor& y, const Tensor& dy) {
  const int64_t classes = y.shape[1];
  Tensor dx(y.shape);
  for (int64_t n = 0; n < y.shape[0]; ++n)
    for (int64_t j = 0; j < classes; ++j)
      for (int64_t k = 0; k < classes; ++k) {
        const double yk = y.at(n * classes + k), yj = y.at(n * classes + j);
        dx.at(n * classes + j) += dy.at(n * classes + k) * yk * ((j == k ? 1.0 : 0.0) - yj);
      }
  return dx;
}

// The bounds that Keras clips probabilities to, in the float32 that it computes in.
inline double Clip(double probability) {
  return std::clamp(probability, double{1e-7f}, double{1.0f - 1e-7f});
}

// One row's losses, as Keras defines them: of classes whose `targets` are shares ...
inline double CategoricalCrossEntropy(const double* outputs, const double* targets, int64_t classes,
                                      bool from_logits) {
  double sum = 0, loss = 0;
  for (int64_t j = 0; j < classes; ++j) sum += from_logits ? std::exp(outputs[j] - outputs[0]) : outputs[j];
  for (int64_t j = 0; j < classes; ++j) {
    const double log_probability =
        from_logits ? outputs[j] - outputs[0] - std::log(sum) : std::log(Clip(outputs[j] / sum));
    loss -= targets[j] * log_probability;
  }
  return loss;
}
// ... of one class ...
inline double CrossEntropy(const double* outputs, int64_t classes, int64_t label, bool from_logits) {
  std::vector<double> one_hot(static_cast<size_t>(classes));
  one_hot[static_cast<size_t>(label)] = 1;
  return CategoricalCrossEntropy(outputs, one_hot.data(), classes, from_logits);
}
// ... of one output that is a class of its own ...
inline double BinaryCrossEntropy(double output, double target, bool from_logits) {
  const double p = from_logits ? 1 / (1 + std::exp(-output)) : Clip(output);
  return -(target * std::log(p) + (1 - target) * std::log(1 - p));
}
// ... and of one output that may be any number.
inline double Huber(double error, double delta) {
  const double quadratic = std::min(std::fabs(error), delta);
  return 0.5 * quadratic * quadratic + delta * (std::fabs(error) - quadratic);
}

}  // namespace cairn::reference
