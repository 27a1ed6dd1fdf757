// Metrics of ranked lists: HitRate, and NDCG as in keras_rs (keras_rs/src/metrics/ndcg.py). A list is a set of
// candidates with scores, some of which are relevant. Of equal scores, those of irrelevant candidates rank first, so
// that a model gains nothing by giving all candidates one score.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "nn/metrics/metric.h"

namespace cairn::nn {
namespace {

using Span = absl::Span<const float>;

// The mean over lists of a value of each list, weighted.
class RankingMetric : public Metric {
 public:
  void Update(Span outputs, Span targets, Span weights) final {
    const auto width = static_cast<size_t>(params_.rows_per_example * params_.width);
    const size_t examples = outputs.size() / width;
    for (size_t i = 0; i < examples; ++i) {
      const double weight = weights.empty() ? 1.0 : double{weights[i]};
      const Span output = outputs.subspan(i * width, width);
      switch (params_.candidates) {
        case Candidates::kOutputs:
          AddOutputs(output, targets.subspan(i * width, width), weight);
          break;
        case Candidates::kClasses:
          AddClasses(output, targets.subspan(i * targets.size() / examples), weight);
          break;
        case Candidates::kBatch:
          AddQuery(outputs, targets, i, weight);
      }
    }
  }
  double Result() const final { return count_ == 0 ? 0 : total_ / count_; }
  void Reset() final {
    total_ = count_ = 0;
    list_.clear();
  }

 protected:
  struct Candidate {
    float score = 0, relevance = 0;
  };

  explicit RankingMetric(const MetricParams& params) : params_(params) {}
  // Ranks are below this.
  size_t Cutoff(size_t candidates) const {
    return params_.k == 0 ? candidates : std::min(candidates, static_cast<size_t>(params_.k));
  }

 private:
  // The value of a list, whose first candidates up to Cutoff() are ranked.
  virtual double OfList(const std::vector<Candidate>& ranked) const = 0;
  // The same, if one candidate is relevant and `before` others rank before it.
  virtual double OfRank(size_t before) const = 0;

  // The relevance of each output, one list for each row; or one candidate of a list of several examples.
  void AddOutputs(Span outputs, Span targets, double weight) {
    const auto width = static_cast<size_t>(params_.width);
    for (size_t row = 0; row < outputs.size(); row += width) {
      if (list_.empty()) weight_ = weight;
      for (size_t j = row; j < row + width; ++j) list_.push_back({outputs[j], targets[j]});
      if (width == 1 && list_.size() < static_cast<size_t>(params_.list_size)) continue;
      Finish(weight_);
    }
  }

  // One relevant class in each row.
  void AddClasses(Span outputs, Span labels, double weight) {
    const auto width = static_cast<size_t>(params_.width);
    for (size_t row = 0; row * width < outputs.size(); ++row) {
      const Span scores = outputs.subspan(row * width, width);
      const auto label = static_cast<size_t>(labels[row]);
      const float own = Order(scores[label]);
      size_t before = 0;
      for (size_t j = 0; j < width; ++j) before += j != label && Order(scores[j]) >= own ? 1 : 0;
      Count(before, weight);
    }
  }

  // Query `i` of a batch of pairs of embeddings, among the different items of the batch.
  void AddQuery(Span outputs, Span items, size_t i, double weight) {
    const auto width = static_cast<size_t>(params_.width), dim = width / 2;
    if (i == 0) first_ = FirstOfEachItem(items);
    const float* const query = outputs.data() + i * width;
    const auto score = [&](size_t j) { return Order(Dot(query, outputs.data() + j * width + dim, dim)); };
    const float own = score(i);
    size_t before = 0;
    for (const size_t j : first_) before += items[j] != items[i] && score(j) >= own ? 1 : 0;
    Count(before, weight);
  }

  // Adds a list with one relevant candidate, and so many before it.
  void Count(size_t before, double weight) {
    const bool counts = params_.k == 0 || before < static_cast<size_t>(params_.k);
    total_ += counts ? weight * OfRank(before) : 0;
    count_ += weight;
  }

