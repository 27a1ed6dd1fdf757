// Model files with one error each, and the messages about them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "nn/model.h"
#include "tests/support/effort.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

struct Broken {
  const char* fault;  // the test's name
  std::string json;
  std::vector<std::string> told;  // fragments of the message, all required
};

std::string Conv(absl::string_view fields) {
  return SequentialOf(absl::StrCat(
      R"({"class_name": "Conv2D", "config": {"name": "edges", "input_shape": [8, 8, 3], )", fields, "}}"));
}

std::string Dense(absl::string_view fields) {
  return SequentialOf(absl::StrCat(
      R"({"class_name": "Dense", "config": {"name": "scores", "input_shape": [4], )", fields, "}}"));
}

std::string Input(absl::string_view fields) {
  return SequentialOf(absl::StrCat(R"({"class_name": "InputLayer", "config": {)", fields,
                                   R"(}}, {"class_name": "Dense", "config": {"units": 2}})"));
}

std::string Functional(absl::string_view config) {
  return absl::StrCat(R"({"class_name": "Functional", "config": {)", config, "}}");
}

// A model of these layers after the input "in" [4,4,2].
std::string Graph(absl::string_view layers, absl::string_view output) {
  return Functional(absl::StrCat(
      R"("layers": [{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 4, 4, 2]}}, )",
      layers, R"(], "input_layers": [["in", 0, 0]], "output_layers": [[")", output, R"(", 0, 0]])"));
}

class BrokenModel : public testing::TestWithParam<Broken> {};

TEST_P(BrokenModel, IsRefusedWithASpecificMessage) {
  const auto status = Model::FromJson(GetParam().json, "model.json").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message, testing::StartsWith("model.json"));
  for (const std::string& words : GetParam().told) EXPECT_THAT(message, testing::HasSubstr(words));
}

