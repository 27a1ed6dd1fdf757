// Damaged files: thousands of random mutations of good ones, from fixed seeds. Whatever they hold, a reader
// answers with arrays or a status; the sanitizers watch the rest.
#include <gtest/gtest.h>

#include "common/core/random.h"
#include "tests/unit/data/npz_files.h"
#include "tests/unit/data/tf_record_files.h"
#include "worker/data/dataset.h"
#include "worker/data/idx.h"
#include "worker/data/npz.h"

namespace cairn::data {
namespace {

// One to four of: another byte, an inserted or a removed stretch, a cut end, an extreme byte.
std::string Mutated(std::string bytes, Random& random) {
  const uint32_t times = 1 + random.NextBelow(4);
  for (uint32_t i = 0; i < times && !bytes.empty(); ++i) {
    const size_t at = random.NextBelow(static_cast<uint32_t>(bytes.size()));
    const size_t stretch = 1 + random.NextBelow(8);
    switch (random.NextBelow(5)) {
      case 0:
        bytes[at] = static_cast<char>(random.NextBelow(256));
        break;
      case 1:
        bytes.insert(at, stretch, static_cast<char>(random.NextBelow(256)));
        break;
      case 2:
        bytes.erase(at, stretch);
        break;
      case 3:
        bytes.resize(at);
        break;
      default:
        bytes[at] = random.NextBelow(2) == 0 ? '\0' : '\xFF';
    }
  }
  return bytes;
}

// What came of the mutations: both must occur, or the test tests nothing.
struct Outcomes {
  int accepted = 0, refused = 0;
  template <typename T>
  void Count(const absl::StatusOr<T>& result) {
    ++(result.ok() ? accepted : refused);
    EXPECT_TRUE(result.ok() || !result.status().message().empty());
  }
  void ExpectBoth() const {
    EXPECT_GT(accepted, 0);
    EXPECT_GT(refused, 0);
  }
};

TEST(Mutations, OfIdxFilesGiveAnArrayOrAStatus) {
  const TemporaryDirectory dir;
  WriteGzip(dir / "packed", IdxHeader(0x0D, {3, 4}) + std::string(48, 'x'));
  const std::string plain = IdxHeader(0x08, {4, 3, 2}) + std::string(24, 'x'),
                    packed = ReadText(dir / "packed");
  Random random(1, "idx");
  Outcomes outcomes;
  for (int i = 0; i < 3000; ++i) {
    WriteText(dir / "x", Mutated(i % 2 ? plain : packed, random));
    const auto array = ReadIdx(dir / "x");
    if (array.ok()) {
      EXPECT_EQ(static_cast<int64_t>(array->bytes.size()), array->shape.num_elements() * SizeOf(array->type));
    }
    outcomes.Count(array);
  }
  outcomes.ExpectBoth();
}

TEST(Mutations, OfNpzFilesGiveADataSetOrAStatus) {
  const TemporaryDirectory dir;
  const std::map<std::string, std::string> members = {
      {"x_train.npy", Npy("<f4", "(3, 2, 2)", std::string(48, '\x01'))},
      {"y_train.npy", Npy("|u1", "(3,)", Bytes({0, 1, 2}))}};
  WriteNpz(dir / "stored.npz", members);
  WriteNpz(dir / "deflated.npz", members, ZIP_CM_DEFLATE);
  const std::string stored = ReadText(dir / "stored.npz"), deflated = ReadText(dir / "deflated.npz");
  Random random(2, "npz");
  Outcomes outcomes;
  for (int i = 0; i < 3000; ++i) {
    WriteText(dir / "x.npz", Mutated(i % 2 ? stored : deflated, random));
    outcomes.Count(LoadTrainingData({.path = dir / "x.npz"}));
  }
  outcomes.ExpectBoth();
}

// Inside a sound archive, so that the checksum does not catch it first.
TEST(Mutations, OfNpyHeadersGiveAnArrayOrAStatus) {
  const TemporaryDirectory dir;
  const std::string npy = Npy("<i4", "(2, 3)", std::string(24, '\x01'));
  Random random(3, "npy");
  Outcomes outcomes;
  for (int i = 0; i < 3000; ++i) {
    // Half of them in the dictionary, where the parser is.
    const size_t begin = i % 2 ? 10 : 0;
    WriteNpz(dir / "x.npz", {{"x.npy", npy.substr(0, begin) + Mutated(npy.substr(begin), random)}});
    const auto file = NpzFile::Open(dir / "x.npz");
    ASSERT_TRUE(file.ok()) << file.status();
    const auto array = file->Read("x");
    if (array.ok()) {
      EXPECT_EQ(static_cast<int64_t>(array->bytes.size()), array->shape.num_elements() * SizeOf(array->type));
    }
    outcomes.Count(array);
  }
  outcomes.ExpectBoth();
}

// Reads every example: what was checked at loading must be there.
void ReadAll(const Dataset& dataset) {
  std::vector<float> inputs(static_cast<size_t>(dataset.example_shape().num_elements()));
  std::vector<float> target(static_cast<size_t>(dataset.num_targets()));
  for (int64_t i = 0; i < dataset.size(); ++i)
    dataset.Read(i, absl::MakeSpan(inputs), absl::MakeSpan(target));
}

// Loads mutations of `good` under the name `name`, at times with leave to pass over bad rows.
void LoadMutations(const std::string& name, const std::string& good, Random random) {
  const TemporaryDirectory dir;
  Outcomes outcomes;
  for (int i = 0; i < 3000; ++i) {
    WriteText(dir / name, Mutated(good, random));
    const auto data = LoadTrainingData({.path = dir / name, .missing_value = 0.0f, .max_bad_rows = i % 2});
    if (data.ok()) ReadAll(*data->train);
    outcomes.Count(data);
  }
  outcomes.ExpectBoth();
}

TEST(Mutations, OfCsvFilesGiveADataSetOrAStatus) {
  LoadMutations("x.csv", "a,\"b, c\",label\r\n1,-2.5,cat\n\"3\",,dog\n4e2,5,\"big \"\"cat\"\"\"\n",
                Random(4, "csv"));
}

std::string SmallRecords() {
  std::string file;
  for (int64_t i = 0; i < 3; ++i) {
    file += TfRecord(TfExample({{"x", FloatsFeature({1.0f, 2.0f})}, {"y", IntegersFeature({i})}}));
  }
  return file;
}

TEST(Mutations, OfTfRecordFilesGiveADataSetOrAStatus) {
  LoadMutations("x.tfrecord", SmallRecords(), Random(5, "tfrecord"));
  const TemporaryDirectory dir;
  WriteGzip(dir / "packed", SmallRecords());
  LoadMutations("y.tfrecord.gz", ReadText(dir / "packed"), Random(6, "tfrecord.gz"));
}

// Inside a sound record, so that the checksum does not catch it first.
TEST(Mutations, OfExamplesGiveADataSetOrAStatus) {
  const TemporaryDirectory dir;
  const std::string example = TfExample({{"x", BytesFeature("abc")}, {"label", IntegersFeature({300})}});
  const std::string floats = TfExample({{"x", FloatsFeature({1, 2})}, {"label", FloatsFeature({0.5f})}});
  Random random(7, "example");
  Outcomes outcomes;
  for (int i = 0; i < 3000; ++i) {
    WriteText(dir / "x.tfrecord", TfRecord(Mutated(i % 2 ? example : floats, random)));
    const auto data = LoadTrainingData({.path = dir / "x.tfrecord"});
    if (data.ok()) ReadAll(*data->train);
    outcomes.Count(data);
  }
  outcomes.ExpectBoth();
}

TEST(Mutations, OfCifarFilesGiveADataSetOrAStatus) {
  const TemporaryDirectory dir;
  const std::string good = std::string(2 * 3073, '\x05');
  Random random(8, "cifar");
  Outcomes outcomes;
  for (int i = 0; i < 500; ++i) {
    WriteText(dir / "data_batch_1.bin", Mutated(good, random));
    const auto data = LoadTrainingData({.path = dir.path()});
    if (data.ok()) ReadAll(*data->train);
    outcomes.Count(data);
  }
  outcomes.ExpectBoth();
}

TEST(Mutations, OfMappedNpyFilesGiveADataSetOrAStatus) {
  const TemporaryDirectory dir;
  const std::string good = Npy("<f4", "(3, 2)", std::string(24, '\x01'));
  WriteText(dir / "y_train.npy", Npy("|u1", "(3,)", Bytes({0, 1, 2})));
  Random random(9, "mapped npy");
  Outcomes outcomes;
  for (int i = 0; i < 3000; ++i) {
    WriteText(dir / "x_train.npy", Mutated(good, random));
    const auto data = LoadTrainingData({.path = dir.path()});
    if (data.ok()) ReadAll(*data->train);
    outcomes.Count(data);
  }
  outcomes.ExpectBoth();
}

}  // namespace
}  // namespace cairn::data