  // In eight sums, which the processor adds to at once.
  static float Dot(const float* a, const float* b, size_t dim) {
    std::array<float, 8> sums{};
    size_t k = 0;
    for (; k + sums.size() <= dim; k += sums.size()) {
      for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += a[k + lane] * b[k + lane];
    }
    for (; k < dim; ++k) sums[k % sums.size()] += a[k] * b[k];
    return std::accumulate(sums.begin(), sums.end(), 0.0f);
  }

  // The first example of each item, in order.
  static std::vector<size_t> FirstOfEachItem(Span items) {
    std::vector<size_t> order(items.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return items[a] < items[b]; });
    const auto same = [&](size_t a, size_t b) { return items[a] == items[b]; };
    order.erase(std::unique(order.begin(), order.end(), same), order.end());
    return order;
  }

  // A NaN counts as less than all numbers.
  static float Order(float score) { return std::isnan(score) ? -HUGE_VALF : score; }

  void Finish(double weight) {
    const auto last = static_cast<std::ptrdiff_t>(Cutoff(list_.size()));
    std::partial_sort(list_.begin(), list_.begin() + last, list_.end(),
                      [](const Candidate& a, const Candidate& b) {
                        const float of_a = Order(a.score), of_b = Order(b.score);
                        return of_a != of_b ? of_a > of_b : a.relevance < b.relevance;
                      });
    total_ += weight * OfList(list_);
    count_ += weight;
    list_.clear();
  }

  const MetricParams params_;
  double total_ = 0, count_ = 0;
  std::vector<Candidate> list_;  // of the current list
  double weight_ = 1;            // of the current list's first example
  std::vector<size_t> first_;    // FirstOfEachItem() of the current batch
};

// Whether one of the first k candidates is relevant: RecBole's Hit.
class HitRate final : public RankingMetric {
 public:
  explicit HitRate(const MetricParams& params) : RankingMetric(params) {}

 private:
  double OfRank(size_t) const override { return 1; }
  double OfList(const std::vector<Candidate>& ranked) const override {
    const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(Cutoff(ranked.size()));
    return std::any_of(ranked.begin(), end, [](const Candidate& entry) { return entry.relevance > 0; }) ? 1
                                                                                                        : 0;
  }
};

// The discounted cumulative gain of the first k candidates, sum of (2^relevance - 1) / log2(1 + rank), divided by that
// of the best order. 0 for a list without a relevant candidate.
class Ndcg final : public RankingMetric {
 public:
  explicit Ndcg(const MetricParams& params) : RankingMetric(params) {}

 private:
  double OfRank(size_t before) const override { return 1 / std::log2(static_cast<double>(before) + 2); }
  double OfList(const std::vector<Candidate>& ranked) const override {
    std::vector<double> gains;
    for (const Candidate& entry : ranked) {
      gains.push_back(entry.relevance == 0 ? 0 : std::exp2(double{entry.relevance}) - 1);
    }
    const double gain = Discounted(gains);
    const auto last = static_cast<std::ptrdiff_t>(Cutoff(gains.size()));
    std::partial_sort(gains.begin(), gains.begin() + last, gains.end(), std::greater<>());
    const double best = Discounted(gains);
    return best == 0 ? 0 : gain / best;
  }

  double Discounted(const std::vector<double>& gains) const {
    double sum = 0;
    for (size_t i = 0; i < Cutoff(gains.size()); ++i) sum += gains[i] / std::log2(static_cast<double>(i) + 2);
    return sum;
  }
};

}  // namespace

std::unique_ptr<Metric> MakeHitRate(const MetricParams& params) {
  return std::make_unique<HitRate>(params);
}
std::unique_ptr<Metric> MakeNdcg(const MetricParams& params) {
  return std::make_unique<Ndcg>(params);
}

}  // namespace cairn::nn