INSTANTIATE_TEST_SUITE_P(
    , BrokenModel,
    testing::Values(
        Broken{"NoJson", "{\"config\": ", {"model.json:1"}},
        Broken{"NoObject", "[1, 2]", {"expected an object"}},
        Broken{"Empty", "{}", {"config: layers: required"}},
        Broken{"Subclassed",
               R"({"class_name": "MyModel", "config": {}})",
               {"'MyModel' models are not supported, only Sequential and Functional"}},
        Broken{"UnknownTopField", R"({"layers": []})", {"layers: unknown field"}},
        Broken{"NoLayers", SequentialOf(""), {"config: layers: required"}},
        Broken{"OnlyAnInput",
               SequentialOf(R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 4]}})"),
               {"the list has only an InputLayer"}},
        Broken{"LayerIsNoObject", SequentialOf("3"), {"layers: expected objects"}},
        Broken{"NoClassName",
               SequentialOf(R"({"config": {"units": 3}})"),
               {"layer 0, line 1: class_name: required"}},
        Broken{"UnknownLayer",
               SequentialOf(R"({"class_name": "ConvLSTM3D", "config": {"name": "memory", "filters": 4}})"),
               {"layer 'memory' (ConvLSTM3D), line 1: unknown layer; supported: InputLayer, Activation, "
                "ActivityRegularization, Add, AdditiveAttention, AlphaDropout, Attention, Average"}},
        Broken{
            "DuplicateNames",
            SequentialOf(R"({"class_name": "Dense", "config": {"name": "a", "units": 1, "input_shape": [2]}},
                               {"class_name": "Dense", "config": {"name": "a", "units": 1}})"),
            {"two layers are named 'a'"}},
        Broken{"EmptyName",
               SequentialOf(
                   R"({"class_name": "Dense", "config": {"name": "", "units": 1, "input_shape": [2]}})"),
               {"layer 0 (Dense), line 1: name: must not be empty"}},
        Broken{"Nested",
               SequentialOf(R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 4]}},
                               {"module": "keras", "class_name": "Sequential",
                                "config": {"name": "head", "layers": []}, "build_config": {}})"),
               {"layer 'head' (Sequential), line 2: config: layers: required, a list of layers"}},
        Broken{"Lambda",
               SequentialOf(R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 4]}},
                               {"class_name": "Lambda", "config": {"name": "twice", "function": {}}})"),
               {"layer 'twice' (Lambda), line 2: runs Python code, which is not supported"}},
        Broken{"CustomClassOfAKnownName",
               SequentialOf(R"({"module": "my.layers", "class_name": "Dense", "registered_name": "my>Dense",
                                "config": {"name": "d", "units": 4, "input_shape": [4]}})"),
               {"layer 'd' (Dense), line 1: is a custom class of module 'my.layers'; only Keras' own classes "
                "are "
                "supported: replace it by one"}},
        Broken{"RegisteredClassOfAKnownName",
               SequentialOf(R"({"class_name": "Dense", "registered_name": "my>Dense",
                                "config": {"name": "d", "units": 4, "input_shape": [4]}})"),
               {"layer 'd' (Dense), line 1: is a custom class, registered as 'my>Dense'"}},
        Broken{"CustomInitializerOfAKnownName",
               Dense(R"("units": 4, "kernel_initializer": {"module": "mine", "class_name": "Zeros"})"),
               {"kernel_initializer: initializer \"Zeros\": is a custom class of module 'mine'"}},
        Broken{"FunctionOfAnotherKind",
               SequentialOf(R"({"module": "keras.src.ops.nn", "class_name": "Softmax",
                                "registered_name": "Softmax",
                                "config": {"name": "s"}})"),
               {"layer 's' (Softmax), line 1: is a function of keras.ops, which only a Functional model"}},
        Broken{"FunctionOfANumber",
               Graph(R"({"module": "keras.src.ops.numpy", "class_name": "Divide", "config": {"name": "a"},
                         "inbound_nodes": [{"args": [["in", 0, 0], 0], "kwargs": {}}]})",
                     "a"),
               {"layer 'a' (Divide), line 1: number: divides by 0"}},
        Broken{
            "FunctionOfSeveralRanks",
            Graph(R"({"class_name": "GlobalMaxPooling2D", "config": {"name": "g"}, "inbound_nodes": [["in"]]},
                        {"module": "keras.src.ops.numpy", "class_name": "Multiply", "config": {"name": "m"},
                         "inbound_nodes": [["in", "g"]]})",
                  "m"),
            {"layer 'm' (Multiply), line 2: inputs: [4,4,2] and [2] have different numbers of axes"}},
        Broken{"InferenceInTrainingOfKeras2",
               Graph(R"({"class_name": "Dropout", "config": {"name": "d", "rate": 0.5},
                         "inbound_nodes": [[["in", 0, 0, {"training": false}]]]})",
                     "d"),
               {"layer 'd' (Dropout), line 1: inbound_nodes: kwargs: training: false is not supported"}},
        Broken{"NoInputShape",
               SequentialOf(R"({"class_name": "Dense", "config": {"units": 3}})"),
               {"layer 0 (Dense), line 1: batch_shape: required, such as [null,28,28,1]"}},
        Broken{"VaryingInputShape",
               Input(R"("batch_shape": [null, null, 28, 1])"),
               {"(InputLayer), line 1: batch_shape: [null,null,28,1]: the size of axis 1 is not fixed"}},
        Broken{"NegativeInputShape",
               Input(R"("batch_shape": [null, -4])"),
               {"axis 1 must be a positive integer"}},
        Broken{"HugeInputShape",
               Input(R"("batch_shape": [null, 2000000000, 2000000000, 3])"),
               {"more than 2^40 elements"}},
        Broken{"HalfPrecisionInput",
               Input(R"("batch_shape": [null, 4], "dtype": "float16")"),
               {"(InputLayer), line 1: dtype: \"float16\" is not supported, only \"float32\""}},
        Broken{"SparseInput",
               Input(R"("batch_shape": [null, 4], "sparse": true)"),
               {"sparse: true is not supported, only false"}},
        Broken{"LateInputLayer",
               SequentialOf(R"({"class_name": "Dense", "config": {"units": 1, "input_shape": [2]}},
                               {"class_name": "InputLayer", "config": {"batch_shape": [null, 1]}})"),
               {"only supported as the first layer"}},
        Broken{"BuiltForAnotherShape",
               R"({"config": {"build_input_shape": [null, 3], "layers": [
                   {"class_name": "Dense", "config": {"units": 2, "input_shape": [4]}}]}})",
               {"build_input_shape [3] is not the first layer's [4]"}},
        Broken{"MissingFilters",
               Conv(R"("kernel_size": 3)"),
               {"layer 'edges' (Conv2D), line 1: filters: required, a positive integer"}},
        Broken{"MissingKernelSize",
               Conv(R"("filters": 4)"),
               {"layer 'edges' (Conv2D), line 1: kernel_size: required"}},
        Broken{"FiltersOfWrongType",
               Conv(R"("filters": "many", "kernel_size": 3)"),
               {"filters: expected a positive integer, got \"many\""}},
        Broken{"ZeroFilters",
               Conv(R"("filters": 0, "kernel_size": 3)"),
               {"filters: expected a positive integer, got 0"}},
        Broken{"ThreeKernelSizes",
               Conv(R"("filters": 4, "kernel_size": [3, 3, 3])"),
               {"kernel_size: expected a positive integer or two of them, got [3,3,3]"}},
        Broken{"KernelTooLarge",
               Conv(R"("filters": 4, "kernel_size": 9)"),
               {"layer 'edges' (Conv2D), line 1: a window of 9x9 does not fit an image of 8x8"}},
        Broken{"KernelBeyondMemory",
               Conv(R"("filters": 2000000000, "kernel_size": 8, "padding": "same")"),
               {"layer 'edges' (Conv2D), line 1: kernel [8,8,3,2000000000]", "more than 2^32 parameters"}},
        Broken{"UnknownPadding",
               Conv(R"("filters": 4, "kernel_size": 3, "padding": "causal")"),
               {"padding: expected one of valid, same, got \"causal\""}},
        Broken{"ChannelsFirst",
               Conv(R"("filters": 4, "kernel_size": 3, "data_format": "channels_first")"),
               {"layer 'edges' (Conv2D), line 1: data_format: \"channels_first\" is not supported, only "
                "\"channels_last\""}},
        Broken{"Groups",
               Conv(R"("filters": 4, "kernel_size": 3, "groups": 2)"),
               {"layer 'edges' (Conv2D)", "2 groups must divide the 3 channels and the 4 filters"}},
        Broken{"DilatedTransposed",
               SequentialOf(
                   R"({"class_name": "Conv2DTranspose", "config": {"name": "up", "input_shape": [4, 4, 1],
                                "filters": 4, "kernel_size": 3, "dilation_rate": [2, 2]}})"),
               {"layer 'up' (Conv2DTranspose)",
                "dilation_rate: dilated transposed convolutions are not supported"}},
        Broken{
            "Regularizer",
            Conv(
                R"("filters": 4, "kernel_size": 3, "kernel_regularizer": {"class_name": "L3", "config": {}})"),
            {"layer 'edges' (Conv2D)",
             "kernel_regularizer: unknown regularizer L3; supported: L1, L2, L1L2, OrthogonalRegularizer"}},
        Broken{"Constraint",
               Dense(R"("units": 4, "bias_constraint": {"class_name": "RadialConstraint"})"),
               {"layer 'scores' (Dense), line 1: bias_constraint: unknown constraint RadialConstraint; "
                "supported: "
                "NonNeg, MaxNorm, UnitNorm, MinMaxNorm"}},
        Broken{"CustomConstraint",
               Dense(R"("units": 4, "kernel_constraint": {"class_name": "NonNeg", "module": "mine"})"),
               {"layer 'scores' (Dense), line 1: kernel_constraint: is a custom class of module 'mine'"}},
        Broken{"ConstraintOption",
               Dense(R"("units": 4, "kernel_constraint": {"class_name": "MaxNorm", "config": {"rate": 1}})"),
               {"layer 'scores' (Dense), line 1: kernel_constraint: MaxNorm: rate: 1 is not supported"}},
        Broken{
            "ConstraintValue",
            Dense(R"("units": 4, "kernel_constraint": {"class_name": "MaxNorm",
                                                          "config": {"max_value": -1}})"),
            {"layer 'scores' (Dense), line 1: kernel_constraint: MaxNorm: max_value: -1 is not supported"}},
        Broken{"ConstraintRange",
               Dense(R"("units": 4, "kernel_constraint": {"class_name": "MinMaxNorm",
                                                          "config": {"min_value": 2}})"),
               {"layer 'scores' (Dense)",
                "kernel: constraint norms over axes [0] in [2, 1] at rate 1: norms must be "
                "finite, with 0 <= minimum <= maximum"}},
        Broken{"ConstraintAxis",
               Dense(R"("units": 4, "bias_constraint": {"class_name": "UnitNorm", "config": {"axis": 1}})"),
               {"layer 'scores' (Dense)",
                "bias: constraint norms over axes [1] in [1, 1] at rate 1: shape [4] has no axis 1"}},
        Broken{"ConstraintLargestAxis",
               Dense(R"("units": 4, "bias_constraint": {"class_name": "UnitNorm",
                                                        "config": {"axis": 18446744073709551615}})"),
               {"bias_constraint: UnitNorm: axis: 18446744073709551615 is not supported"}},
        Broken{"OrthogonalVector",
               Dense(R"("units": 4, "bias_regularizer": "OrthogonalRegularizer")"),
               {"layer 'scores' (Dense)", "bias: OrthogonalRegularizer takes a matrix, not the shape [4]"}},
        Broken{"OrthogonalColumn",
               Dense(R"("units": 1, "kernel_regularizer": {"class_name": "OrthogonalRegularizer",
                                                           "config": {"mode": "columns"}})"),
               {"layer 'scores' (Dense)",
                "kernel: OrthogonalRegularizer takes 2 to 2048 columns, and the shape ", "has 1"}},
        Broken{"OrthogonalMode",
               Dense(R"("units": 4, "kernel_regularizer": {"class_name": "OrthogonalRegularizer",
                                                           "config": {"mode": "both"}})"),
               {"layer 'scores' (Dense), line 1: kernel_regularizer: OrthogonalRegularizer: mode: \"both\" "
                "is not "
                "supported"}},
        Broken{"UnknownActivation",
               Dense(R"("units": 4, "activation": "mish")"),
               {"layer 'scores' (Dense)",
                "activation: unknown activation \"mish\"; supported: elu, exponential"}},
        Broken{"MisspeltField",
               Dense(R"("units": 4, "activaton": "relu")"),
               {"layer 'scores' (Dense), line 1: activaton: unknown field; known here: ", "activation"}},
        Broken{"UnknownInitializer",
               Dense(R"("units": 4, "kernel_initializer": "stft")"),
               {"kernel_initializer: unknown initializer \"stft\"; supported: GlorotUniform"}},
        Broken{"InitializerOfMatrices",
               Dense(R"("units": 4, "bias_initializer": "orthogonal")"),
               {"scores", "bias: initializer Orthogonal needs a shape of rank 2 or more, not [4]"}},
        Broken{
            "InitializerOption",
            Dense(
                R"("units": 4, "kernel_initializer": {"class_name": "RandomNormal", "config": {"sigma": 1}})"),
            {"kernel_initializer: initializer RandomNormal: sigma 1 is not supported"}},
        Broken{
            "MixedPrecision",
            Dense(
                R"("units": 4, "dtype": {"class_name": "DTypePolicy", "config": {"name": "mixed_float16"}})"),
            {"layer 'scores' (Dense), line 1: dtype: policy \"mixed_float16\" is not supported"}},
        Broken{"Quantized",
               Dense(R"("units": 4, "dtype": {"module": "keras", "class_name": "QuantizedDTypePolicy",
                                              "config": {"mode": "int8", "source_name": "float32"}})"),
               {"layer 'scores' (Dense), line 1: dtype: the model is quantized", "int8",
                "save it before quantize()"}},
        Broken{"AnotherFloat",
               Dense(R"("units": 4, "dtype": "bfloat16")"),
               {"layer 'scores' (Dense), line 1: dtype: \"bfloat16\" is not supported, only \"float32\""}},
        Broken{"TrainableOfWrongType",
               Dense(R"("units": 4, "trainable": 1)"),
               {"layer 'scores' (Dense)", "trainable: expected true or false, got 1"}},
        Broken{"BiasOfWrongType",
               Dense(R"("units": 4, "use_bias": "yes")"),
               {"use_bias: expected true or false, got \"yes\""}},
        Broken{"PoolingWithoutImage",
               SequentialOf(R"({"class_name": "Flatten", "config": {"input_shape": [4, 4, 1]}},
                               {"class_name": "MaxPooling2D", "config": {"name": "pool"}})"),
               {"layer 'pool' (MaxPooling2D), line 2: input [16] is not an image"}},
        Broken{"NoInputs",
               Functional(R"("layers": [{}], "output_layers": ["a"])"),
               {"config: input_layers: required"}},
        Broken{"SeveralTensorsForAKey",
               Functional(R"("layers": [{}], "input_layers": ["a"],
                             "output_layers": {"a": [], "b": [["x", 0, 0], ["y", 0, 0]]})"),
               {"config: output_layers: 'a': expected one tensor, got 0"}},
        Broken{"HugeNumberOfACall",
               Graph(R"({"class_name": "Flatten", "config": {"name": "f"},
                         "inbound_nodes": [[["in", 18446744073709551615, 0, {}]]]})",
                     "f"),
               {"the number 18446744073709551615 in place of a tensor"}},
        Broken{"InputAsOneOfTwoOutputs",
               Graph(R"({"class_name": "Flatten", "config": {"name": "f"}, "inbound_nodes": [["in"]]})",
                     R"(f", 0, 0], ["in)"),
               {"config: output_layers: 'in' is not computed by the network"}},
        Broken{"UnknownInput",
               Graph(R"({"class_name": "Flatten", "config": {"name": "f"}, "inbound_nodes": [["nowhere"]]})",
                     "f"),
               {"layer 'f' (Flatten), line 1: inbound_nodes: there is no layer 'nowhere'"}},
        Broken{"UnknownOutput",
               Graph(R"({"class_name": "Flatten", "config": {"name": "f"}, "inbound_nodes": [["in"]]})", "g"),
               {"config: output_layers: there is no layer 'g'"}},
        Broken{"CallThatIsNotMade",
               Graph(R"({"class_name": "Flatten", "config": {"name": "f"}, "inbound_nodes": [["in"]]},
                        {"class_name": "Flatten", "config": {"name": "g"}, "inbound_nodes": [[["f", 1, 0, {}]]]})",
                     "g"),
               {"layer 'g' (Flatten), line 2: inbound_nodes: layer 'f' is called 1 times, not 2"}},
        Broken{"Cycle",
               Graph(R"({"class_name": "Add", "config": {"name": "a"}, "inbound_nodes": [["in", "b"]]},
                        {"class_name": "ReLU", "config": {"name": "b"}, "inbound_nodes": [["a"]]})",
                     "b"),
               {"inbound_nodes: its inputs depend on a cycle in the graph"}},
        Broken{"NotCalled",
               Graph(R"({"class_name": "Flatten", "config": {"name": "f"}, "inbound_nodes": []})", "f"),
               {"layer 'f' (Flatten), line 1: inbound_nodes: required"}},
        Broken{"OneInputForAMerge",
               Graph(R"({"class_name": "Add", "config": {"name": "a"}, "inbound_nodes": [["in"]]})", "a"),
               {"layer 'a' (Add), line 1: 1 inputs, expected two or more"}},
        Broken{
            "ShapesThatDoNotAdd",
            Graph(R"({"class_name": "Dense", "config": {"name": "d", "units": 3}, "inbound_nodes": [["in"]]},
                        {"class_name": "Add", "config": {"name": "a"}, "inbound_nodes": [["in", "d"]]})",
                  "a"),
            {"layer 'a' (Add), line 2: inputs [4,4,2] and [4,4,3] do not broadcast to one shape"}},
        Broken{"DifferenceOfThree",
               Graph(R"({"class_name": "Subtract", "config": {"name": "s"},
                         "inbound_nodes": [["in", "in", "in"]]})",
                     "s"),
               {"layer 's' (Subtract), line 1: takes 2 inputs, not 3"}},
        Broken{"LayerOnAnotherShape",
               Graph(R"({"class_name": "Dense", "config": {"name": "d", "units": 3},
                         "inbound_nodes": [["in"], [["d", 0, 0, {}]]]})",
                     R"(d", 1, 0], ["d)"),
               {"layer 'd' (Dense), line 1: is used on input [4,4,3], where its kernel would be [3,3] and "
                "not [2,3]"}},
        Broken{"SharedOnAnotherShape",
               Graph(R"({"class_name": "Dense", "config": {"name": "d", "units": 3},
                         "inbound_nodes": [["in"], [["d", 0, 0, {}]]]},
                        {"class_name": "ReLU", "config": {"name": "r"}, "inbound_nodes": [[["d", 1, 0, {}]]]})",
                     "r"),
               {"layer 'd' (Dense), line 1: is used on input [4,4,3], where its kernel would be [3,3] and "
                "not [2,3]"}},
        Broken{"ArgumentsOfACall",
               Graph(R"({"class_name": "Flatten", "config": {"name": "f"},
                         "inbound_nodes": [[["in", 0, 0, {"mask": 3}]]]})",
                     "f"),
               {"layer 'f' (Flatten), line 1: inbound_nodes: kwargs: mask: 3 is not supported"}},
        Broken{"DropoutOfAll",
               SequentialOf(
                   R"({"class_name": "Dropout", "config": {"name": "d", "rate": 1, "input_shape": [4]}})"),
               {"layer 'd' (Dropout), line 1: rate: 1 is not in [0, 1)"}},
        Broken{"NoiseOfAnotherShape",
               SequentialOf(R"({"class_name": "Dropout", "config": {"name": "d", "rate": 0.5,
                                "noise_shape": [null, 1, 3], "input_shape": [4, 4]}})"),
               {"layer 'd' (Dropout), line 1: noise_shape: [0,1,3], where 0 is the input's extent, does not "
                "broadcast "
                "to a batch of [4,4]"}},
        Broken{"NoiseOfTheBatch",
               SequentialOf(R"({"class_name": "Dropout", "config": {"name": "d", "rate": 0.5,
                                "noise_shape": [1, 4], "input_shape": [4]}})"),
               {"layer 'd' (Dropout), line 1: noise_shape: [1,4]: a mask for the batch as a whole"}},
        Broken{"StatisticsOfTheFirstAxis",
               SequentialOf(R"({"class_name": "Normalization", "config": {"name": "n", "axis": 1,
                                "input_shape": [4, 4]}})"),
               {"layer 'n' (Normalization), line 1: axis [1], input [4,4]: only the last axes are supported "
                "(axis 0 is the batch)"}},
        Broken{"MeanWithoutVariance",
               SequentialOf(R"({"class_name": "Normalization", "config": {"name": "n", "mean": 1.0,
                                "input_shape": [4]}})"),
               {"layer 'n' (Normalization), line 1: variance: required if the other one is given"}},
        Broken{"MeansOfAnotherWidth",
               SequentialOf(R"({"class_name": "Normalization", "config": {"name": "n", "mean": [1, 2],
                                "variance": [1, 2], "input_shape": [4]}})"),
               {"layer 'n' (Normalization), line 1: mean: 2 values do not fit the 4 elements of input [4]"}},
        Broken{"ReshapeThatDoesNotFit",
               SequentialOf(R"({"class_name": "Reshape", "config": {"name": "r", "target_shape": [3, -1],
                                "input_shape": [4]}})"),
               {"layer 'r' (Reshape), line 1: input [4] of 4 elements does not fit [3,-1]"}},
        Broken{
            "NormalizationOfAnotherAxis",
            SequentialOf(R"({"class_name": "BatchNormalization", "config": {"name": "bn", "axis": 4,
                                "input_shape": [4, 4, 3]}})"),
            {"layer 'bn' (BatchNormalization), line 1: axis: input [4,4,3] has no axis 4 besides the batch"}},
        Broken{
            "NormalizationOfAxesInAnotherOrder",
            SequentialOf(R"({"class_name": "LayerNormalization", "config": {"name": "ln", "axis": [2, 1],
                                "input_shape": [4, 4, 3]}})"),
            {"layer 'ln' (LayerNormalization), line 1: axis: [2,1] of input [4,4,3] is not in rising order"}},
        Broken{"GroupsThatDoNotDivideTheChannels",
               SequentialOf(R"({"class_name": "GroupNormalization", "config": {"name": "gn", "groups": 2,
                                "input_shape": [4, 3]}})"),
               {"layer 'gn' (GroupNormalization), line 1: groups: 2 do not divide the 3 channels of input "
                "[4,3]"}},
        Broken{"CroppingEverything",
               SequentialOf(
                   R"({"class_name": "Cropping2D", "config": {"name": "crop", "cropping": [[1, 3], [0, 0]],
                                "input_shape": [4, 4, 3]}})"),
               {"layer 'crop' (Cropping2D), line 1: cropping: 1 and 3 leave nothing of the 4 elements of "
                "axis 1"}},
        Broken{"CroppingOfOneNumberTooMany",
               SequentialOf(R"({"class_name": "Cropping1D", "config": {"name": "crop", "cropping": [1, 1, 1],
                                "input_shape": [4, 3]}})"),
               {"cropping: expected a value such as 1 or [1,1], got [1,1,1]"}},
        Broken{"InterpolationOfUpSampling",
               SequentialOf(
                   R"({"class_name": "UpSampling2D", "config": {"name": "up", "interpolation": "bicubic",
                                "input_shape": [4, 4, 3]}})"),
               {"interpolation: expected one of nearest, bilinear, got \"bicubic\""}},
        Broken{"PermuteWithoutAnAxis",
               SequentialOf(R"({"class_name": "Permute", "config": {"name": "p", "dims": [0, 1],
                                "input_shape": [4, 3]}})"),
               {"dims: [0,1]: expected every axis from 1 to 2 once"}},
        Broken{"PermuteOfAnotherRank",
               SequentialOf(R"({"class_name": "Permute", "config": {"name": "p", "dims": [2, 1],
                                "input_shape": [4, 3, 2]}})"),
               {"layer 'p' (Permute), line 1: dims: [2,1] does not fit input [4,3,2] of 3 axes"}},
        Broken{"PoolingOfASequenceInTwoAxes",
               SequentialOf(R"({"class_name": "MaxPooling1D", "config": {"name": "pool", "pool_size": [2, 2],
                                "input_shape": [4, 3]}})"),
               {"pool_size: expected a positive integer, got [2,2]"}},
        Broken{"PoolingOfAnImageAsAVolume",
               SequentialOf(
                   R"({"class_name": "MaxPooling3D", "config": {"name": "pool", "input_shape": [4, 4, 3]}})"),
               {"input [4,4,3] is not a volume [depth, height, width, channels]"}},
        Broken{"SharedAxesOfPRelu",
               SequentialOf(R"({"class_name": "PReLU", "config": {"name": "p", "shared_axes": [3],
                                "input_shape": [4, 3]}})"),
               {"shared_axes: input [4,3] has no axis 3"}},
        Broken{"FactorOfRandomContrast",
               SequentialOf(R"({"class_name": "RandomContrast", "config": {"name": "c", "factor": [0.1, 2],
                                "input_shape": [4, 4, 3]}})"),
               {"factor: expected numbers from 0 to 1"}},
        Broken{"EmbeddingWithoutRows",
               SequentialOf(R"({"class_name": "Embedding", "config": {"name": "e", "output_dim": 4,
                                "input_shape": [4]}})"),
               {"layer 'e' (Embedding), line 1: input_dim: required"}},
        Broken{"ConfigIsNoObject",
               SequentialOf(R"({"class_name": "Dense", "config": 4})"),
               {"layer 0 (Dense), line 1: expected an object, got 4"}}),
    [](const testing::TestParamInfo<Broken>& tested) { return tested.param.fault; });

// Replaces each node of a real export by each of these values (under a sanitizer, one in five). The result
// does not matter as long as it is a model or INVALID_ARGUMENT: no exception, no crash.
void ReplaceEveryNode(nlohmann::json& document, nlohmann::json& node, int& tried) {
  const nlohmann::json kept = node;
  for (const char* value : {"null", "true", "-1", "3", "1e300", "\"x\"", "[]", "{}", "[[1]]",
                            "{\"class_name\": 1}", "{\"class_name\": \"Dense\", \"config\": [1]}"}) {
    if (++tried % test::Effort(1, 5) != 0) continue;
    node = nlohmann::json::parse(value);
    const auto status = Model::FromJson(document.dump(), "model.json").status();
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  }
  node = kept;
  if (!node.is_structured()) return;
  for (nlohmann::json& child : node) ReplaceEveryNode(document, child, tried);
}

TEST(BrokenModelFile, NodesOfTheWrongTypeNeverThrow) {
  std::ifstream file(kKerasJson);
  nlohmann::json document = nlohmann::json::parse(file);
  int tried = 0;
  ReplaceEveryNode(document, document, tried);
  EXPECT_GT(tried, 3000);
}

}  // namespace
}  // namespace cairn::nn
