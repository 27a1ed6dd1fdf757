#include "data/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "data/dataset.h"
#include "tests/unit/data/data_files.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The columns of a file that a model was trained on.
Columns TrainedOn(const std::string& text, DataOptions options = {}) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", text);
  options.path = dir / "a.csv";
  const auto data = LoadTrainingData(options);
  EXPECT_TRUE(data.ok()) << data.status();
  return *data->columns;
}

std::vector<float> InputsAsTrained(const std::string& text, const Columns& trained) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", text);
  const auto examples =
      LoadExamples({.path = dir / "a.csv", .trained_columns = trained, .labels_optional = true});
  EXPECT_TRUE(examples.ok()) << examples.status();
  if (!examples.ok()) return {};
  const RowSource& rows = *(*examples)->inputs;
  std::vector<float> inputs(static_cast<size_t>(rows.row_shape().num_elements()));
  rows.Read(0, {MutableTensorView::OfFloats(rows.row_shape(), absl::MakeSpan(inputs))});
  return inputs;
}

std::string RefusalAsTrained(const std::string& text, const Columns& trained, DataOptions options = {},
                             bool labels_optional = true) {
  const TemporaryDirectory dir;
  WriteText(dir / "a.csv", text);
  options.path = dir / "a.csv";
  options.trained_columns = trained;
  options.labels_optional = labels_optional;
  return std::string(LoadExamples(options).status().message());
}

TEST(TrainedCsvColumns, AreFoundByNameInAnyOrder) {
  const Columns trained = TrainedOn("a,b,label\n1,2,0\n3,4,1\n");
  for (const char* text : {"a,b,label\n1,2,0\n", "label,b,a\n0,2,1\n", "b,extra,a\n2,9,1\n"}) {
    EXPECT_THAT(InputsAsTrained(text, trained), ElementsAre(1, 2)) << text;
  }
  const Columns chosen =
      TrainedOn("y,a,b\n0,1,2\n1,3,4\n", {.label_column = "y", .feature_columns = {"b", "a"}});
  EXPECT_THAT(InputsAsTrained("a,b,y\n1,2,0\n", chosen), ElementsAre(2, 1));
}

TEST(TrainedCsvColumns, AMissingColumnIsNamed) {
  const Columns trained = TrainedOn("a,b,label\n1,2,0\n");
  EXPECT_THAT(RefusalAsTrained("a,c,label\n1,2,0\n", trained),
              HasSubstr("a.csv: has no column 'b', which the model was trained on; it has: a, c, label"));
  EXPECT_THAT(RefusalAsTrained("a,b,c\n1,2,3\n", trained, {}, /*labels_optional=*/false),
              HasSubstr("has no column 'label', the label in training"));
}

TEST(TrainedCsvColumns, AreFoundByPositionIfAFileHasNoHeader) {
  const Columns named = TrainedOn("label,a,b\n0,1,2\n"), numbered = TrainedOn("1,2,0\n");
  EXPECT_THAT(InputsAsTrained("0,1,2\n", named), ElementsAre(1, 2));
  EXPECT_THAT(InputsAsTrained("1,2\n", named), ElementsAre(1, 2));
  EXPECT_THAT(InputsAsTrained("a,b,label\n1,2,0\n", numbered), ElementsAre(1, 2));
  EXPECT_THAT(
      RefusalAsTrained("1\n", named),
      HasSubstr("has 1 columns, but the training set had 3 (label, a, b), and this file has no header"));
  EXPECT_THAT(RefusalAsTrained("label,a,b\n0,1,2\n", numbered),
              HasSubstr("column 0 is 'label', but was an input in training, whose files had no header"));
}

TEST(TrainedCsvColumns, SelectionByPositionIsNoted) {
  const TemporaryDirectory dir;
  const Columns trained = TrainedOn("a,b,label\n1,2,0\n");
  for (const auto& [text, noted] : {std::pair("1,2,0\n", true), {"label,a,b\n0,1,2\n", false}}) {
    WriteText(dir / "a.csv", text);
    const auto examples = LoadExamples({.path = dir / "a.csv", .trained_columns = trained});
    ASSERT_TRUE(examples.ok()) << examples.status();
    EXPECT_EQ(absl::StrContains((*examples)->notes.front(), "columns by their position"), noted) << text;
  }
}

TEST(TrainedCsvColumns, ContradictingOptionsAreRefused) {
  const Columns trained = TrainedOn("a,b,label\n1,2,0\n,4,1\n", {.missing_value = 7.0f});
  EXPECT_THAT(InputsAsTrained("a,b\n,2\n", trained), ElementsAre(7, 2));
  const std::string text = "b,a,label\n2,1,0\n";
  EXPECT_EQ(RefusalAsTrained(text, trained, {.label_column = "label", .feature_columns = {"a", "b"}}), "");
  EXPECT_THAT(RefusalAsTrained(text, trained, {.feature_columns = {"b", "a"}}),
              HasSubstr("--feature_column: the inputs are columns b, a, but in training they were a, b"));
  EXPECT_THAT(RefusalAsTrained(text, trained, {.label_column = "a"}),
              HasSubstr("--label_column: the label is column 'a', but in training it was 'label'"));
  EXPECT_THAT(RefusalAsTrained(text, trained, {.missing_value = 0.0f}),
              HasSubstr("--missing_value: an empty field stands for 0, but in training for 7"));
}

}  // namespace
}  // namespace cairn::data
