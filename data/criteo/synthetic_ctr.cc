#include "data/criteo/synthetic_ctr.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "data/criteo/criteo_line.h"
#include "data/file/output_directory.h"

namespace cairn::data {
namespace {

// The numbers of categories of C1 to C26 in Criteo's Kaggle set.
constexpr std::array<int64_t, kCriteoCategories> kCardinalities = {
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};

constexpr size_t kFactors = 4;
// Standard deviations, so that the logits vary by about 1.4 and the teacher's AUC is near 0.8.
constexpr float kWeightDeviation = 0.2f, kFactorDeviation = 0.14f, kNumberDeviation = 0.1f;
constexpr float kBias = -1.2f;
// One value of so many is missing.
constexpr uint32_t kMissingCategory = 32, kMissingNumber = 8;
constexpr uint32_t kNegativeNumber = 64;

class Teacher {
 public:
  explicit Teacher(const SyntheticCtrOptions& options) : seed_(options.seed) {
    for (size_t field = 0; field < kCardinalities.size(); ++field) {
      const double scaled = std::ceil(static_cast<double>(kCardinalities[field]) * options.scale);
      cardinalities_[field] = std::max<int64_t>(2, static_cast<int64_t>(scaled));
      log_[field] = std::log(static_cast<double>(cardinalities_[field]) + 1);
    }
    Random random(seed_, "ctr/numbers");
    for (float& weight : number_weights_) weight = kNumberDeviation * random.NextNormal();
  }

  int64_t categories() const {
    return std::accumulate(cardinalities_.begin(), cardinalities_.end(), int64_t{0});
  }

  // Appends a line, with its label, to `text`, and returns its logit.
  float Draw(Random& random, std::string& text, bool& label) const {
    std::string fields;
    float logit = kBias;
    for (const float weight : number_weights_) logit += weight * DrawNumber(random, fields);
    std::array<float, kFactors> sums{}, squares{};
    for (size_t field = 0; field < kCardinalities.size(); ++field) {
      const int64_t rank = DrawCategory(random, field, fields);
      Random of_category(seed_ + field * 0x9E3779B97F4A7C15, static_cast<uint64_t>(rank));
      logit += kWeightDeviation * of_category.NextNormal();
      for (size_t k = 0; k < kFactors; ++k) {
        const float factor = kFactorDeviation * of_category.NextNormal();
        sums[k] += factor;
        squares[k] += factor * factor;
      }
    }
    for (size_t k = 0; k < kFactors; ++k) logit += (sums[k] * sums[k] - squares[k]) / 2;
    label = random.NextUniform() < 1 / (1 + std::exp(-logit));
    absl::StrAppend(&text, label ? "1" : "0", fields, "\n");
    return logit;
  }

 private:
  // Appends a number; returns its value for the teacher, with a mean of about 0.
  static float DrawNumber(Random& random, std::string& fields) {
    fields += '\t';
    if (random.NextBelow(kMissingNumber) == 0) return 0;
    int64_t number = -1;
    if (random.NextBelow(kNegativeNumber) != 0) {
      number = static_cast<int64_t>(std::exp(1 + 1.5f * random.NextNormal()));
    }
    absl::StrAppend(&fields, number);
    return CriteoNumber(number) - 1.4f;
  }

  // Appends a category; returns its rank, or 0 if it is missing.
  int64_t DrawCategory(Random& random, size_t field, std::string& fields) const {
    fields += '\t';
    if (random.NextBelow(kMissingCategory) == 0) return 0;
    const double uniform = (random.NextUint32() + 0.5) * 0x1p-32;
    const int64_t rank =
        std::clamp<int64_t>(static_cast<int64_t>(std::exp(uniform * log_[field])), 1, cardinalities_[field]);
    // A bijection of 32 bits, so that categories of a field stay different.
    const auto value = static_cast<uint32_t>((static_cast<uint64_t>(rank) + (field << 24)) * 0x9E3779B1);
    absl::StrAppendFormat(&fields, "%08x", value);
    return rank;
  }

