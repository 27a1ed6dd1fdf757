#include "data/array/synthetic_mnist.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/array/idx.h"
#include "data/file/output_directory.h"

namespace cairn::data {
namespace {

// A point of a stroke. Its coordinates range from 0 to 100, left to right and top to bottom, or slightly
// beyond at the bend of a curve. Strokes are rounded between their points, but not at a corner.
struct ModelPoint {
  int x, y;
  bool corner = false;
};
using ModelStroke = std::vector<ModelPoint>;
using Model = std::vector<ModelStroke>;

constexpr bool kCorner = true;

// The shapes of each digit: [digit][shape][stroke][point]. One shape or stroke per line.
// clang-format off
const std::vector<std::vector<Model>>& Models() {
  static const std::vector<std::vector<Model>> models = {
      // 0
      {{{{52, -2}, {16, 8}, {4, 52}, {18, 98}, {54, 106}, {88, 92}, {96, 48}, {82, 6}, {48, -4}}}},
      // 1, three shapes: a bar; a bar with a flag; a bar with a flag and a foot
      {{{{50, 0}, {50, 50}, {50, 100}}},
       {{{26, 24}, {54, 0, kCorner}, {54, 100}}},
       {{{30, 20}, {52, 0, kCorner}, {52, 100}},
        {{24, 100}, {80, 100}}}},
      // 2, two shapes: with a corner; with a loop
      {{{{12, 26}, {22, 0}, {78, -8}, {92, 34}, {46, 70}, {8, 98, kCorner}, {48, 96}, {92, 98}}},
       {{{14, 22}, {30, -4}, {84, -2}, {88, 40}, {48, 80}, {14, 104}, {4, 84}, {28, 74}, {56, 96}, {96, 92}}}},
      // 3, two shapes: with a round top; with a flat top
      {{{{14, 14}, {40, -8}, {90, 2}, {86, 44}, {40, 48, kCorner}, {92, 50}, {100, 96}, {46, 110}, {8, 86}}},
       {{{14, 2}, {82, 2, kCorner}, {44, 42, kCorner}, {94, 46}, {96, 98}, {44, 110}, {8, 88}}}},
      // 4, two shapes: with an open top; with a closed top
      {{{{24, 2}, {12, 56, kCorner}, {90, 56}},
        {{70, 14}, {64, 100}}},
       {{{64, 100}, {64, 0, kCorner}, {6, 66, kCorner}, {94, 66}}}},
      // 5, two shapes: of two strokes, the bar last; of one stroke
      {{{{26, 4}, {20, 46, kCorner}, {56, 30}, {98, 48}, {92, 98}, {44, 110}, {10, 88}},
        {{26, 4}, {86, 2}}},
       {{{88, 2}, {28, 4, kCorner}, {18, 48, kCorner}, {60, 34}, {98, 60}, {80, 104}, {10, 100}}}},
      // 6
      {{{{74, 0}, {36, 14}, {6, 60}, {16, 106}, {64, 110}, {94, 84}, {74, 50}, {36, 52}, {14, 78}}}},
      // 7, two shapes: without a bar; with a bar
      {{{{10, 6}, {90, 4, kCorner}, {56, 50}, {40, 100}}},
       {{{10, 4}, {88, 2, kCorner}, {60, 46}, {38, 100}},
        {{28, 52}, {80, 48}}}},
      // 8
      {{{{80, 14}, {50, -10}, {14, 8}, {26, 42}, {74, 58}, {96, 92}, {50, 114}, {6, 92}, {26, 58}, {72, 42},
         {84, 12}}}},
      // 9, two shapes: with a straight tail; with a hook
      {{{{82, 16}, {52, -8}, {10, 8}, {10, 48}, {54, 58}, {84, 16, kCorner}, {78, 60}, {68, 102}}},
       {{{82, 16}, {50, -8}, {10, 12}, {16, 52}, {60, 54}, {84, 14, kCorner}, {90, 76}, {64, 108}, {20, 94}}}},
  };
  return models;
}
// clang-format on

// Image coordinates: 256 units per pixel, with pixel (0, 0) centred at the origin.
constexpr int64_t kPixel = 256;
struct Point {
  int64_t x, y;
};
using Stroke = std::vector<Point>;

int64_t Between(int low, int high, Random& random) {
  return low + static_cast<int64_t>(random.NextBelow(static_cast<uint32_t>(high - low + 1)));
}

// A writer's hand: maps points of a shape to the image. Factors are in 1/1024.
struct Hand {
  explicit Hand(Random& random)
      : width(Between(10 * 256, 20 * 256, random)),
        height(Between(14 * 256, 21 * 256, random)),
        slant(Between(-320, 560, random)),  // most people's writing leans to the right
        slope(Between(-250, 250, random)),
        centre{(kMnistSide - 1) * kPixel / 2 + Between(-512, 512, random),
               (kMnistSide - 1) * kPixel / 2 + Between(-512, 512, random)} {}