  const uint64_t seed_;
  std::array<int64_t, kCriteoCategories> cardinalities_{};
  std::array<double, kCriteoCategories> log_{};
  std::array<float, kCriteoNumbers> number_weights_{};
};

// The logits and labels of a set.
struct Drawn {
  std::vector<float> logits;
  std::vector<bool> labels;
};

absl::Status WriteError(const std::string& path) {
  return absl::ErrnoToStatus(errno != 0 ? errno : EIO, absl::StrCat("cannot write ", path));
}

absl::StatusOr<Drawn> WriteSet(const Teacher& teacher, const std::string& path, absl::string_view set,
                               int64_t rows, uint64_t seed) {
  constexpr size_t kBuffer = size_t{1} << 20;
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  std::string text;
  Drawn drawn;
  for (int64_t i = 0; i < rows; ++i) {
    Random random(seed, absl::StrCat("ctr/", set, "/", i));
    bool label = false;
    drawn.logits.push_back(teacher.Draw(random, text, label));
    drawn.labels.push_back(label);
    if (text.size() < kBuffer && i + 1 < rows) continue;
    file << text;
    text.clear();
    if (!file) return WriteError(path);
  }
  file.close();
  if (!file) return WriteError(path);
  return drawn;
}

double LogLoss(const Drawn& drawn) {
  double sum = 0;
  for (size_t i = 0; i < drawn.labels.size(); ++i) {
    const double logit = drawn.logits[i];
    sum += std::log1p(std::exp(drawn.labels[i] ? -logit : logit));
  }
  return sum / static_cast<double>(drawn.labels.size());
}

absl::Status WriteTeacher(const std::string& path, const SyntheticCtrOptions& options,
                          const SyntheticCtrTeacher& teacher) {
  errno = 0;
  std::ofstream file(path);
  file << absl::StrFormat(
      "{\"train_rows\": %d, \"test_rows\": %d, \"seed\": %d, \"scale\": %g, \"categories\": %d,\n"
      " \"click_rate\": %.6f, \"test_auc\": %.6f, \"test_log_loss\": %.6f}\n",
      options.train_rows, options.test_rows, options.seed, options.scale, teacher.categories,
      teacher.click_rate, teacher.auc, teacher.log_loss);
  file.close();
  return file ? absl::OkStatus() : WriteError(path);
}

absl::Status Check(const SyntheticCtrOptions& options) {
  constexpr int64_t kMaxRows = 1'000'000'000;
  for (const int64_t rows : {options.train_rows, options.test_rows}) {
    if (rows >= 1 && rows <= kMaxRows) continue;
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", rows, " rows; 1 to ", kMaxRows));
  }
  if (options.scale > 0 && options.scale <= 100) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the scale is ", options.scale, "; above 0, up to 100"));
}

}  // namespace

absl::StatusOr<SyntheticCtrTeacher> WriteSyntheticCtr(const std::string& directory,
                                                      const SyntheticCtrOptions& options) {
  CAIRN_RETURN_IF_ERROR(Check(options));
  CAIRN_RETURN_IF_ERROR(MakeDirectory(directory));
  const Teacher teacher(options);
  CAIRN_ASSIGN_OR_RETURN(const Drawn train, WriteSet(teacher, absl::StrCat(directory, "/train.txt"), "train",
                                                     options.train_rows, options.seed));
  CAIRN_ASSIGN_OR_RETURN(const Drawn test, WriteSet(teacher, absl::StrCat(directory, "/test.txt"), "test",
                                                    options.test_rows, options.seed));
  const auto clicks = std::count(train.labels.begin(), train.labels.end(), true);
  const SyntheticCtrTeacher result = {
      .auc = ExactAuc(test.logits, test.labels),
      .log_loss = LogLoss(test),
      .click_rate = static_cast<double>(clicks) / static_cast<double>(options.train_rows),
      .categories = teacher.categories()};
  CAIRN_RETURN_IF_ERROR(WriteTeacher(absl::StrCat(directory, "/teacher.json"), options, result));
  return result;
}

double ExactAuc(const std::vector<float>& scores, const std::vector<bool>& labels) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  double below = 0, wins = 0;  // examples of label 0 with lower scores; pairs in the right order
  for (size_t first = 0, last = 0; first < order.size(); first = last) {
    double zeros = 0, ones = 0;  // of equal scores
    for (; last < order.size() && scores[order[last]] == scores[order[first]]; ++last) {
      (labels[order[last]] ? ones : zeros) += 1;
    }
    wins += ones * (below + zeros / 2);
    below += zeros;
  }
  const double ones = static_cast<double>(scores.size()) - below;
  return ones == 0 || below == 0 ? 0.5 : wins / (ones * below);
}

}  // namespace cairn::data