  Point Place(const ModelPoint& point, Random& random) const {
    constexpr int kTremor = 8;
    const int64_t x = (point.x - 50 + Between(-kTremor, kTremor, random)) * width / 100;
    const int64_t y = (point.y - 50 + Between(-kTremor, kTremor, random)) * height / 100;
    return {centre.x + x - y * slant / 1024, centre.y + y + x * slope / 1024};
  }

  const int64_t width, height;  // the extent in the image of a shape's 100 units
  const int64_t slant, slope;
  const Point centre;
};

// Chaikin's corner cutting: each round replaces a point by two points, a quarter of the way towards its
// neighbours. A point that occurs three times remains a corner.
Stroke Rounded(Stroke stroke) {
  for (int round = 0; round < 3; ++round) {
    Stroke finer = {stroke.front()};
    for (size_t i = 0; i + 1 < stroke.size(); ++i) {
      const Point &a = stroke[i], &b = stroke[i + 1];
      finer.push_back({(3 * a.x + b.x) / 4, (3 * a.y + b.y) / 4});
      finer.push_back({(a.x + 3 * b.x) / 4, (a.y + 3 * b.y) / 4});
    }
    finer.push_back(stroke.back());
    stroke = std::move(finer);
  }
  return stroke;
}

int64_t SquaredDistance(const Point& p, const Point& a, const Point& b) {
  const int64_t along_x = b.x - a.x, along_y = b.y - a.y;
  const int64_t length2 = along_x * along_x + along_y * along_y;
  int64_t share = 0;  // fraction of the way from a to b at the nearest point, in 1/1024
  if (length2 > 0) {
    share = std::clamp<int64_t>(((p.x - a.x) * along_x + (p.y - a.y) * along_y) * 1024 / length2, 0, 1024);
  }
  const int64_t dx = p.x - a.x - along_x * share / 1024, dy = p.y - a.y - along_y * share / 1024;
  return dx * dx + dy * dy;
}

// The squared distance from every pixel to the nearest ink; exact if the distance is below `reach`.
class InkDistance {
 public:
  explicit InkDistance(int64_t reach) : reach_(reach) { squared_.fill(std::numeric_limits<int64_t>::max()); }

  void Add(const Stroke& stroke) {
    for (size_t i = 0; i + 1 < stroke.size(); ++i) AddSegment(stroke[i], stroke[i + 1]);
  }
  int64_t squared(size_t pixel) const { return squared_[pixel]; }

 private:
  void AddSegment(const Point& a, const Point& b) {
    const auto first = [&](int64_t u, int64_t v) {
      return std::max<int64_t>(0, (std::min(u, v) - reach_) / kPixel);
    };
    const auto last = [&](int64_t u, int64_t v) {
      return std::min<int64_t>(kMnistSide - 1, (std::max(u, v) + reach_) / kPixel + 1);
    };
    for (int64_t row = first(a.y, b.y); row <= last(a.y, b.y); ++row) {
      for (int64_t column = first(a.x, b.x); column <= last(a.x, b.x); ++column) {
        int64_t& nearest = squared_[static_cast<size_t>(row * kMnistSide + column)];
        nearest = std::min(nearest, SquaredDistance({column * kPixel, row * kPixel}, a, b));
      }
    }
  }

  const int64_t reach_;
  std::array<int64_t, kMnistSide * kMnistSide> squared_;
};

absl::Status WriteSplit(const std::string& directory, const std::string& prefix, int64_t count,
                        uint64_t seed) {
  std::vector<uint8_t> images, labels;
  images.reserve(static_cast<size_t>(count * kMnistSide * kMnistSide));
  for (int64_t i = 0; i < count; ++i) {
    Random random(seed, absl::StrCat("digits/", prefix, "/", i));
    const auto digit = static_cast<uint8_t>(random.NextBelow(10));
    const DigitImage image = DrawDigit(digit, random);
    images.insert(images.end(), image.begin(), image.end());
    labels.push_back(digit);
  }
  CAIRN_RETURN_IF_ERROR(
      WriteIdx(absl::StrCat(directory, "/", prefix, "-images-idx3-ubyte"),
               {ElementType::kUint8, {count, kMnistSide, kMnistSide}, SharedBytes(std::move(images))}));
  return WriteIdx(absl::StrCat(directory, "/", prefix, "-labels-idx1-ubyte"),
                  {ElementType::kUint8, {count}, SharedBytes(std::move(labels))});
}

}  // namespace

DigitImage DrawDigit(int digit, Random& random) {
  CAIRN_CHECK(digit >= 0 && digit <= 9);
  const auto& ways = Models()[static_cast<size_t>(digit)];
  const Model& model = ways[random.NextBelow(static_cast<uint32_t>(ways.size()))];
  const Hand hand(random);
  const int64_t pen_radius = Between(180, 400, random);
  const int64_t darkness = Between(190, 255, random);

  InkDistance distance(pen_radius + kPixel);
  for (const ModelStroke& model_stroke : model) {
    Stroke stroke;
    for (const ModelPoint& point : model_stroke) {
      stroke.insert(stroke.end(), point.corner ? 3 : 1, hand.Place(point, random));
    }
    distance.Add(Rounded(std::move(stroke)));
  }

  DigitImage image;
  for (size_t pixel = 0; pixel < image.size(); ++pixel) {
    // The square root of an integer below 2^53 is rounded correctly, so it is the same on every IEEE 754
    // machine.
    const double root =
        std::sqrt(static_cast<double>(std::min<int64_t>(distance.squared(pixel), int64_t{1} << 40)));
    const int64_t coverage =
        std::clamp<int64_t>(pen_radius + kPixel / 2 - static_cast<int64_t>(root), 0, kPixel);
    int64_t ink = coverage * darkness / kPixel;
    if (ink > 0) ink += Between(-24, 24, random);
    if (random.NextBelow(256) == 0) ink += Between(0, 90, random);  // dirt
    image[pixel] = static_cast<uint8_t>(std::clamp<int64_t>(ink, 0, 255));
  }
  return image;
}

absl::Status WriteSyntheticMnist(const std::string& directory, int64_t num_train, int64_t num_validation,
                                 uint64_t seed) {
  constexpr int64_t kMax = 10'000'000;
  if (num_train < 1 || num_train > kMax || num_validation < 0 || num_validation > kMax) {
    return absl::InvalidArgumentError(absl::StrCat("cannot draw ", num_train, " training and ",
                                                   num_validation, " validation examples; up to ", kMax,
                                                   " of each"));
  }
  CAIRN_RETURN_IF_ERROR(MakeDirectory(directory));
  CAIRN_RETURN_IF_ERROR(WriteSplit(directory, "train", num_train, seed));
  if (num_validation == 0) return absl::OkStatus();
  return WriteSplit(directory, "t10k", num_validation, seed);
}

}  // namespace cairn::data
